// The text of `run`.
#include "harness/cli/run_printer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

using results::Status;

constexpr size_t kShown = 20;  // of a list; the rest is in the rows

std::string suite_of(const std::string& id) { return id.substr(0, id.find('.')); }

Paint paint_of(Status status) {
  switch (status) {
    case Status::kPass:
    case Status::kXfail:
    case Status::kXpass:
      return Paint::kGreen;
    case Status::kObserved:
      return Paint::kCyan;
    case Status::kSkip:
    case Status::kDisturbed:
      return Paint::kYellow;
    case Status::kFail:
    case Status::kError:
      return Paint::kRed;
  }
  return Paint::kRed;
}

const char* in_plural(Status status) {
  switch (status) {
    case Status::kPass:
      return "passed";
    case Status::kFail:
      return "failed";
    case Status::kError:
      return "in error";
    case Status::kSkip:
      return "skipped";
    case Status::kXfail:
      return "failed as an erratum says";
    case Status::kXpass:
      return "held in spite of an erratum";
    case Status::kObserved:
      return "observed";
    case Status::kDisturbed:
      return "disturbed";
  }
  return "?";
}

// "failed in 3 of 4 attempts: 75 %, 19.4 to 99.4 % with 95 % confidence".
std::string rate_text(const results::Repetitions& repetitions) {
  if (repetitions.k == 0) return "";
  std::string text = fmt::format("failed in {} of {}: {:.3g} %", repetitions.k,
                                 count_of(repetitions.n, "attempt"), 100 * repetitions.rate);
  if (repetitions.low) {
    text += fmt::format(", {:.3g} to {:.3g} % with 95 % confidence", 100 * *repetitions.low,
                        100 * *repetitions.high);
  }
  if (repetitions.voided > 0) text += fmt::format("; {} more were spoiled", repetitions.voided);
  return text;
}

// "24 passed, 2 skipped"; what is zero is left out.
std::string counts_text(const Text& text, const results::StatusCounts& counts) {
  std::string line;
  for (Status status : results::kStatuses) {
    if (counts[status] == 0) continue;
    const std::string part = fmt::format("{} {}", counts[status], in_plural(status));
    line += (line.empty() ? "" : ", ") + text.paint(paint_of(status), part);
  }
  return line.empty() ? "nothing ran" : line;
}

}  // namespace

RunPrinter::RunPrinter(std::FILE* stream, const OpenMachine& machine, std::string again,
                       bool verbose)
    : text_(stream), machine_(machine), again_(std::move(again)), verbose_(verbose) {
  for (const check::TestInfo& info : check::tests()) {
    suite_width_ = std::max(suite_width_, info.suite.size());
  }
}

void RunPrinter::header(const ResultFiles& files, uint64_t seed) const {
  const std::string words = in_words(machine_);
  const bool silicon = machine_.identity.provenance == Provenance::kSilicon;
  text_.line(fmt::format("skidproof {}  {}  {}  seed {}", version(),
                         text_.paint(Paint::kBold, machine_.identity.name),
                         silicon ? words : text_.paint(Paint::kYellow, words), seed));
  if (!machine_.why.empty()) text_.line("  " + wrap(machine_.why, 2));
  if (machine_.renewed.row != nullptr) {
    text_.line(fmt::format("  events are those of {}, read from {}",
                           machine_.renewed.row->events.list(), machine_.renewed.file));
  }
  for (const std::string& path : files.paths()) text_.line("  rows go to " + path);
  if (machine_.tape != nullptr) {
    const std::vector<std::string>& damage = machine_.tape->damage();
    for (size_t i = 0; i < std::min<size_t>(damage.size(), 5); ++i) {
      text_.line("  " + text_.paint(Paint::kRed, wrap("the tape is damaged: " + damage[i], 2)));
    }
    if (damage.size() > 5) text_.line(fmt::format("  ... and {} more", damage.size() - 5));
  }
  text_.line();
}

void RunPrinter::resumed(const Interrupted& before) const {
  text_.line(fmt::format("  goes on with run {}: {} ran before", before.run.id,
                         count_of(before.tests.size(), "test")));
  if (before.torn) text_.line("  its last line broke off and was cut off");
  const auto lost = [this](const std::string& in) {
    text_.line("  " + text_.paint(Paint::kRed, "machine lost") + " in " + in +
               ", which is left out");
  };
  if (before.lost) lost(before.lost->id);
  if (before.lost_measurement) lost(*before.lost_measurement);
  text_.line();
}

void RunPrinter::started(const check::TestInfo& info) {
  if (info.suite != suite_) close_suite();
  suite_ = info.suite;
  progress_.update(done_, planned_, info.id());
}

void RunPrinter::finished(const results::TestRow& row) {
  ++done_;
  ++suite_counts_[row.status];
  suite_seconds_ += row.duration_s;
  switch (row.status) {
    case Status::kPass:
    case Status::kXpass:
      break;
    case Status::kSkip:
      skips_[{results::name_of(*row.skip_category), row.reason}].push_back(row.id);
      break;
    case Status::kFail:
    case Status::kError:
      failures_.push_back(row);
      break;
    case Status::kXfail:
    case Status::kDisturbed:
      explained_[{row.status, row.reason}].push_back(row.id);
      break;
    case Status::kObserved:
      observations_.push_back(row);
      break;
  }
  if (verbose_) print_verbose(row);
}

