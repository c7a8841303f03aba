#include "harness/cli/errata_text.h"

#include <fmt/format.h>

#include <utility>

#include "harness/cli/verb.h"
#include "harness/errata/formats.h"
#include "harness/errata/listing.h"

namespace skidproof::cli {
namespace {

using errata::LinuxView;
using results::ErratumRow;
using results::Exposure;
using results::Listed;
using results::MachineRow;
using results::Observed;

std::string processor_text(const Asked& of) {
  if (!of.subject.part) return of.row.machine;
  std::string text = fmt::format("{}: {}", of.row.machine, name_of(*of.subject.part));
  if (!of.row.microarch.empty()) text += " (" + of.row.microarch + ")";
  text += of.row.microcode ? fmt::format(", microcode {:#x}", *of.row.microcode)
                           : ", microcode not readable";
  if (const std::string core = errata::core_word(of.subject.core); !core.empty()) {
    text += fmt::format(", {}-core", core);
  }
  if (of.subject.hyper_threading) {
    text += *of.subject.hyper_threading ? ", hyper-threading on" : ", hyper-threading off";
  }
  return text;
}

std::string provenance_text(const MachineRow& row) {
  if (row.provenance == results::RowProvenance::kModel) return "This is a MODEL, not silicon.";
  if (row.provenance == results::RowProvenance::kVirtualLab)
    return "This is a virtual lab, not silicon.";
  return "";
}

std::string listed_cell(const Text& text, const ErratumRow& row) {
  const Paint paint = row.listed == Listed::kAffected           ? Paint::kRed
                      : row.listed == Listed::kFixedByMicrocode ? Paint::kGreen
                      : row.listed == Listed::kUnknown          ? Paint::kYellow
                                                                : Paint::kDim;
  return text.paint(paint, name_of(row.listed));
}

std::string observed_cell(const Text& text, const ErratumRow& row) {
  switch (row.observed) {
    case Observed::kReproduced:
      return text.paint(Paint::kRed, fmt::format("reproduced {} of {}", row.shown, row.tries));
    case Observed::kNotReproduced:
      return text.paint(Paint::kGreen,
                        fmt::format("not in {}, < {:.2g} %", row.tries, 100 * *row.excluded_rate));
    case Observed::kNotRun:
      return text.paint(Paint::kDim, "not run");
    case Observed::kError:
      return text.paint(Paint::kYellow, "cannot tell");
  }
  return "";
}

std::string exposure_cell(const Text& text, const ErratumRow& row) {
  if (row.contradiction) return text.paint(Paint::kRed, "CONTRADICTION");
  const Paint paint = row.exposure == Exposure::kExposed   ? Paint::kRed
                      : row.exposure == Exposure::kInPlace ? Paint::kYellow
                                                           : Paint::kDim;
  return text.paint(paint, name_of(row.exposure));
}

void print_rows(const Text& text, const std::vector<ErratumRow>& rows, bool verbose) {
  Table table;
  const auto head = [&](const char* word) { return text.paint(Paint::kDim, word); };
  table.row(
      {head("erratum"), head("listed"), head("observed"), head("exposure"), head("what it is")});
  size_t shown = 0;
  for (const ErratumRow& row : rows) {
    const bool silent = row.observed == Observed::kNotRun && row.listed != Listed::kAffected &&
                        row.listed != Listed::kFixedByMicrocode;
    if (silent && !verbose) continue;
    ++shown;
    table.row({text.paint(Paint::kBold, row.id), listed_cell(text, row), observed_cell(text, row),
               exposure_cell(text, row), row.title});
  }
  if (shown != 0) {
    text.line();
    table.print(text, 2);
  }
  // Whatever needs words.
  for (const ErratumRow& row : rows) {
    if (row.contradiction) {
      text.line(fmt::format("  {} was reproduced, and {}", row.id, row.listed_why));
    } else if (row.observed == Observed::kError) {
      text.line(fmt::format("  {}: {}", row.id, wrap(row.observed_why, 4)));
    } else if (verbose) {
      text.line(fmt::format("  {}: {}{}{}", row.id, row.listed_why,
                            row.observed_why.empty() ? "" : "; ", row.observed_why));
    }
  }
}

void print_sum(const Text& text, const std::vector<ErratumRow>& rows) {
  std::map<Listed, size_t> listed;
  std::map<Observed, size_t> observed;
  for (const ErratumRow& row : rows) ++listed[row.listed], ++observed[row.observed];
  text.line();
  text.line(fmt::format(
      "{}: listed {} affected, {} fixed by microcode, {} not affected, {} unknown; "
      "observed {} reproduced, {} not reproduced, {} not run, {} cannot be told",
      count_of(rows.size(), "erratum", "errata"), listed[Listed::kAffected],
      listed[Listed::kFixedByMicrocode], listed[Listed::kNotAffected], listed[Listed::kUnknown],
      observed[Observed::kReproduced], observed[Observed::kNotReproduced],
      observed[Observed::kNotRun], observed[Observed::kError]));
}

}  // namespace

const std::map<std::string, Format>& formats() {
  static const std::map<std::string, Format> kFormats = {{"text", Format::kText},
                                                         {"json", Format::kJson},
                                                         {"prometheus", Format::kPrometheus},
                                                         {"nrpe", Format::kNrpe},
                                                         {"csv", Format::kCsv}};
  return kFormats;
}

int cannot(const Error& error) {
  return complain(error.code == ErrorCode::kInvalidArgument ? kExitUsage : errata::kExitUnknown,
                  error);
}

void print_answer(const Text& text, const arch::ErrataCatalogue& catalogue, const Answer& answer,
                  bool verbose) {
  text.line(text.paint(Paint::kBold, processor_text(answer.of)));
  const std::string unknown = errata::unknowable(catalogue, answer.of.subject);
  if (!unknown.empty()) text.line("  " + text.paint(Paint::kYellow, "unknown") + ": " + unknown);
  print_rows(text, answer.rows, verbose && unknown.empty());
  print_sum(text, answer.rows);
  if (const std::string not_silicon = provenance_text(answer.of.row); !not_silicon.empty()) {
    text.line(not_silicon);
  }
}

void print_linux(const Text& text, const LinuxView& view) {
  text.line();
  text.line(text.paint(Paint::kBold, "What Linux says") +
            (view.release.empty() ? "" : " (" + view.release + ")"));
  Table table;
  std::string microcode;
  for (const auto& [revision, cpus] : view.microcode) {
    microcode += fmt::format("{}{:#x} on {}", microcode.empty() ? "" : ", ", revision,
                             count_of(cpus, "CPU"));
  }
  if (!microcode.empty()) table.row({"microcode", microcode});
  if (view.hyper_threading) table.row({"hyper-threading", *view.hyper_threading ? "on" : "off"});
  for (const auto& [name, value] : view.switches) {
    table.row({errata::printable(name), errata::printable(value)});
  }
  for (const auto& [name, verdict] : view.vulnerabilities) {
    table.row({errata::printable(name), errata::printable(verdict)});
  }
  for (const std::string& line : view.pmu_lines) table.row({"log", errata::printable(line)});
  for (const std::string& note : view.notes) table.row({text.paint(Paint::kDim, "note"), note});
  table.print(text, 2);
}

}  // namespace skidproof::cli
