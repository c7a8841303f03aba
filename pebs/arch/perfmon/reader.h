// Intel's published event lists as they are published: JSON in, lines in the form of list.h out. The rules are those of the
// importer (pebs/arch/perfmon/import), and a test reads the same files by both.
#ifndef SKIDPROOF_PEBS_ARCH_PERFMON_READER_H_
#define SKIDPROOF_PEBS_ARCH_PERFMON_READER_H_

#include <cstddef>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "pebs/arch/perfmon/list.h"

namespace skidproof::arch::perfmon {

// Beyond these lies nothing that Intel published: the longest list has 2 MB, 2,344 events and texts of 2 kB.
inline constexpr size_t kLargestFile = size_t{16} << 20;
inline constexpr size_t kMostEvents = 20'000;
inline constexpr size_t kLongestText = size_t{64} << 10;

// A list that was read. Its lines point into it.
class ReadList {
 public:
  // `file`: for messages. `path`: in a checkout of intel/perfmon, "SNB/events/sandybridge_core.json".
  // kInvalidArgument with the file and, where there is one, the event and the field of the first thing that is wrong: no
  // JSON, another form, a version or a field that is not known, missing, or out of range, something that stands twice.
  static Expected<ReadList> read(std::string_view file, std::string_view path,
                                 std::string_view json);

  ReadList(ReadList&&) = default;
  ReadList& operator=(ReadList&&) = default;

  const std::string& source() const { return source_; }  // "intel/perfmon SNB V19"
  const std::string& path() const { return path_; }
  // Precise events, and those that signals.inc names; in the order of their encodings.
  const std::vector<Published>& events() const { return events_; }

 private:
  ReadList() = default;

  std::string source_, path_;
  std::vector<Published> events_;
  std::deque<std::string> texts_;  // names and errata
};

// Paths of cores' lists in a checkout, which its mapfile.csv names. kInvalidArgument: another form, with the line.
Expected<std::set<std::string, std::less<>>> mapped_lists(std::string_view file,
                                                          std::string_view csv);

// As the importer writes it into a header.
std::string line_of(const Published& entry);

}  // namespace skidproof::arch::perfmon

#endif  // SKIDPROOF_PEBS_ARCH_PERFMON_READER_H_
