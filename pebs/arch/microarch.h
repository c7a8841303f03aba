// A microarch: one row of facts. Behaviour that differs between generations differs here.
#ifndef SKIDPROOF_PEBS_ARCH_MICROARCH_H_
#define SKIDPROOF_PEBS_ARCH_MICROARCH_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "base/expected.h"
#include "base/mode.h"
#include "pebs/arch/data_source.h"
#include "pebs/arch/ds_area.h"
#include "pebs/arch/event.h"
#include "pebs/arch/event_set.h"
#include "pebs/arch/extended_perfmon.h"
#include "pebs/arch/fusion.h"
#include "pebs/arch/last_branches.h"
#include "pebs/arch/record_layout.h"

namespace skidproof::arch {

// One family/model/stepping range, with the oldest microcode whose PEBS is to be trusted.
struct CpuModel {
  uint8_t family = 6;
  uint8_t model = 0;
  int8_t stepping = -1;            // -1: any
  uint32_t minimum_microcode = 0;  // 0: any
};

// What kind of core a logical processor is. [SDM vol. 2A, CPUID leaf 1AH, EAX[31:24]]
enum class CoreType : uint8_t {
  kUnstated = 0,  // CPUID enumerates no type: the part is not hybrid
  kAtom = 0x20,   // E-core
  kCore = 0x40,   // P-core
};

// A combination of the qualifier fields as a number from 0 to 15 (R33).
inline constexpr unsigned kQualifierAnyThread = 1;
inline constexpr unsigned kQualifierEdge = 2;
inline constexpr unsigned kQualifierInvert = 4;
inline constexpr unsigned kQualifierCmask = 8;
constexpr unsigned qualifiers(bool any_thread, bool edge, bool invert, bool cmask) {
  return (any_thread ? kQualifierAnyThread : 0) | (edge ? kQualifierEdge : 0) |
         (invert ? kQualifierInvert : 0) | (cmask ? kQualifierCmask : 0);
}
// What the sources promise for a combination.
enum class Expectation : uint8_t {
  kMustHold,  // the clause is asserted: a contradiction fails
  kClassify,  // the sources disagree: the outcome is reported, never failed
};

// Sizes and costs of the cache hierarchy that the model plays. They are the model's, chosen after
// the part's published geometry; no suite asserts them on silicon.
struct CacheGeometry {
  uint32_t line_bytes = 64;
  uint32_t l1_bytes = 32 << 10, l1_ways = 8, l1_latency = 4;
  uint32_t l2_bytes = 256 << 10, l2_ways = 8, l2_latency = 12;
  uint32_t l3_bytes = 8 << 20, l3_ways = 16, l3_latency = 30;
  uint32_t memory_latency = 200;
  uint32_t dtlb_entries = 64, dtlb_ways = 4;
  uint32_t stlb_entries = 512, stlb_ways = 4, stlb_latency = 7;
  uint32_t walk_latency = 30;
  uint32_t retire_width = 4;         // fused-domain uops each cycle
  uint32_t mispredict_penalty = 16;  // cycles
  uint32_t slots = 4;                // of TOPDOWN.SLOTS, each cycle: the width of allocation
  uint32_t bus_ratio = 1;            // reference cycles for each count of 3CH/01H
};

// The least that a level of the caches takes to answer a load on which the next one waits, as a document gives it.
struct FastestLatency {
  uint8_t level = 1;
  uint8_t cycles = 0;       // of the core
  std::string_view source;  // document and table title
};

// When the first part of a row was introduced: rows are listed in this order.
struct Introduced {
  uint16_t year = 0;
  uint8_t month = 0;             // 0: the source gives the year alone
  std::string_view source = {};  // document and section title
};

struct Microarch {
  std::string_view name;   // "sandy-bridge": what the command line takes
  std::string_view title;  // "Sandy Bridge"
  std::span<const CpuModel> models;
  std::string_view microcode_source = {};  // who gives their minimum microcode
  Introduced introduced = {};
  // Parts of this row whose published event lists are others: each is the row itself but for
  // `title`, `models` (some of this row's) and `events`.
  std::span<const Microarch* const> variants = {};
  bool hybrid = false;              // some parts have cores of another type beside it
  CoreType core = CoreType::kCore;  // of the cores that it describes, where CPUID says so
  bool hyper_threading = true;      // a second thread may share the core

