// The text of `run`.
#include "harness/cli/run_printer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

using results::Status;

std::string suite_of(const std::string& id) { return id.substr(0, id.find('.')); }

Paint paint_of(Status status) {
  switch (status) {
    case Status::kPass:
    case Status::kXfail:
      return Paint::kGreen;
    case Status::kSkip:
      return Paint::kYellow;
    default:
      return Paint::kRed;
  }
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
      return "failed as expected";
    case Status::kXpass:
      return "held unexpectedly";
  }
  return "?";
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
  for (const std::string& path : files.paths()) text_.line("  rows go to " + path);
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
  if (row.status == Status::kSkip) {
    skips_[{results::name_of(*row.skip_category), row.reason}].push_back(row.id);
  } else if (row.status != Status::kPass && row.status != Status::kXfail) {
    failures_.push_back(row);
  }
  if (verbose_) print_verbose(row);
}

void RunPrinter::print_verbose(const results::TestRow& row) {
  progress_.clear();
  const std::string word = pad_right(results::name_of(row.status), 5);
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
  for (const auto& [key, item] : row.evidence.items()) {
    text_.line(fmt::format("  {} = {}", key, evidence_text(item)));
  }
  text_.line(text_.paint(
      Paint::kDim, fmt::format("  again: {} --seed {} --filter '{}'", again_, row.seed, row.id)));
}

void RunPrinter::print_skips() const {
  if (skips_.empty()) return;
  text_.line();
  text_.line("Skipped:");
  for (const auto& [why, ids] : skips_) {
    std::vector<std::string> suites;
    for (const std::string& id : ids) {
      const std::string suite = suite_of(id);
      if (suites.empty() || suites.back() != suite) suites.push_back(suite);
    }
    text_.line(fmt::format("  {:>4}  {}  {}", ids.size(),
                           text_.paint(Paint::kYellow, pad_right(why.first, 21)),
                           wrap(fmt::format("{} ({})", why.second, joined(suites)), 31)));
  }
}

void RunPrinter::summary(const ResultFiles& files, int exit, const std::string& reason) {
  close_suite();
  progress_.clear();
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(failures_.size(), kShown); ++i) print_failure(failures_[i]);
  if (failures_.size() > kShown) {
    text_.line();
    text_.line(fmt::format("... and {} more, all in the result rows", failures_.size() - kShown));
  }
  print_skips();
  text_.line();
  text_.line(fmt::format("{} in {}{}", counts_text(text_, files.counts()),
                         duration_text(files.seconds()),
                         reason == "completed" ? "" : "; " + text_.paint(Paint::kRed, reason)));
  if (done_ < planned_) text_.line(fmt::format("{} not run", count_of(planned_ - done_, "test")));
  if (machine_.identity.provenance != Provenance::kSilicon) {
    text_.line(text_.paint(Paint::kYellow, fmt::format("This is a {}.", in_words(machine_))));
  }
  if (exit == kExitNothingRan) text_.line("Nothing could run: every test was skipped.");
}

}  // namespace skidproof::cli
