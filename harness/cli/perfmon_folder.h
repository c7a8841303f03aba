// Event lists of Intel's that are read at run time, from a checkout of github.com/intel/perfmon.
#ifndef SKIDPROOF_HARNESS_CLI_PERFMON_FOLDER_H_
#define SKIDPROOF_HARNESS_CLI_PERFMON_FOLDER_H_

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/expected.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/perfmon/reader.h"

namespace skidproof::cli {

// A row with events of another list, and where that was.
struct RenewedRow {
  std::shared_ptr<const arch::Microarch> row;
  std::string file;
};

// A checkout, or a folder with its mapfile.csv and files of lists beside that.
class PerfmonFolder {
 public:
  // kInvalidArgument where it is no such folder, kIo where it cannot be read.
  static Expected<PerfmonFolder> open(const std::string& folder);

  // The list that has this path in a checkout, and its file; nullopt where the folder has no such file. kInvalidArgument:
  // the list has another name there, or is not as it should be.
  struct Found {
    arch::perfmon::ReadList list;
    std::string file;
  };
  Expected<std::optional<Found>> list(std::string_view path) const;

  // The row or variant with the folder's list in place of its own; nullopt where the folder has no file of it.
  // kInvalidArgument: as above, Intel publishes none, or it contradicts the row.
  Expected<std::optional<RenewedRow>> renewed_if_any(const arch::Microarch& row) const;
  // The same, where there has to be one.
  Expected<RenewedRow> renewed(const arch::Microarch& row) const;

 private:
  explicit PerfmonFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
  std::set<std::string, std::less<>> mapped_;  // paths of lists
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_PERFMON_FOLDER_H_
