// Records of architectural PEBS: a header of their own, groups by counter, and fragments.
//
// Source: Linux, arch/x86/include/asm/perf_event.h (struct arch_pebs_…) and arch/x86/events/intel/ds.c
// (setup_arch_pebs_sample_data, intel_pmu_drain_arch_pebs), as posted in "arch-PEBS enabling for Intel platforms" v9. Intel's
// own text stands in "Intel Architecture Instruction Set Extensions and Future Features", chapter "Architectural PEBS".
#ifndef SKIDPROOF_PEBS_ARCH_ARCHITECTURAL_RECORD_H_
#define SKIDPROOF_PEBS_ARCH_ARCHITECTURAL_RECORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "pebs/arch/msr.h"
#include "pebs/arch/record_layout.h"

namespace skidproof::arch {

// IA32_PERF_CAPABILITIES[11:8] where PEBS is architectural.
inline constexpr unsigned kArchitecturalFormat = 0xF;

// The first word of a header has the groups in IA32_PMC_GPn_CFG_C's positions, and the size. The second is reserved.
namespace architectural {

inline constexpr uint64_t kSize = 0xFFFF;  // 15:0: bytes of the fragment, its header among them
inline constexpr uint64_t kMode64 = bit(30);
inline constexpr uint64_t kContinued = bit(31);  // the next fragment belongs to the same record
inline constexpr uint64_t kCounters = uint64_t{0x1F} << 35;
inline constexpr uint64_t kBasic = bit(63);
inline constexpr uint64_t kGroups =
    kCounters | cfg_c::kBranches | cfg_c::kXer | cfg_c::kGprs | cfg_c::kAux | kBasic;

inline constexpr uint16_t kHeaderBytes = 0x10;
inline constexpr uint16_t kBasicBytes = 0x30;
inline constexpr uint16_t kAuxBytes = 0x40;
inline constexpr uint16_t kGprBytes = 0xA0;
inline constexpr uint16_t kXerHeaderBytes = 0x10;
inline constexpr uint16_t kXmmBytes = 0x100, kYmmHighBytes = 0x100, kOpmaskBytes = 0x40,
                          kZmmHighBytes = 0x200, kHighZmmBytes = 0x400;
inline constexpr uint16_t kBranchHeaderBytes = 0x30;
inline constexpr uint16_t kBranchDepth = 0x10;  // in the header of the branches
inline constexpr uint16_t kBranchEntryBytes = adaptive::kBranchEntryBytes;
inline constexpr unsigned kBranchesAsDepth = 3;  // the code that leaves the number to the depth
inline constexpr uint64_t kRetireValid = bit(16);

// The groups in the order in which they follow the header.
enum Group : uint8_t { kBasicGroup, kAuxGroup, kGprGroup, kXerGroup, kBranchGroup, kCounterGroup };
inline constexpr size_t kGroupCount = 6;

constexpr size_t size_field(uint64_t header) { return header & kSize; }
// A fragment follows: it says so, or it is a null record.
constexpr bool continued(uint64_t header) {
  return (header & kContinued) != 0 || (header >> 16) == 0;
}
constexpr bool has_counters(uint64_t header) { return (header & kCounters) != 0; }
constexpr unsigned branch_code(uint64_t word) {
  return static_cast<unsigned>((word & cfg_c::kBranches) >> cfg_c::kBranchesShift);
}
// Entries of a header or configuration; `depth` of those whose code leaves it to that.
constexpr unsigned branch_entries(uint64_t word, unsigned depth) {
  const unsigned code = branch_code(word);
  return code == kBranchesAsDepth ? depth : 8 * code;
}
// The code for so many entries; 0 where none is exactly that.
constexpr uint64_t branch_field(unsigned entries, unsigned depth) {
  const uint64_t code = entries == 8       ? 1
                        : entries == 16    ? 2
                        : entries == depth ? kBranchesAsDepth
                                           : 0;
  return code << cfg_c::kBranchesShift;
}
constexpr size_t xer_bytes(uint64_t word) {
  if ((word & cfg_c::kXer) == 0) return 0;
  return kXerHeaderBytes + (word & cfg_c::kXmm ? kXmmBytes : 0) +
         (word & cfg_c::kYmmHigh ? kYmmHighBytes : 0) + (word & cfg_c::kOpmask ? kOpmaskBytes : 0) +
         (word & cfg_c::kZmmHigh ? kZmmHighBytes : 0) +
         (word & cfg_c::kHighZmm ? kHighZmmBytes : 0);
}
// The bytes of a record with these groups but for that of the counters, where all stand in one fragment. Header and basic
// group are always there.
constexpr size_t record_bytes(uint64_t word, unsigned depth) {
  return kHeaderBytes + kBasicBytes + (word & cfg_c::kAux ? kAuxBytes : 0) +
         (word & cfg_c::kGprs ? kGprBytes : 0) + xer_bytes(word) +
         (branch_code(word) != 0
              ? kBranchHeaderBytes + size_t{branch_entries(word, depth)} * kBranchEntryBytes
              : 0);
}
// WR counts 16 bytes, so no record ends between.
constexpr size_t whole_units(size_t bytes) {
  return (bytes + pebs_index::kUnit - 1) / pebs_index::kUnit * pebs_index::kUnit;
}

// One record, whatever fragments it came in.
struct Parts {
  size_t bytes = 0;                            // of all its fragments; 0: there is no whole record
  uint64_t groups = 0;                         // of all its headers
  std::array<uint32_t, kGroupCount> starts{};  // of each group; 0: it is not there
  uint32_t entries = 0;                        // of branches
  adaptive::SnapshotVectors counters = {};

