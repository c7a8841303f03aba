#include "harness/errata/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <utility>

namespace skidproof::errata {
namespace {

using results::ErratumRow;
using results::Exposure;
using results::InventoryRow;
using results::Observed;

// Of an erratum in a line's list.
constexpr size_t kMostNamed = 5;

std::string label(std::string_view value) {
  std::string text;
  for (char c : printable(value)) {
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

std::string labels(std::initializer_list<std::pair<std::string_view, std::string_view>> pairs) {
  std::string text;
  for (const auto& [name, value] : pairs) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, label(value));
  }
  return text;
}

std::string head(std::string_view name, std::string_view help) {
  return fmt::format("# HELP {} {}\n# TYPE {} gauge\n", name, help, name);
}

std::string cell(std::string_view text) {
  std::string plain = printable(text);
  if (plain.find_first_of(",\"\r\n") == std::string::npos) return plain;
  std::string quoted = "\"";
  for (char c : plain) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& text : cells) {
    line += (line.empty() && &text == &cells.front() ? "" : ",") + cell(text);
  }
  return line + "\r\n";
}

std::string spaced(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// "3 exposed (BJ103, BJ122, …)"
std::string named(std::span<const ErratumRow> rows, Exposure exposure, std::string_view words) {
  std::vector<std::string_view> ids;
  for (const ErratumRow& row : rows) {
    if (row.exposure == exposure) ids.push_back(row.id);
  }
  if (ids.empty()) return {};
  const size_t count = ids.size();
  const bool more = count > kMostNamed;
  if (more) ids.resize(kMostNamed);
  return fmt::format("{} {} ({}{})", count, words, fmt::join(ids, ", "), more ? ", ..." : "");
}

constexpr std::array<const char*, 4> kPluginStates = {"OK", "WARNING", "CRITICAL", "UNKNOWN"};

}  // namespace

std::string printable(std::string_view text) {
  std::string plain;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    constexpr unsigned char kSpace = 0x20, kDelete = 0x7F;
    plain += byte < kSpace || byte == kDelete ? '?' : c;
  }
  return plain;
}

std::array<uint64_t, results::kExposures.size()> by_exposure(std::span<const ErratumRow> rows) {
  std::array<uint64_t, results::kExposures.size()> counts = {};
  for (const ErratumRow& row : rows) ++counts[static_cast<size_t>(row.exposure)];
  return counts;
}

int exit_of(std::span<const ErratumRow> rows) {
  const auto has = [&](Exposure exposure) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const ErratumRow& row) { return row.exposure == exposure; });
  };
  if (has(Exposure::kExposed)) return kExitExposed;
  if (has(Exposure::kUnknown)) return kExitUnknown;
  return has(Exposure::kInPlace) ? kExitInPlace : kExitNone;
}

void sort_for_people(std::vector<ErratumRow>& rows) {
  const auto rank = [](const ErratumRow& row) {
    constexpr std::array<int, results::kExposures.size()> kRanks = {3, 1, 0, 2};
    return std::tuple(!row.contradiction, row.observed != Observed::kReproduced,
                      kRanks[static_cast<size_t>(row.exposure)], std::string_view(row.id),
                      std::string_view(row.core_type));
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const ErratumRow& a, const ErratumRow& b) { return rank(a) < rank(b); });
}

std::string prometheus(std::span<const ErratumRow> rows) {
  std::string text = head("skidproof_erratum_listed",
                          "What is published of an erratum and this processor, as a label.");
  for (const ErratumRow& row : rows) {
    text += fmt::format("skidproof_erratum_listed{{{}}} 1\n",
                        labels({{"machine", row.machine},
                                {"core", row.core_type},
                                {"erratum", row.id},
                                {"verdict", name_of(row.listed)}}));
  }
  text += head("skidproof_erratum_observed", "What the erratum's reproducer saw, as a label.");
  for (const ErratumRow& row : rows) {
    text += fmt::format("skidproof_erratum_observed{{{}}} 1\n",
                        labels({{"machine", row.machine},
                                {"core", row.core_type},
                                {"erratum", row.id},
                                {"verdict", name_of(row.observed)}}));
  }
  text += head("skidproof_erratum_contradiction",
               "1 where an erratum was reproduced that is listed as absent, mended or unknown.");
  for (const ErratumRow& row : rows) {
    text += fmt::format(
        "skidproof_erratum_contradiction{{{}}} {}\n",
        labels({{"machine", row.machine}, {"core", row.core_type}, {"erratum", row.id}}),
        row.contradiction ? 1 : 0);
  }
  text += head("skidproof_errata", "Errata by exposure.");
  const std::string machine = rows.empty() ? std::string("none") : rows.front().machine;
  const auto counts = by_exposure(rows);
  for (Exposure exposure : results::kExposures) {
    text += fmt::format("skidproof_errata{{{}}} {}\n",
                        labels({{"machine", machine}, {"exposure", name_of(exposure)}}),
                        counts[static_cast<size_t>(exposure)]);
  }
  text += head("skidproof_errata_verdict",
               "Exit code of the check: 0 none, 1 workaround in place, 2 exposed, 3 unknown.");
  text += fmt::format("skidproof_errata_verdict{{{}}} {}\n", labels({{"machine", machine}}),
                      exit_of(rows));
  return text;
}