  // Enumeration.
  uint8_t perfmon_version = 3;
  uint8_t gp_counters = 4;        // CPUID.0AH:EAX[15:8] with a sibling thread
  uint8_t gp_counters_alone = 4;  // without one (counter coalescence, R37)
  uint8_t gp_width = 48;
  uint8_t fixed_counters = 3;
  uint8_t fixed_width = 48;
  uint8_t architectural_events = 7;  // CPUID.0AH:EAX[31:24]
  ExtendedPerfmon extended = {};     // CPUID leaf 23H: what this core has besides
  bool full_width_writes = false;    // IA32_A_PMCx (R38)
  uint8_t lbr_format = 3;            // IA32_PERF_CAPABILITIES[5:0]
  LastBranches last_branches = kLastBranches16;
  bool smm_freeze = true;  // IA32_PERF_CAPABILITIES[12]: FREEZE_WHILE_SMM_EN exists
  uint64_t perfevtsel_defined = 0xFFFFFFFF;  // the bits of IA32_PERFEVTSELx that are not reserved
  bool any_thread = true;  // AnyThread exists: from version 3 until CPUID.0AH:EDX[15] deprecates it
  // What follows differs from part to part and with microcode: CPUID decides (pebs/capabilities.h).
  bool tsx = false;               // transactions: IN_TX, IN_TXCP, DEBUGCTL[15]
  bool processor_trace = false;   // GLOBAL_STATUS[55]
  bool sgx = false;               // GLOBAL_STATUS[60], from version 4
  bool la57 = false;              // linear addresses of 57 bits: CPUID.07H:ECX[16]
  bool perf_metrics = false;      // MSR_PERF_METRICS, GLOBAL_CTRL[48], GLOBAL_STATUS[48]
  bool metrics_clear = false;     // RDPMC may clear the metrics: IA32_PERF_CAPABILITIES[19]
  uint64_t frontend_defined = 0;  // the bits of MSR_PEBS_FRONTEND; 0: no such register