  constexpr bool has(Group group) const { return starts[group] != 0; }
};

namespace internal {

inline uint64_t word(std::span<const std::byte> bytes, size_t at) {
  uint64_t value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The groups of one fragment, which ends at `end`. False: they do not fit it.
inline bool add_fragment(std::span<const std::byte> bytes, size_t at, size_t end, uint64_t header,
                         Parts& parts) {
  size_t next = at + kHeaderBytes;
  const auto take = [&](Group group, size_t size) {
    if (size > end - next) return false;
    parts.starts[group] = static_cast<uint32_t>(next);
    next += size;
    return true;
  };
  if ((header & kBasic) != 0 && !take(kBasicGroup, kBasicBytes)) return false;
  if ((header & cfg_c::kAux) != 0 && !take(kAuxGroup, kAuxBytes)) return false;
  if ((header & cfg_c::kGprs) != 0 && !take(kGprGroup, kGprBytes)) return false;
  if ((header & cfg_c::kXer) != 0 && !take(kXerGroup, xer_bytes(header))) return false;
  if (branch_code(header) != 0) {
    if (!take(kBranchGroup, kBranchHeaderBytes)) return false;
    const uint64_t depth = word(bytes, parts.starts[kBranchGroup] + kBranchDepth);
    if (branch_code(header) == kBranchesAsDepth && depth > kSize) return false;
    parts.entries = branch_entries(header, static_cast<unsigned>(depth));
    const size_t entries = size_t{parts.entries} * kBranchEntryBytes;
    if (entries > end - next) return false;
    next += entries;
  }
  if (has_counters(header)) {
    if (!take(kCounterGroup, adaptive::kSnapshotHeaderBytes)) return false;
    const uint64_t counters = word(bytes, parts.starts[kCounterGroup]);
    parts.counters = {
        .gp = static_cast<uint32_t>(counters),
        .fixed = static_cast<uint32_t>(counters >> 32),
        .metrics = static_cast<uint32_t>(word(bytes, parts.starts[kCounterGroup] + 8))};
    if (parts.counters.bytes() - adaptive::kSnapshotHeaderBytes > end - next) return false;
  }
  parts.groups |= header & kGroups;
  return true;
}

}  // namespace internal

// The size of the fragment at the beginning of these bytes; 0: there is none, or it cannot be.
inline size_t fragment_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) return 0;
  const size_t size = size_field(internal::word(bytes, 0));
  return size < kHeaderBytes || size > bytes.size() || size % 8 != 0 ? 0 : size;
}

// The record that begins these bytes: its first fragment has the basic group, and no other has.
inline Parts parts_of(std::span<const std::byte> bytes) {
  Parts parts;
  size_t at = 0;
  for (bool more = true; more;) {
    const size_t size = fragment_bytes(bytes.subspan(at));
    if (size == 0) return {};
    const uint64_t header = internal::word(bytes, at);
    if (((header & kBasic) != 0) != (at == 0)) return {};
    if (!internal::add_fragment(bytes, at, at + size, header, parts)) return {};
    at += size;
    more = continued(header);
  }
  parts.bytes = at;
  return parts;
}

}  // namespace architectural

