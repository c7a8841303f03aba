// Events as data: codes, where they count, where PEBS takes them.
#ifndef SKIDPROOF_PEBS_ARCH_EVENT_H_
#define SKIDPROOF_PEBS_ARCH_EVENT_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "pebs/arch/signal.h"

namespace skidproof::arch {

enum class EventKind : uint8_t {
  kCounting,      // counts only
  kPebs,          // PEBS-able
  kPebsOnly,      // published as requiring PEBS
  kPdir,          // precise distribution (PDIR)
  kPreciseStore,  // needs PS_EN
  kLoadLatency,   // needs LL_EN and MSR_PEBS_LD_LAT_THRESHOLD
};

struct Event {
  std::string_view name;  // the event's published name
  uint8_t code = 0;       // IA32_PERFEVTSELx[7:0]
  uint8_t umask = 0;      // IA32_PERFEVTSELx[15:8]
  Signal signal = Signal::kNone;
  uint16_t counters = 0xFF;    // bit n: counts on IA32_PMCn
  uint16_t pebs_counters = 0;  // bit n: PEBS on IA32_PMCn
  EventKind kind = EventKind::kCounting;
  uint8_t cmask = 0;             // part of the published encoding
  bool invert = false;           // part of the published encoding
  bool taken_alone = false;      // no other PEBS event at the same time
  std::string_view source = {};  // document and table

  constexpr uint16_t select() const { return static_cast<uint16_t>(code | (umask << 8)); }
  constexpr bool precise() const { return kind != EventKind::kCounting; }
};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_EVENT_H_
