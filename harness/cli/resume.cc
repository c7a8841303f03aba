// Reading what a dead run left, and making its file fit to be appended to.
#include "harness/cli/resume.h"

#include <fmt/core.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <variant>

#include "harness/check/check.h"
#include "results/writer.h"

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kRows[] = "results.jsonl";
constexpr char kLost[] = "machine lost: ";

tl::unexpected<Error> refused(std::string message, std::string advice) {
  return fail(ErrorCode::kInvalidArgument, std::move(message), std::move(advice));
}

std::string lost_since(const std::string& started) {
  return fmt::format("{}it had started at {} and nothing came after: a hang, a crash or a reboot",
                     kLost, started);
}

// Where the last line that ended ends.
Expected<uint64_t> whole_lines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return fail(ErrorCode::kIo, fmt::format("cannot read '{}'", path), "check the device");
  const size_t end = text.rfind('\n');
  return end == std::string::npos ? uint64_t{0} : uint64_t{end + 1};
}

Expected<void> sort_in(Interrupted& interrupted, const results::ReadRow& read) {
  results::Row row = SKIDPROOF_TRY(results::row_of(read.json));
  if (auto* run = std::get_if<results::RunRow>(&row)) {
    interrupted.run = std::move(*run);
  } else if (auto* machine = std::get_if<results::MachineRow>(&row)) {
    interrupted.machine = std::move(*machine);
  } else if (auto* start = std::get_if<results::TestStartRow>(&row)) {
    interrupted.lost = std::move(*start);
  } else if (auto* test = std::get_if<results::TestRow>(&row)) {
    interrupted.lost.reset();
    interrupted.tests.push_back(std::move(*test));
  } else if (auto* measuring = std::get_if<results::MeasurementStartRow>(&row)) {
    interrupted.lost_measurement = measuring->name;
    interrupted.left_out[measuring->name] = lost_since(measuring->started);
  } else if (auto* measured = std::get_if<results::MeasurementRow>(&row)) {
    interrupted.lost_measurement.reset();
    interrupted.left_out.erase(measured->name);
  } else if (auto* unmeasured = std::get_if<results::UnmeasuredRow>(&row)) {
    interrupted.lost_measurement.reset();
    interrupted.left_out.erase(unmeasured->name);
    if (unmeasured->reason.starts_with(kLost))
      interrupted.left_out[unmeasured->name] = unmeasured->reason;
  }
  return {};
}

}  // namespace

Expected<Interrupted> read_interrupted(const std::string& folder) {
  Interrupted interrupted;
  interrupted.path = (fs::path(folder) / kRows).string();
  std::error_code ignored;
  if (!fs::exists(interrupted.path, ignored)) {
    return refused(fmt::format("there is no {} in '{}'", kRows, folder),
                   "name the folder of a run that was cut short: skidproof-out/<run id>");
  }
  const results::RowsFile file = SKIDPROOF_TRY(results::read_rows(interrupted.path));
  for (const results::LineProblem& problem : file.problems) {
    if (file.truncated && &problem == &file.problems.back()) break;
    return refused(
        fmt::format("line {} of '{}' is no row: {}", problem.line, interrupted.path, problem.what),
        "these rows were changed after they were written: start a new run");
  }
  if (file.ended) {
    const auto& end = file.rows.back().json;
    return refused(
        fmt::format("the run in '{}' has ended: {}", folder,
                    end.value("reason", std::string("no reason given"))),
        "only a run that was cut short, without an `end` row, can go on; start a new one");
  }
  for (const results::ReadRow& row : file.rows) SKIDPROOF_CHECK(sort_in(interrupted, row));
  if (interrupted.run.id.empty()) {
    return refused(fmt::format("'{}' does not begin with a `run` row", interrupted.path),
                   "it says what was to run; without it, start a new run");
  }
  interrupted.torn = file.truncated;
  interrupted.whole = SKIDPROOF_TRY(whole_lines(interrupted.path));
  return interrupted;
}

Expected<void> mend(const Interrupted& interrupted) {
  if (!interrupted.torn) return {};
  std::error_code error;
  fs::resize_file(interrupted.path, interrupted.whole, error);
  if (!error) return {};
  return fail(
      ErrorCode::kIo,
      fmt::format("cannot cut the torn last line off '{}': {}", interrupted.path, error.message()),
      "grant write access to it");
}

results::TestRow lost_row(const results::TestStartRow& start) {
  results::TestRow row;
  row.machine = start.machine;
  row.microarch = start.microarch;
  row.id = start.id;
  row.clauses = start.clauses;
  row.seed = start.seed;
  row.repetition = start.repetition;
  row.status = results::Status::kError;
  row.reason = lost_since(start.started);
  for (const check::TestInfo& info : check::tests()) {
    if (info.id() != start.id) continue;
    row.stage = name_of(info.stage);
    for (const Clause* clause : info.clauses) {
      row.citations[std::string(clause->id)] =
          fmt::format("{} [{}]", clause->text, clause->citation);
    }
  }
  return row;
}

bool is_lost(const results::TestRow& row) {
  return row.status == results::Status::kError && row.reason.starts_with(kLost);
}

std::string other_machine(const Interrupted& interrupted, const results::MachineRow& now) {
  if (!interrupted.machine) return {};
  const results::MachineRow& then = *interrupted.machine;
  const auto differs = [](const char* what, const auto& before, const auto& after) {
    return fmt::format("its {} was {}, and is {} now", what, before, after);
  };
  if (then.machine != now.machine) return differs("machine", then.machine, now.machine);
  if (then.host != now.host) return differs("host", then.host, now.host);
  const auto part = [](const results::MachineRow& row) {
    return fmt::format("family {} model {:#x} stepping {}", row.family, row.model, row.stepping);
  };
  if (part(then) != part(now)) return differs("processor", part(then), part(now));
  const auto microcode = [](const results::MachineRow& row) {
    return row.microcode ? results::hex(*row.microcode) : std::string("not readable");
  };
  if (then.microcode != now.microcode) {
    return differs("microcode", microcode(then), microcode(now));
  }
  // Older rows do not say it.
  if (!then.event_list.empty() && then.event_list != now.event_list) {
    return differs("event list", then.event_list, now.event_list);
  }
  return {};
}

}  // namespace skidproof::cli