namespace internal {

// The table for one choice of groups (AUX, registers, XMM, branches by adaptive's numbers) in one fragment.
constexpr RecordLayout architectural_layout(unsigned groups) {
  namespace a = architectural;
  RecordLayout r;
  r.format = kArchitecturalFormat;
  r.architectural = true;
  r.header = 0x00;
  r.gpr = no_gprs();
  r.latency_mask = 0xFFFF;
  r.cache_latency_shift = 32;
  r.retire_latency = true;
  r.snapshot = true;
  int16_t at = a::kHeaderBytes;
  const auto field = [&at](int offset) { return static_cast<int16_t>(at + offset); };
  const auto begin = [&](a::Group group) { r.starts[group] = static_cast<uint16_t>(at); };
  begin(a::kBasicGroup);
  r.eventing_ip = field(0x00);
  r.applicable_counters = field(0x08);
  r.tsc = field(0x10);
  r.retire = field(0x18);
  at = field(a::kBasicBytes);
  if (groups & adaptive::kMemory) {
    begin(a::kAuxGroup);
    r.data_address = field(0x00);
    r.data_source = field(0x28);
    r.latency = field(0x30);
    r.tx_information = field(0x38);
    at = field(a::kAuxBytes);
  }
  if (groups & adaptive::kGprs) {
    begin(a::kGprGroup);
    r.flags = field(0x00);
    r.ip = field(0x08);
    for (unsigned i = 0; i < kGprs; ++i) r.gpr[i] = field(static_cast<int>(0x10 + 8 * i));
    at = field(a::kGprBytes);
  }
  if (groups & adaptive::kXmm) {
    begin(a::kXerGroup);
    r.xmm = field(a::kXerHeaderBytes);
    at = field(a::kXerHeaderBytes + a::kXmmBytes);
  }
  if (groups & adaptive::kBranches) {
    begin(a::kBranchGroup);
    r.lbr = field(a::kBranchHeaderBytes);
    at = field(a::kBranchHeaderBytes);
  }
  r.bytes = static_cast<uint16_t>(at);
  return r;
}

constexpr std::array<RecordLayout, 16> architectural_layouts() {
  std::array<RecordLayout, 16> all{};
  for (unsigned groups = 0; groups < all.size(); ++groups)
    all[groups] = architectural_layout(groups);
  return all;
}
inline constexpr std::array<RecordLayout, 16> kArchitecturalVariants = architectural_layouts();

// CPUID.23H.04H:EBX of the rows: ALLOW_IN_RECORD, the counters, branches, XMM and the upper halves of YMM, registers, AUX. A part's
// own CPUID decides.
inline constexpr uint32_t kPebsGroups = static_cast<uint32_t>(
    (cfg_c::kAllow | cfg_c::kCountersGp | cfg_c::kCountersFixed | cfg_c::kBranches | cfg_c::kXmm |
     cfg_c::kYmmHigh | cfg_c::kGprs | cfg_c::kAux) >>
    cfg_c::kGroupsShift);

constexpr RecordLayout architectural_format() {
  RecordLayout r = kArchitecturalVariants[0];
  r.variants = kArchitecturalVariants.data();
  return r;
}

}  // namespace internal

// Architectural PEBS. The table itself is that of a record with the basic group only.
inline constexpr RecordLayout kArchitecturalRecord = internal::architectural_format();

// The table of a record with these parts.
constexpr const RecordLayout* layout_of(const RecordLayout& format,
                                        const architectural::Parts& parts) {
  const uint64_t g = parts.groups;
  return &format.variants[(g & cfg_c::kAux ? adaptive::kMemory : 0) |
                          (g & cfg_c::kGprs ? adaptive::kGprs : 0) |
                          (g & cfg_c::kXmm ? adaptive::kXmm : 0) |
                          (g & cfg_c::kBranches ? adaptive::kBranches : 0)];
}

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_ARCHITECTURAL_RECORD_H_
