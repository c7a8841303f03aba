// Layouts of the DS buffer management area and of the records in its branch trace store (BTS).
//
// Source: SDM Figure 17-5 "DS Save Area" (32-bit), Figure 17-8 "DS Save Area for 64-bit", 18.8.1.1
// "Processor Event Based Sampling (PEBS)", Figure 18-22 (64-bit, four resets); Linux 6.12
// arch/x86/events/intel/ds.c for the longer arrays; SDM 17.4.9 "BTS and DS Save
// Area", Figures 17-6 and 17-9 (branch records).
#ifndef SKIDPROOF_PEBS_ARCH_DS_AREA_H_
#define SKIDPROOF_PEBS_ARCH_DS_AREA_H_

#include <cstddef>
#include <cstdint>

#include "pebs/arch/msr.h"

namespace skidproof::arch {

// Byte offsets of the fields from IA32_DS_AREA.
struct DsLayout {
  uint32_t field_bytes = 8;  // 4 outside IA-32e mode without DTES64
  uint32_t bts_base = 0x00;
  uint32_t bts_index = 0x08;
  uint32_t bts_maximum = 0x10;
  uint32_t bts_threshold = 0x18;
  uint32_t pebs_base = 0x20;
  uint32_t pebs_index = 0x28;
  uint32_t pebs_maximum = 0x30;
  uint32_t pebs_threshold = 0x38;
  uint32_t reset = 0x40;  // of counter 0; counter n at reset + n * reset_stride
  uint32_t reset_stride = 8;
  uint32_t resets = 4;        // how many slots are documented
  uint32_t fixed_reset = 0;   // of fixed counter 0, with the same stride
  uint32_t fixed_resets = 0;  // slots of fixed counters; 0: none
  uint32_t bytes = 0x68;      // 60H documented and one reserved quadword

  // Where the reset value of a counter stands: IA32_PMCn and fixed counter i.
  constexpr uint32_t gp_reset(unsigned n) const { return reset + n * reset_stride; }
  constexpr uint32_t fixed_counter_reset(unsigned i) const {
    return fixed_reset + i * reset_stride;
  }
};

// NetBurst outside IA-32e mode: doublewords, and one 40-bit reset value. [Figure 17-5]
inline constexpr DsLayout kDsLegacy{.field_bytes = 4,
                                    .bts_base = 0x00,
                                    .bts_index = 0x04,
                                    .bts_maximum = 0x08,
                                    .bts_threshold = 0x0C,
                                    .pebs_base = 0x10,
                                    .pebs_index = 0x14,
                                    .pebs_maximum = 0x18,
                                    .pebs_threshold = 0x1C,
                                    .reset = 0x20,
                                    .resets = 1,
                                    .bytes = 0x30};
// Core 2, and NetBurst in IA-32e mode. [Figure 17-8]
inline constexpr DsLayout kDsOneReset{.resets = 1, .bytes = 0x50};
// Nehalem to Skylake. [Figure 18-22; Table 18-31 "Unchanged"; 18.11.4 and 18.13.1 refer back to it]
inline constexpr DsLayout kDsFourResets{};
// Format 4, Ice Lake and Golden Cove: eight, and the fixed counters' behind them. [Linux 6.12
// MAX_PEBS_EVENTS_FMT4; SDM Vol. 3 (325384-089) 21.6.2.4.2]
inline constexpr DsLayout kDsEightResets{
    .resets = 8, .fixed_reset = 0x80, .fixed_resets = 16, .bytes = 0x100};
// Format 5, Redwood Cove on. [Linux 6.12 MAX_PEBS_EVENTS, MAX_FIXED_PEBS_EVENTS; SDM 089
// 21.6.2.4.2]
inline constexpr DsLayout kDsThirtyTwoResets{
    .resets = 32, .fixed_reset = 0x140, .fixed_resets = 16, .bytes = 0x1C0};

// The layout that goes with an adaptive format; where its fixed counters' reset values stand.
constexpr const DsLayout& ds_of_adaptive_format(unsigned format) {
  return format == 4 ? kDsEightResets : kDsThirtyTwoResets;
}

// A branch record: where the branch stood, where it went, and whether that was predicted.
struct BranchRecordLayout {
  uint32_t bytes = 24;
  uint32_t field_bytes = 8;
  uint32_t from = 0x00;
  uint32_t to = 0x08;
  uint32_t flags = 0x10;
};
// In IA-32e mode, and in every mode where CPUID.01H:ECX[2] (DTES64) is set. [Figure 17-9]
inline constexpr BranchRecordLayout kBranchRecord64{};
// Elsewhere. [Figure 17-6]
inline constexpr BranchRecordLayout kBranchRecord32{
    .bytes = 12, .field_bytes = 4, .from = 0x00, .to = 0x04, .flags = 0x08};
// In the flags field: the taken branch was predicted.
inline constexpr uint64_t kBranchPredicted = bit(4);

// The branch trace store of a microarch: its records in IA-32e mode, and its bits in the debug control
// register, 1D9H. [SDM 17.4.1 "IA32_DEBUGCTL MSR"]
struct BranchTrace {
  const BranchRecordLayout* record = &kBranchRecord64;
  uint64_t messages = bit(6);   // TR: branch trace messages
  uint64_t store = bit(7);      // BTS: into the buffer
  uint64_t interrupt = bit(8);  // BTINT: at the threshold; clear, the buffer is circular
  uint64_t off_os = bit(9);     // BTS_OFF_OS
  uint64_t off_usr = bit(10);   // BTS_OFF_USR
  bool cpl_qualified = true;    // CPUID.01H:ECX[4] (DS-CPL): the last two exist
  // Whether records carry kBranchPredicted. Intel Core and Atom microarchitectures do not. [SDM
  // 17.4.9.1 "DS Save Area and IA-32e Mode Operation"]
  bool predicted = true;

  constexpr uint64_t filters() const { return off_os | off_usr; }
  constexpr uint64_t all() const { return messages | store | interrupt | filters(); }
};
// NetBurst's register is MSR_DEBUGCTLA, with the same bits at other places. [SDM 17.11.1
// "MSR_DEBUGCTLA MSR", Figure 17-12; Linux 2.6.32 ds.c ds_cfg_netburst]
inline constexpr BranchTrace kBranchTraceNetBurst{
    .messages = bit(2), .store = bit(3), .interrupt = bit(4), .off_os = bit(5), .off_usr = bit(6)};

// What a session allocates whatever the layout: room for every known reset array (spec: 40H + 48
// slots).
inline constexpr size_t kDsAllocation = 0x1C0;

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_DS_AREA_H_
