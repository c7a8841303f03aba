// Opening, writing and closing the rows of a run.
#include "harness/cli/result_files.h"

#include <fmt/core.h>

#include <ctime>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

Expected<void> make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && std::filesystem::is_directory(folder, error)) return {};
  const bool refused = error == std::errc::permission_denied;
  return fail(refused ? ErrorCode::kPermission : ErrorCode::kIo,
              fmt::format("cannot create the output folder '{}': {}", folder.string(),
                          error ? error.message() : "a file of that name is in the way"),
              "name a folder that can be written with --out DIR, or a file with --json FILE");
}

}  // namespace

std::string new_run_id() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
  return fmt::format("{}-{:04x}", stamp, std::random_device()() & 0xFFFF);
}

Expected<std::unique_ptr<ResultFiles>> ResultFiles::open(const Destination& destination,
                                                         const std::string& run_id,
                                                         std::string_view file) {
  std::unique_ptr<ResultFiles> files(new ResultFiles(run_id));
  std::filesystem::path folder = destination.out;
  if (folder.empty() && destination.json.empty()) {
    folder = std::filesystem::path("skidproof-out") / run_id;
  }
  if (!folder.empty()) {
    SKIDPROOF_CHECK(make_folder(folder));
    files->folder_ = folder.string();
    files->writers_.push_back(
        SKIDPROOF_TRY(results::JsonLinesWriter::open((folder / file).string())));
  }
  if (!destination.json.empty()) {
    files->writers_.push_back(SKIDPROOF_TRY(results::JsonLinesWriter::open(destination.json)));
  }
  return files;
}

Expected<std::unique_ptr<ResultFiles>> ResultFiles::append_to(const std::string& path,
                                                              const std::string& run_id,
                                                              const results::StatusCounts& counts) {
  std::unique_ptr<ResultFiles> files(new ResultFiles(run_id));
  files->folder_ = std::filesystem::path(path).parent_path().string();
  files->counts_ = counts;
  files->writers_.push_back(SKIDPROOF_TRY(results::JsonLinesWriter::append_to(path)));
  return files;
}

Expected<void> ResultFiles::write(const results::Row& row) {
  std::lock_guard lock(mutex_);
  if (ended_) return {};
  for (const auto& writer : writers_) SKIDPROOF_CHECK(writer->write(row));
  if (const auto* test = std::get_if<results::TestRow>(&row)) ++counts_[test->status];
  return {};
}

void ResultFiles::end(int exit, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  ended_ = true;
  results::EndRow row;
  row.machine = machine_;
  row.finished = results::utc_now();
  row.counts = counts_;
  const std::string failed = failure_locked();
  row.exit = failed.empty() ? exit : kExitHarnessFailed;
  row.reason = failed.empty() ? reason : failed;
  row.duration_s = seconds();
  for (const auto& writer : writers_) {
    [[maybe_unused]] const auto best_effort = writer->write(row);
  }
}

std::string ResultFiles::failure_locked() const {
  for (const auto& writer : writers_) {
    if (!writer->failure().empty()) return writer->failure();
  }
  return {};
}

std::string ResultFiles::failure() const {
  std::lock_guard lock(mutex_);
  return failure_locked();
}

std::vector<std::string> ResultFiles::paths() const {
  std::vector<std::string> paths;
  for (const auto& writer : writers_) {
    if (writer->path() != "standard output") paths.push_back(writer->path());
  }
  return paths;
}

double ResultFiles::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

results::StatusCounts ResultFiles::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

results::RunRow run_row(const std::string& run_id, const std::vector<std::string>& command,
                        uint64_t seed, const std::string& machine) {
  results::RunRow row;
  row.id = run_id;
  row.started = results::utc_now();
  row.command = command;
  row.seed = seed;
  row.version = version();
  row.machine = machine;
  return row;
}

}  // namespace skidproof::cli
