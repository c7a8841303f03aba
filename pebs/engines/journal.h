// The journal of a lab's processor: what others than the program executed while the processor watched, the driver and
// its interrupt handler, and what was written to the PMU. With it the same can be played in process.
#ifndef SKIDPROOF_PEBS_ENGINES_JOURNAL_H_
#define SKIDPROOF_PEBS_ENGINES_JOURNAL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "pebs/engines/observer.h"
#include "pebs/model/retired.h"

namespace skidproof::lab {

// Where the driver has programs, at ring 0 and ring 3; processes have nothing there.
constexpr bool is_program(uint64_t ip) {
  constexpr uint64_t kBegin = uint64_t{1} << 46, kSpan = uint64_t{1} << 44;
  return ip >= kBegin && ip - kBegin < kSpan;
}

struct JournalEntry {
  enum class Kind : uint8_t {
    kBegin,        // the models began again: `value` is the seed
    kWrite,        // `value` was written to `msr`
    kWatching,     // from here on instructions matter; `value` is the TSC
    kLvt,          // the processor saw `value` in the local APIC's entry for performance counters
    kInstruction,  // one retired
  };
  Kind kind = Kind::kBegin;
  uint32_t msr = 0;
  uint64_t value = 0;
  engines::Executed executed;  // but for its accesses, which stand below
  std::vector<engines::SeenAccess> accesses;
  model::Registers after;
};

// Code by the page, as it stood when it was executed first.
using CodePages = std::map<uint64_t, std::array<std::byte, 4096>>;

// What happened from one beginning to the next.
struct Journal {
  uint64_t seed = 0;
  std::vector<JournalEntry> entries;
  std::shared_ptr<const CodePages> code;
};

class JournalWriter {
 public:
  // Error: kIo.
  static Expected<std::unique_ptr<JournalWriter>> create(const std::string& path);

  void begin(uint64_t seed);
  void wrote(uint32_t msr, uint64_t value);
  void watching(uint64_t tsc);
  void lvt(uint64_t entry);
  // Not of the program.
  void executed(const engines::Executed& executed, const model::Registers& after,
                engines::CodeMemory& memory);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit JournalWriter(std::FILE* file) : file_(file) {}
  void put(const void* bytes, size_t count) { std::fwrite(bytes, 1, count, file_.get()); }
  void put(uint64_t value) { put(&value, sizeof value); }
  void put_page(uint64_t address, engines::CodeMemory& memory);

  std::unique_ptr<std::FILE, Closer> file_;
  std::set<uint64_t> pages_;
};

// A whole journal. Errors: kIo; kInvalidArgument for a file that is none, or ends in the middle.
Expected<std::vector<Journal>> read_journals(const std::string& path);

}  // namespace skidproof::lab

#endif  // SKIDPROOF_PEBS_ENGINES_JOURNAL_H_