  // PEBS.
  uint16_t pebs_counters = 0x0F;    // PMCn that can do PEBS (R36)
  uint8_t pebs_fixed_counters = 0;  // fixed counters that can do PEBS: IA32_PEBS_ENABLE[32 + i]
  bool pebs_any_event = false;      // events that are not precise are sampled too (R61)
  bool pebs_baseline = false;       // IA32_PERF_CAPABILITIES[14]: MSR_PEBS_DATA_CFG and Adaptive
  bool pebs_timing_info = false;    // IA32_PERF_CAPABILITIES[17]: retire latency (R63)
  bool pebs_counters_group =
      false;                    // MSR_PEBS_DATA_CFG[5:4]: counters and metrics in the record (V8)
  bool pebs_output_pt = false;  // IA32_PERF_CAPABILITIES[16]: records may go to Intel PT instead
  const RecordLayout* record = &kRecordFormat1;
  DsLayout ds = kDsFourResets;
  uint32_t pebs_buffer_limit_bytes = 0;  // a longer PEBS buffer is not safe; 0: there is no limit
  BranchTrace branch_trace = {};
  bool dtes64 = true;  // CPUID.1:ECX[2]: record and DS area are the same in every mode
  uint16_t load_latency_enable = 0x0F;    // LL_EN_PMCn bits that exist; 0: the event suffices
  uint16_t load_latency_counters = 0x08;  // where the event is published
  uint16_t load_latency_event = 0x100B;   // code | umask << 8; 0: no such facility
  // code | umask << 8 of the event that must count on another counter while load latency samples,
  // and where it counts; 0: none is needed.
  uint16_t load_latency_auxiliary = 0;
  uint16_t load_latency_auxiliary_counters = 0;
  uint16_t precise_store_counter = 0;      // mask; 0: no such facility
  uint16_t store_sample_counter = 0;       // mask; 0: no such facility
  uint16_t pdir_counter = 0;               // mask of PMCn; 0: not on one of them
  uint8_t pdir_fixed_counter = 0;          // mask of fixed counters
  bool pdir_records_next = false;          // PDIR++: event N + 1 there, without a shadow (R62)
  uint16_t pdist_counters = 0;             // PMCn on which every precise event is distributed (R62)
  uint16_t reduced_skid_counters = 0;      // PMCn that record event N + 1, without a shadow (R43)
  uint8_t undistributed_event = 0;         // code of events that neither takes; 0: none
  uint8_t fused_pair_skid = 1;             // published skid over a micro+macro-fused pair (R12)
  bool data_source_tlb_lock_bits = false;  // bits 4, 5 of the data source (SNB+, Table 18-33)
  AccessInfo access = kAccessInfo;         // where that word says what
  uint32_t reserved_sources = 1u << 9;     // encodings of the data source that no access has
  uint8_t memory_source = 0xC;             // of local memory, as the model says it
  bool unknown_sources = false;            // 0 says that the source is not known (E8)
  bool reserved_access_fields = false;     // fixed records: A0H and A8H say nothing (E4)
  bool data_address_of_any_event = false;  // 98H has an access although the event is none (E4)
  bool out_of_bounds_signalled = false;    // an index outside the buffer sets OvfBuffer (D14)
  bool full_buffer_sets_ovf = false;       // R45: seed 004 (SNB) against seed 000 (NHM)
  bool threshold_by_equality = false;      // D6a: an index past the threshold may not interrupt
  uint16_t minimum_period = 1;             // R41
  uint16_t pdir_minimum_period = 1;        // of the events and counters of PDIR (R41)
  uint16_t pdir_period_multiple = 1;       // Broadwell: the low six bits are taken as 0
  uint16_t pdist_minimum_period = 1;       // of every event on pdist_counters (R41)
  // Combinations of AnyThread, Edge, Invert and CMask for which public practice contradicts R33:
  // bit c is set for combination c = qualifiers(...). There the outcome is classified; elsewhere
  // R33 is asserted.
  uint16_t disputed_qualifiers = 0;

  EventSet events;  // counting and precise, published encodings
  FusionRules fusion;
  bool fusion_published =
      true;  // else no source says which pairs fuse, and `fusion` is the model's
  IndexedFusion indexed_fusion = IndexedFusion::kUnstated;
  CacheGeometry caches;
  // Of the first and second level, which run on the core's clock; a level without a figure has no promise. (T8)
  std::span<const FastestLatency> latencies = {};

  // CPUID leaf 0AH, IA32_PERFEVTSELx and the global registers exist. NetBurst has ESCRs and CCCRs
  // instead (pebs/arch/netburst.h).
  constexpr bool architectural_perfmon() const { return perfmon_version > 0; }

  // The record and the DS area that code of this mode has. [SDM 17.4.9.1 "64 Bit Format of the DS
  // Save Area"]
  constexpr const RecordLayout& record_in(Mode mode) const {
    return mode == Mode::kLong || dtes64 ? *record : kRecordFormat0Legacy;
  }
  constexpr const DsLayout& ds_in(Mode mode) const {
    return mode == Mode::kLong || dtes64 ? ds : kDsLegacy;
  }
  constexpr const BranchRecordLayout& branch_record_in(Mode mode) const {
    return mode == Mode::kLong || dtes64 ? *branch_trace.record : kBranchRecord32;
  }

  // CTR_FRZ and LBR_FRZ, and IA32_PERF_GLOBAL_STATUS_SET and _INUSE (architectural version 4).
  constexpr bool streamlined_freeze() const { return perfmon_version >= 4; }

  // Last branches in registers of their own (CPUID.1CH) instead of IA32_DEBUGCTL[0]. [Linux 6.12
  // asm/perf_event.h LBR_FORMAT_…: 3FH]
  constexpr bool architectural_lbr() const { return lbr_format == 0x3F; }

