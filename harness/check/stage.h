// The stages of a bring-up, from the ground up: each stands on those before it.
#ifndef SKIDPROOF_HARNESS_CHECK_STAGE_H_
#define SKIDPROOF_HARNESS_CHECK_STAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace skidproof::check {

enum class Stage : uint8_t {
  kRead,         // registers and CPUID are read, nothing is changed
  kWrite,        // registers are written and restored, nothing counts
  kCount,        // counters run
  kOneRecord,    // PEBS writes records; what one of them holds
  kBuffer,       // many records: reload, index, maximum
  kInterrupt,    // the threshold's and the counters' interrupts
  kBranchTrace,  // branches are stored
  kEdges,        // odd buffers, small periods, other modes: where silicon was seen to hang
};
inline constexpr std::array kStages = {Stage::kRead,        Stage::kWrite,  Stage::kCount,
                                       Stage::kOneRecord,   Stage::kBuffer, Stage::kInterrupt,
                                       Stage::kBranchTrace, Stage::kEdges};

// Its word in rows: "read", "one-record" …
constexpr const char* name_of(Stage stage) {
  constexpr std::array kNames = {"read",   "write",     "count",        "one-record",
                                 "buffer", "interrupt", "branch-trace", "edges"};
  static_assert(kNames.size() == kStages.size());
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_STAGE_H_