std::string prometheus(std::span<const results::ErrataSummaryRow> rows,
                       const std::array<uint64_t, 4>& machines) {
  std::string text = head("skidproof_inventory_machines",
                          "Machines of the inventory by verdict: what the check would exit with.");
  for (size_t verdict = 0; verdict < machines.size(); ++verdict) {
    text += fmt::format("skidproof_inventory_machines{{verdict=\"{}\"}} {}\n", verdict,
                        machines[verdict]);
  }
  text += head("skidproof_inventory_errata",
               "Machines of the inventory by erratum, microcode and exposure.");
  for (const results::ErrataSummaryRow& row : rows) {
    const std::string microcode = row.microcode ? results::hex(*row.microcode) : "";
    for (const auto& [exposure, count] : {std::pair<const char*, uint64_t>{"exposed", row.exposed},
                                          {"workaround-in-place", row.in_place},
                                          {"fixed-by-microcode", row.fixed},
                                          {"unknown", row.unknown}}) {
      if (count == 0) continue;
      text += fmt::format(
          "skidproof_inventory_errata{{{}}} {}\n",
          labels({{"erratum", row.id}, {"microcode", microcode}, {"exposure", exposure}}), count);
    }
  }
  return text;
}

std::string nrpe(std::span<const ErratumRow> rows, std::string_view why_unknown) {
  std::vector<std::string> words;
  const auto say = [&words](std::string text) {
    if (!text.empty()) words.push_back(std::move(text));
  };
  uint64_t reproduced = 0, contradictions = 0;
  for (const ErratumRow& row : rows) {
    reproduced += row.observed == Observed::kReproduced ? 1 : 0;
    contradictions += row.contradiction ? 1 : 0;
  }
  if (contradictions != 0) say(fmt::format("{} reproduced against what is listed", contradictions));
  say(named(rows, Exposure::kExposed, "exposed"));
  say(named(rows, Exposure::kInPlace, "with a workaround in place"));
  if (!why_unknown.empty()) {
    say(printable(why_unknown));
  } else {
    say(named(rows, Exposure::kUnknown, "unknown"));
  }
  if (words.empty()) say("no erratum is listed here that is not mended");
  std::string text = fmt::format("{}", fmt::join(words, ", "));
  std::replace(text.begin(), text.end(), '|', '/');  // what follows a bar is data
  const auto counts = by_exposure(rows);
  return fmt::format("ERRATA {} - {} | exposed={} in_place={} unknown={} reproduced={}\n",
                     kPluginStates[static_cast<size_t>(exit_of(rows))], text,
                     counts[static_cast<size_t>(Exposure::kExposed)],
                     counts[static_cast<size_t>(Exposure::kInPlace)],
                     counts[static_cast<size_t>(Exposure::kUnknown)], reproduced);
}

std::string nrpe(const std::array<uint64_t, 4>& machines) {
  size_t state = kExitNone;
  for (const int worst : {kExitExposed, kExitUnknown, kExitInPlace}) {
    if (machines[static_cast<size_t>(worst)] == 0) continue;
    state = static_cast<size_t>(worst);
    break;
  }
  return fmt::format(
      "ERRATA {} - {} machines exposed, {} unknown, {} with workarounds in place, {} clear | "
      "exposed={} unknown={} in_place={} clear={}\n",
      kPluginStates[state], machines[kExitExposed], machines[kExitUnknown], machines[kExitInPlace],
      machines[kExitNone], machines[kExitExposed], machines[kExitUnknown], machines[kExitInPlace],
      machines[kExitNone]);
}

std::string csv(std::span<const ErratumRow> rows) {
  std::string text = line_of({"machine", "core", "erratum", "listed", "listed_by", "listed_why",
                              "observed", "tries", "shown", "excluded_rate", "observed_why",
                              "exposure", "exposure_why", "contradiction", "title"});
  for (const ErratumRow& row : rows) {
    text += line_of(
        {row.machine, row.core_type, row.id, name_of(row.listed), row.listed_by, row.listed_why,
         name_of(row.observed), fmt::format("{}", row.tries), fmt::format("{}", row.shown),
         row.excluded_rate ? fmt::format("{:.4g}", *row.excluded_rate) : "", row.observed_why,
         name_of(row.exposure), row.exposure_why, row.contradiction ? "true" : "false", row.title});
  }
  return text;
}

std::string csv_header_of_inventory() {
  return line_of({"machine", "line", "vendor", "family", "model", "stepping", "microcode",
                  "verdict", "exposed", "in_place", "fixed", "unknown", "reason"});
}

std::string csv(const InventoryRow& row) {
  return line_of({row.machine, fmt::format("{}", row.line), row.vendor,
                  fmt::format("{}", row.family), fmt::format("{}", row.model),
                  fmt::format("{}", row.stepping),
                  row.microcode ? results::hex(*row.microcode) : "", fmt::format("{}", row.verdict),
                  spaced(row.exposed), spaced(row.in_place), spaced(row.fixed), spaced(row.unknown),
                  row.reason});
}

}  // namespace skidproof::errata