  Expectation expectation(unsigned combination) const {
    return (disputed_qualifiers >> combination) & 1 ? Expectation::kClassify
                                                    : Expectation::kMustHold;
  }
  // CPUID.0AH:EDX[15]. From version 5 on the bits are then reserved; on Goldmont Plus they have no effect.
  constexpr bool deprecates_any_thread() const { return perfmon_version >= 4 && !any_thread; }
  // Records go where IA32_PEBS_BASE says, by IA32_PMC_GPn_CFG_C, and not into the DS area by IA32_PEBS_ENABLE.
  constexpr bool architectural_pebs() const { return record->architectural; }
  // The buffer's base, index, maximum and threshold and the reset values are fields of the DS area, of whatever values.
  constexpr bool pebs_in_ds_area() const { return !architectural_pebs(); }
  // Software chooses what a record holds.
  constexpr bool selects_groups() const { return pebs_baseline || architectural_pebs(); }
  // … and counters among it.
  constexpr bool records_counters() const {
    return pebs_counters_group || (architectural_pebs() && extended.records_counters());
  }
  constexpr bool reserves_any_thread() const { return perfmon_version >= 5 && !any_thread; }

  // Whether PDist, or reduced skid, takes an event where the counter has it and no qualifier is set.
  constexpr bool distributes(const Event& event) const {
    return undistributed_event == 0 || event.code != undistributed_event;
  }

  // PMCn that an overflow arms for the next event: without PDist, and without reduced skid where there are such.
  constexpr unsigned arming_counters() const {
    const unsigned arming = pebs_counters & ~unsigned{pdist_counters};
    const unsigned slow = arming & ~unsigned{reduced_skid_counters};
    return slow != 0 ? slow : arming;
  }

  // What is published of a level, or nullptr.
  constexpr const FastestLatency* fastest_latency(unsigned level) const {
    for (const FastestLatency& one : latencies) {
      if (one.level == level) return &one;
    }
    return nullptr;
  }
  // By published name, or nullptr. Where several encodings have the name: the plain one (no CMASK,
  // no INV) before its variants, a precise one before a counting one, then the table's order.
  const Event* event(std::string_view event_name) const;
  // The plain encoding (no CMASK, no INV) of a code and umasks that an event select takes, or nullptr.
  const Event* event(uint8_t code, uint8_t umask, uint8_t umask2 = 0) const;
  // The event published for a fixed counter, precise ones first, or nullptr.
  const Event* event_on_fixed(unsigned counter) const;
};

// Defines a row, at the beginning of a line of a source in pebs/arch: SKIDPROOF_MICROARCH(kSandyBridge) = …;
// The build finds these lines, and writes the table of all rows (cmake/Microarchs.cmake).
#define SKIDPROOF_MICROARCH(row) \
  extern const Microarch row;    \
  constexpr Microarch row

// The rows that SKIDPROOF_MICROARCH defines, in no order.
std::span<const Microarch* const> defined_microarchs();
// All rows in order of age: by their introduction, and where that is the same the P-core before the E-core, then by name.
std::span<const Microarch* const> microarchs();
// By command-line name; an unknown one is an error that lists the names.
Expected<const Microarch*> find_microarch(std::string_view name);
// By CPUID.1 signature and the type of the core: a row, or the variant of it that is nearest to the
// part. nullptr when no row covers it.
const Microarch* identify(uint8_t family, uint8_t model, uint8_t stepping = 0,
                          CoreType core = CoreType::kUnstated);
// Whether some row covers this family and model, whatever the type of its cores.
bool covers_other_cores(uint8_t family, uint8_t model);
// The oldest microcode revision whose PEBS is to be trusted on this part; 0 when any is.
uint32_t minimum_microcode(const Microarch& microarch, uint8_t family, uint8_t model,
                           uint8_t stepping);

// The least period that the sources give for an event on IA32_PMCn, and for what a fixed counter
// samples (R41).
uint64_t minimum_period(const Microarch& microarch, unsigned counter, const Event& event);
uint64_t minimum_fixed_period(const Microarch& microarch, unsigned counter);
// The period nearest to a wish, not below it, that an event on IA32_PMCn sustains: not under its
// least one, and of the multiple that PDIR's errata ask for (BDM55).
uint64_t sustained_period(const Microarch& microarch, unsigned counter, const Event& event,
                          uint64_t wish);

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_MICROARCH_H_
