// A line of Intel's published event lists, as it is read or was imported.
#ifndef SKIDPROOF_PEBS_ARCH_PERFMON_LIST_H_
#define SKIDPROOF_PEBS_ARCH_PERFMON_LIST_H_

#include <cstdint>
#include <string_view>

namespace skidproof::arch::perfmon {

enum Precision : uint8_t {
  kNotPrecise,
  kPrecise,      // PEBS takes it
  kPreciseOnly,  // published as requiring PEBS
};

// Of Published::flags.
enum Flag : uint16_t {
  kInvert = 1,
  kEdge = 2,
  kEqual = 4,
  kAlone = 8,          // no other PEBS event beside it
  kDataAddress = 16,   // the record has the access's linear address
  kL1Hit = 32,         // … and whether a store hit the L1 data cache
  kPreciseStore = 64,  // needs PS_EN
};

// A line of a list. Counters are masks: bit n is IA32_PMCn, bit 32 + n is IA32_FIXED_CTRn. [github.com/intel/perfmon,
// README.md "Event Format"]
struct Published {
  std::string_view name;
  uint8_t code = 0;
  uint8_t umask = 0;
  uint8_t umask2 = 0;
  uint8_t cmask = 0;
  uint16_t flags = 0;
  uint64_t counters = 0;
  uint64_t pebs_counters = 0;   // 0: the list does not say
  uint64_t pdist_counters = 0;  // where the distribution is precise
  Precision precision = kNotPrecise;
  uint32_t msr = 0;  // that the event needs beside its select
  uint64_t msr_value = 0;
  std::string_view errata;  // ids with spaces between

  constexpr bool is(uint16_t flag) const { return (flags & flag) != 0; }
};

}  // namespace skidproof::arch::perfmon

#endif  // SKIDPROOF_PEBS_ARCH_PERFMON_LIST_H_
