// Helpers for the events that a row writes itself, and for rows that differ from another in part.
#ifndef SKIDPROOF_PEBS_ARCH_EVENT_TABLE_H_
#define SKIDPROOF_PEBS_ARCH_EVENT_TABLE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/microarch.h"

namespace skidproof::arch::internal {

inline constexpr uint16_t kPmc0To3 = 0x0F;
inline constexpr uint16_t kPmc0To7 = 0xFF;
inline constexpr uint16_t kPmc0 = 0x01;

// What the rows of one list have in common: where they count, where PEBS takes them, who says so.
struct List {
  uint16_t counters = kPmc0To3;
  uint16_t pebs_counters = 0;
  std::string_view source;
  std::string_view reason = {};  // beside a list of Intel's: why they are not of it

  constexpr Event counting(std::string_view name, uint8_t code, uint8_t umask,
                           Signal signal) const {
    return {.name = name,
            .code = code,
            .umask = umask,
            .signal = signal,
            .counters = counters,
            .source = source,
            .reason = reason};
  }
  constexpr Event pebs(std::string_view name, uint8_t code, uint8_t umask, Signal signal,
                       EventKind kind = EventKind::kPebs) const {
    return {.name = name,
            .code = code,
            .umask = umask,
            .signal = signal,
            .counters = counters,
            .pebs_counters = pebs_counters,
            .kind = kind,
            .source = source,
            .reason = reason};
  }
};

constexpr Event alone(Event event) {
  event.taken_alone = true;
  return event;
}

// DataLA: the record has the access's linear address, of a store also whether it hit the L1.
constexpr Event data_store(Event event) {
  event.data_address = event.l1_hit_bit = true;
  return event;
}

// Parts of a row whose event list is another.
constexpr Microarch part_of(Microarch row, std::string_view title, std::span<const CpuModel> models,
                            EventSet events) {
  row.title = title;
  row.models = models;
  row.events = events;
  row.variants = {};
  return row;
}

constexpr Microarch with_variants(Microarch row, std::span<const Microarch* const> variants) {
  row.variants = variants;
  return row;
}

// A row with adaptive records as the core after it has architectural PEBS: on the counters that had PEBS, PDist where it was,
// and these groups in a record (CPUID.23H.04H:EBX). A part's own CPUID decides.
constexpr Microarch with_architectural_pebs(Microarch row, uint32_t groups) {
  row.extended.pebs = true;
  row.extended.pebs_groups = groups;
  row.extended.pebs_gp = row.pebs_counters;
  row.extended.pdist_gp = row.pdist_counters;
  row.extended.pebs_fixed = row.pebs_fixed_counters;
  row.extended.pdist_fixed = row.pdir_fixed_counter;
  row.perfevtsel_defined &= ~evtsel::kAdaptive;
  row.pebs_baseline = false;
  row.pebs_counters_group = false;
  row.full_buffer_sets_ovf = false;
  row.record = &kArchitecturalRecord;
  return row;
}

// Every combination with a CMASK and without AnyThread, for `disputed_qualifiers`.
inline constexpr uint16_t kDisputedWithCmask =
    (1u << qualifiers(false, false, false, true)) | (1u << qualifiers(false, false, true, true)) |
    (1u << qualifiers(false, true, false, true)) | (1u << qualifiers(false, true, true, true));

// Every combination of qualifiers.
inline constexpr uint16_t kEveryQualifier = 0xFFFE;

}  // namespace skidproof::arch::internal

#endif  // SKIDPROOF_PEBS_ARCH_EVENT_TABLE_H_
