#include "harness/cli/perfmon_folder.h"

#include <fmt/format.h>

#include <fstream>
#include <system_error>
#include <utility>

#include "pebs/arch/perfmon/renewed.h"

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kMapFile[] = "mapfile.csv";
constexpr char kFolderAdvice[] =
    "give a checkout of github.com/intel/perfmon, or a folder with its mapfile.csv and the list's "
    "file";

// No pipe, no device; one byte more than `largest` is enough to know that there are too many.
Expected<std::string> contents_of(const fs::path& file, size_t largest) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no file '{}'", file.string()),
                kFolderAdvice);
  }
  std::ifstream in(file, std::ios::binary);
  std::string text(largest + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.eof() && in.fail()) {
    return fail(ErrorCode::kIo, fmt::format("cannot read '{}'", file.string()),
                "name a folder that you may read");
  }
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace

Expected<PerfmonFolder> PerfmonFolder::open(const std::string& folder) {
  constexpr size_t kLargestMap = size_t{1} << 20;
  PerfmonFolder opened(folder);
  const fs::path map = opened.folder_ / kMapFile;
  const std::string text = SKIDPROOF_TRY(contents_of(map, kLargestMap));
  opened.mapped_ = SKIDPROOF_TRY(arch::perfmon::mapped_lists(map.string(), text));
  return opened;
}

Expected<std::optional<PerfmonFolder::Found>> PerfmonFolder::list(std::string_view path) const {
  if (mapped_.find(path) == mapped_.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} names no {}", (folder_ / kMapFile).string(), path),
                "the list has another name in this edition, which a newer skidproof may know");
  }
  std::error_code error;
  fs::path file = folder_ / path;
  if (!fs::exists(file, error)) file = folder_ / fs::path(path).filename();
  if (!fs::exists(file, error)) return std::nullopt;
  const std::string text = SKIDPROOF_TRY(contents_of(file, arch::perfmon::kLargestFile));
  return Found{.list = SKIDPROOF_TRY(arch::perfmon::ReadList::read(file.string(), path, text)),
               .file = file.string()};
}

Expected<std::optional<RenewedRow>> PerfmonFolder::renewed_if_any(
    const arch::Microarch& row) const {
  const arch::EventOrigin* const origin = row.events.origin();
  if (origin == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("Intel publishes no list of events of {}", row.title),
                "its events are the manual's: leave --perfmon out");
  }
  std::optional<Found> found = SKIDPROOF_TRY(list(origin->path));
  if (!found) return std::nullopt;
  auto renewed = arch::perfmon::renewed(row, std::move(found->list));
  if (!renewed) {
    return fail(renewed.error().code, fmt::format("{}: {}", found->file, renewed.error().message),
                renewed.error().advice);
  }
  return RenewedRow{.row = *renewed, .file = found->file};
}

Expected<RenewedRow> PerfmonFolder::renewed(const arch::Microarch& row) const {
  std::optional<RenewedRow> renewed = SKIDPROOF_TRY(renewed_if_any(row));
  if (!renewed) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has no {}, which is the list of {}", folder_.string(),
                            row.events.origin()->path, row.title),
                kFolderAdvice);
  }
  return *std::move(renewed);
}

}  // namespace skidproof::cli
