// NetBurst's performance monitoring: counters, their CCCRs and ESCRs, and the at-retirement events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.15 "Performance Monitoring (Processors Based on Intel
// NetBurst Microarchitecture)" with its table "Performance Counter MSRs and Associated CCCR and ESCR
// MSRs", Tables 19-33 "List of Metrics Available for Replay Tagging" and 35-41; Linux 6.12
// arch/x86/include/asm/perf_event_p4.h for the encodings of events.
#ifndef SKIDPROOF_PEBS_ARCH_NETBURST_H_
#define SKIDPROOF_PEBS_ARCH_NETBURST_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "pebs/arch/msr.h"
#include "pebs/arch/signal.h"

namespace skidproof::arch::netburst {

// --- Registers

inline constexpr uint32_t MSR_BPU_COUNTER0 = 0x300;  // the first of 18
inline constexpr uint32_t MSR_IQ_COUNTER4 = 0x310;
inline constexpr uint32_t MSR_IQ_COUNTER5 = 0x311;
inline constexpr uint32_t MSR_BPU_CCCR0 = 0x360;  // the first of 18, in the same order
inline constexpr uint32_t MSR_IQ_CCCR4 = 0x370;
inline constexpr uint32_t MSR_IQ_CCCR5 = 0x371;
inline constexpr uint32_t MSR_FSB_ESCR0 = 0x3A2;
inline constexpr uint32_t MSR_CRU_ESCR0 = 0x3B8;
inline constexpr uint32_t MSR_RAT_ESCR0 = 0x3BC;
inline constexpr uint32_t MSR_SAAT_ESCR0 = 0x3AE;
inline constexpr uint32_t MSR_CRU_ESCR2 = 0x3CC;
inline constexpr uint32_t MSR_CRU_ESCR3 = 0x3CD;
inline constexpr uint32_t MSR_CRU_ESCR4 = 0x3E0;
inline constexpr uint32_t MSR_TC_PRECISE_EVENT = 0x3F0;
inline constexpr uint32_t MSR_PEBS_MATRIX_VERT = 0x3F2;
inline constexpr uint32_t MSR_DEBUGCTLA = 0x1D9;

inline constexpr unsigned kCounters = 18;
inline constexpr unsigned kCounterWidth = 40;
// Which of the 18 counters of the SDM's numbering can do PEBS, for each logical processor (R31).
inline constexpr std::array<unsigned, 2> kPreciseCounters = {16, 17};

// The counters in the order in which sessions and event tables number them: those that can do PEBS
// come first, then their block.
inline constexpr std::array<unsigned, kCounters> kSessionCounters = {
    16, 17, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

// ESCRs: 3A0H–3BEH, 3C0H–3C5H, 3C8H–3CDH, 3E0H, 3E1H.
inline constexpr unsigned kEscrs = 45;
constexpr bool is_escr(uint32_t msr) {
  return (msr >= 0x3A0 && msr <= 0x3BE) || (msr >= 0x3C0 && msr <= 0x3C5) ||
         (msr >= 0x3C8 && msr <= 0x3CD) || msr == 0x3E0 || msr == 0x3E1;
}

// ESCR fields, for the logical processor 0 (or the only one). [18.15.1 "ESCR MSRs"]
namespace escr {
inline constexpr uint64_t kUsr = bit(2);
inline constexpr uint64_t kOs = bit(3);
inline constexpr uint64_t kTagEnable = bit(4);
inline constexpr unsigned kTagShift = 5;
inline constexpr unsigned kMaskShift = 9;
inline constexpr unsigned kSelectShift = 25;
inline constexpr uint64_t kDefined = 0x7FFFFFFF;
}  // namespace escr

// CCCR fields. [18.15.3 "CCCR MSRs"]
namespace cccr {
inline constexpr uint64_t kEnable = bit(12);
inline constexpr unsigned kEscrShift = 13;
inline constexpr uint64_t kAnyThread = bit(16) | bit(17);  // to be set without HT
inline constexpr uint64_t kCompare = bit(18);
inline constexpr uint64_t kEdge = bit(24);
inline constexpr uint64_t kForceOvf = bit(25);
inline constexpr uint64_t kOvfPmi = bit(26);
inline constexpr uint64_t kCascade = bit(30);
inline constexpr uint64_t kOvf = bit(31);
inline constexpr uint64_t kDefined = 0xCFFFF000;
}  // namespace cccr

// MSR_PEBS_ENABLE. [Table 35-41; the text of 18.15.7 calls bit 24 the enable: N8]
namespace pebs_enable {
inline constexpr uint64_t kMetrics = 0x1FFF;  // 12:0
inline constexpr uint64_t kMispredicts = bit(15) | bit(16);
inline constexpr uint64_t kUopTag = bit(24);
inline constexpr uint64_t kEnable = bit(25);       // of this logical processor with HT
inline constexpr uint64_t kEnableOther = bit(26);  // of the other one
inline constexpr uint64_t kDefined = kMetrics | kMispredicts | kUopTag | kEnable | kEnableOther;
}  // namespace pebs_enable

// The ESCR that a CCCR's select field means for a counter; 0: reserved. The counters of each block
// come in pairs, the ESCRs with an even number on the first, the others on the second.
constexpr uint32_t escr_of(unsigned counter, unsigned select) {
  constexpr uint32_t kBpu[8] = {0x3B2, 0x3B4, 0x3AA, 0x3B6, 0x3AC, 0x3C8, 0x3A2, 0x3A0};
  constexpr uint32_t kMs[8] = {0x3C0, 0x3C4, 0x3C2};
  constexpr uint32_t kFlame[8] = {0x3A6, 0x3A4, 0x3AE, 0x3B0, 0, 0x3A8};
  constexpr uint32_t kIq[8] = {0x3BA, 0x3CA, 0x3BC, 0x3BE, 0x3B8, 0x3CC, 0x3E0};
  const uint32_t first = counter < 4    ? kBpu[select & 7]
                         : counter < 8  ? kMs[select & 7]
                         : counter < 12 ? kFlame[select & 7]
                                        : kIq[select & 7];
  // 12, 13 and 16 take the first of a pair, 14, 15 and 17 the second; there is no SSU_ESCR1.
  const bool second =
      counter < 12 ? (counter & 2) != 0 : counter == 14 || counter == 15 || counter == 17;
  if (first == 0 || (second && first == 0x3BE)) return 0;
  return second ? first + 1 : first;
}

// --- Events

// How the uops of an at-retirement event are tagged. One at a time while PEBS is on. [18.15.6]
enum class Tagging : uint8_t { kNone, kFrontEnd, kExecution, kReplay };

// An event as NetBurst selects it: one ESCR, tagged by another ESCR or by the replay tables.
struct Metric {
  std::string_view name;
  Tagging tagging = Tagging::kNone;
  uint8_t block = 12;              // a counter of the block that it counts on
  uint8_t select = 0;              // CCCR.ESCR select
  uint8_t event = 0;               // ESCR event select
  uint16_t mask = 0;               // ESCR event mask
  uint8_t upstream_select = 0xFF;  // CCCR numbering of the ESCR that tags; FFH: none
  uint8_t upstream_event = 0;
  uint16_t upstream_mask = 0;
  uint32_t enable = 0;                 // MSR_PEBS_ENABLE, without bits 24 and 25
  uint32_t matrix = 0;                 // MSR_PEBS_MATRIX_VERT
  std::array<Signal, 4> signals = {};  // what it counts in the core model: their sum

  constexpr bool precise() const { return tagging != Tagging::kNone; }
};

// Tags 0, event masks of non-bogus uops. What the core model has no signal for counts nothing.
// [SDM chapter 19, at-retirement events of NetBurst; replay tags: Table 19-33]
inline constexpr uint8_t kRat = 2, kCru0 = 4, kCru2 = 5;
inline constexpr uint8_t kUopType = 0x02;
inline constexpr uint16_t kTagLoads = 2, kTagStores = 4;

constexpr Metric plain(std::string_view name, uint8_t select, uint8_t event, uint16_t mask,
                       Signal signal) {
  return {.name = name, .select = select, .event = event, .mask = mask, .signals = {signal}};
}
constexpr Metric front_end(std::string_view name, uint16_t tags, Signal signal) {
  return {.name = name,
          .tagging = Tagging::kFrontEnd,
          .select = kCru2,
          .event = 0x08,
          .mask = 1,
          .upstream_select = kRat,
          .upstream_event = kUopType,
          .upstream_mask = tags,
          .signals = {signal}};
}
constexpr Metric replay(std::string_view name, uint32_t enable, uint32_t matrix,
                        std::array<Signal, 4> signals) {
  return {.name = name,
          .tagging = Tagging::kReplay,
          .select = kCru2,
          .event = 0x09,
          .mask = 1,
          .enable = enable,
          .matrix = matrix,
          .signals = signals};
}

inline constexpr std::array kMetrics = {
    front_end("memory_loads", kTagLoads, Signal::kLoads),
    front_end("memory_stores", kTagStores, Signal::kStores),
    replay(
        "1st_level_load_miss_retired", 0x1, 0x1,
        {Signal::kLoadsFillBuffer, Signal::kLoadsL2Hit, Signal::kLoadsL3Hit, Signal::kLoadsL3Miss}),
    replay("2nd_level_load_miss_retired", 0x2, 0x1, {Signal::kLoadsL3Hit, Signal::kLoadsL3Miss}),
    replay("DTLB_load_miss_retired", 0x4, 0x1, {Signal::kStlbMissLoads}),
    replay("DTLB_store_miss_retired", 0x4, 0x2, {Signal::kStlbMissStores}),
    replay("DTLB_all_miss_retired", 0x4, 0x3, {Signal::kStlbMissLoads, Signal::kStlbMissStores}),
    replay("tagged_mispred_branch", 0x18000, 0x10, {Signal::kMispredicts}),
    replay("MOB_load_replay_retired", 0x200, 0x1, {}),
    replay("split_load_retired", 0x400, 0x1, {Signal::kSplitLoads}),
    replay("split_store_retired", 0x400, 0x2, {Signal::kSplitStores}),
    Metric{.name = "execution_event",
           .tagging = Tagging::kExecution,
           .select = kCru2,
           .event = 0x0C,
           .mask = 1},
    plain("instr_retired", kCru0, 0x02, 1, Signal::kInstructions),
    plain("uops_retired", kCru0, 0x01, 1, Signal::kUops),
    plain("mispred_branch_retired", kCru0, 0x03, 1, Signal::kMispredicts),
    plain("branch_retired", kCru2, 0x06, 0xF, Signal::kBranches),
    Metric{.name = "global_power_events",
           .block = 0,
           .select = 6,
           .event = 0x13,
           .mask = 1,
           .signals = {Signal::kCycles}},
};

}  // namespace skidproof::arch::netburst

#endif  // SKIDPROOF_PEBS_ARCH_NETBURST_H_
