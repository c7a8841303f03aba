// Events as data: codes, where they count, where PEBS takes them.
#ifndef SKIDPROOF_PEBS_ARCH_EVENT_H_
#define SKIDPROOF_PEBS_ARCH_EVENT_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "pebs/arch/msr.h"
#include "pebs/arch/signal.h"

namespace skidproof::arch {

enum class EventKind : uint8_t {
  kCounting,      // counts only
  kPebs,          // PEBS-able
  kPebsOnly,      // published as requiring PEBS
  kPdir,          // precise distribution (PDIR)
  kPreciseStore,  // needs PS_EN
  kLoadLatency,   // needs LL_EN (where it exists) and MSR_PEBS_LD_LAT_THRESHOLD
  kStoreSample,   // stores with their address and latency (Golden Cove)
  kFrontend,      // what it means is in MSR_PEBS_FRONTEND
};

namespace netburst {
struct Metric;
}

struct Event {
  std::string_view name;  // the event's published name
  uint8_t code = 0;       // IA32_PERFEVTSELx[7:0]
  uint8_t umask = 0;      // IA32_PERFEVTSELx[15:8]
  uint8_t umask2 = 0;     // IA32_PERFEVTSELx[47:40], from version 6 on
  Signal signal = Signal::kNone;
  uint16_t counters = 0xFF;    // bit n: counts on IA32_PMCn
  uint16_t pebs_counters = 0;  // bit n: PEBS on IA32_PMCn
  EventKind kind = EventKind::kCounting;
  uint8_t cmask = 0;             // part of the published encoding
  bool invert = false;           // part of the published encoding
  bool taken_alone = false;      // no other PEBS event at the same time
  std::string_view source = {};  // document and table
  std::string_view reason =
      {};  // of a row's own event: why it is not, or not as it is, Intel's list's
  // Bit i: counts on IA32_FIXED_CTRi, where the encoding is not programmed, and is precise there
  // when the kind says so.
  uint8_t fixed_counters = 0;
  // DataLA: 98H holds the access's linear address. Load latency, which is more than that, is a kind.
  bool data_address = false;
  bool l1_hit_bit = false;  // DataLA of a store: A0H bit 0 says whether it hit the L1 data cache

  // NetBurst: how ESCRs and tags select it; `code` and `umask` are then the ESCR's event and mask.
  const netburst::Metric* metric = nullptr;

  constexpr uint16_t select() const { return static_cast<uint16_t>(code | (umask << 8)); }
  // The code and both umasks where an event select has them.
  constexpr uint64_t select_fields() const {
    return select() | (uint64_t{umask2} << evtsel::kUmask2Shift);
  }
  constexpr bool precise() const { return kind != EventKind::kCounting; }
};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_EVENT_H_