void RunPrinter::print_verbose(const results::TestRow& row) {
  progress_.clear();
  const std::string word = pad_right(results::name_of(row.status), 9);
  text_.line(fmt::format("  {} {}  {}{}", text_.paint(paint_of(row.status), word), row.id,
                         text_.paint(Paint::kDim, duration_text(row.duration_s)),
                         row.status == Status::kSkip ? "  " + row.reason : ""));
}

void RunPrinter::close_suite() {
  if (suite_counts_.total() == 0) return;
  progress_.clear();
  text_.line(fmt::format("{}  {:>8}  {}", pad_right(suite_, suite_width_),
                         duration_text(suite_seconds_), counts_text(text_, suite_counts_)));
  suite_counts_ = {};
  suite_seconds_ = 0;
}

void RunPrinter::print_failure(const results::TestRow& row) {
  text_.line();
  const std::string word = row.status == Status::kFail ? "FAIL " : "ERROR";
  text_.line(
      fmt::format("{} {}", text_.paint(Paint::kRed, word), text_.paint(Paint::kBold, row.id)));
  for (const auto& [clause, citation] : row.citations) {
    text_.line(
        fmt::format("  {} {}", text_.paint(Paint::kCyan, pad_right(clause, 4)), wrap(citation, 7)));
  }
  for (const std::string& failure : row.failures) text_.line(indented(failure, 2, 4));
  if (const std::string rate = rate_text(row.repetitions); !rate.empty()) text_.line("  " + rate);
  for (const auto& [key, item] : row.evidence.items()) {
    text_.line(fmt::format("  {} = {}", key, evidence_text(item)));
  }
  const std::string seed = machine_.tape != nullptr ? "" : fmt::format(" --seed {}", row.seed);
  text_.line(
      text_.paint(Paint::kDim, fmt::format("  again: {}{} --filter '{}'", again_, seed, row.id)));
}

// One line of a list: how many, what, and why, with the suites.
void RunPrinter::print_reason(Paint paint, const std::string& what, const std::string& reason,
                              const std::vector<std::string>& ids) const {
  std::vector<std::string> suites;
  for (const std::string& id : ids) {
    const std::string suite = suite_of(id);
    if (suites.empty() || suites.back() != suite) suites.push_back(suite);
  }
  text_.line(fmt::format("  {:>4}  {}  {}", ids.size(), text_.paint(paint, pad_right(what, 21)),
                         wrap(fmt::format("{} ({})", reason, joined(suites)), 31)));
}

void RunPrinter::print_skips() const {
  if (skips_.empty()) return;
  text_.line();
  text_.line("Skipped:");
  for (const auto& [why, ids] : skips_) print_reason(Paint::kYellow, why.first, why.second, ids);
}

void RunPrinter::print_explained() const {
  if (explained_.empty()) return;
  text_.line();
  text_.line("Failed, and no failure:");
  for (const auto& [why, ids] : explained_) {
    print_reason(paint_of(why.first), results::name_of(why.first), why.second, ids);
  }
}

void RunPrinter::print_observations() const {
  if (observations_.empty()) return;
  text_.line();
  text_.line("Observed, where nothing is promised:");
  for (size_t i = 0; i < std::min(observations_.size(), kShown); ++i) {
    const results::TestRow& row = observations_[i];
    for (const auto& [what, seen] : row.evidence["observed"].items()) {
      text_.line(fmt::format("  {}  {} = {}", text_.paint(Paint::kCyan, row.id), what,
                             evidence_text(seen)));
    }
  }
  if (observations_.size() > kShown) {
    text_.line(
        fmt::format("  ... and {} more, all in the result rows", observations_.size() - kShown));
  }
}

void RunPrinter::summary(const ResultFiles& files, int exit, const std::string& reason,
                         const std::vector<std::string>& also) {
  close_suite();
  progress_.clear();
  for (size_t i = 0; i < std::min(failures_.size(), kShown); ++i) print_failure(failures_[i]);
  if (failures_.size() > kShown) {
    text_.line();
    text_.line(fmt::format("... and {} more, all in the result rows", failures_.size() - kShown));
  }
  print_explained();
  print_observations();
  print_skips();
  text_.line();
  text_.line(fmt::format("{} in {}{}", counts_text(text_, files.counts()),
                         duration_text(files.seconds()),
                         reason == "completed" ? "" : "; " + text_.paint(Paint::kRed, reason)));
  if (done_ < planned_) text_.line(fmt::format("{} not run", count_of(planned_ - done_, "test")));
  for (const std::string& line : also) text_.line("  " + line);
  if (machine_.tape != nullptr) {
    text_.line(text_.paint(Paint::kYellow, "This replays a tape: nothing was measured anew."));
  }
  if (machine_.identity.provenance != Provenance::kSilicon) {
    text_.line(text_.paint(Paint::kYellow, fmt::format("This is a {}.", in_words(machine_))));
  }
  if (exit == kExitNothingRan) text_.line("Nothing could run: every test was skipped.");
}

}  // namespace skidproof::cli
