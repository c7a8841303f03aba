// PEBS record formats as tables of byte offsets.
#ifndef SKIDPROOF_PEBS_ARCH_RECORD_LAYOUT_H_
#define SKIDPROOF_PEBS_ARCH_RECORD_LAYOUT_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace skidproof::arch {

// General registers by the number that instructions encode: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI,
// R8….
enum class Gpr : uint8_t {
  kRax,
  kRcx,
  kRdx,
  kRbx,
  kRsp,
  kRbp,
  kRsi,
  kRdi,
  kR8,
  kR9,
  kR10,
  kR11,
  kR12,
  kR13,
  kR14,
  kR15,
};
inline constexpr unsigned kGprs = 16;

inline constexpr int16_t kAbsent = -1;

// Byte offset of each field in a record; kAbsent where the format has no such field. A fixed-layout
// format (0 to 3) is one table. An adaptive one (4 to 6, and the architectural one) has a table for each choice of groups,
// and the header word of each record says which applies.
struct RecordLayout {
  uint8_t format = 0;       // IA32_PERF_CAPABILITIES[11:8]
  uint8_t field_bytes = 8;  // of one field: 4 in the 32-bit form of format 0
  uint16_t bytes = 0;       // of one record; adaptive: without the branch entries
  int16_t flags = kAbsent;
  int16_t ip = kAbsent;              // of the instruction after the sampled one
  std::array<int16_t, kGprs> gpr{};  // indexed by Gpr
  int16_t global_status = kAbsent;   // IA32_PERF_GLOBAL_STATUS before the assist
  int16_t data_address = kAbsent;
  int16_t data_source = kAbsent;  // data source encoding, or store status
  int16_t latency = kAbsent;
  int16_t eventing_ip = kAbsent;  // of the sampled instruction
  int16_t tx_information = kAbsent;
  int16_t tsc = kAbsent;
  int16_t applicable_counters = kAbsent;
  int16_t header = kAbsent;  // adaptive: groups and size
  int16_t xmm = kAbsent;     // XMM0; XMMn at xmm + 10H * n
  int16_t lbr = kAbsent;     // the first branch entry
  // The bits of the latency field that are the instruction's latency, and where its cache latency
  // stands (0: not recorded).
  uint64_t latency_mask = ~uint64_t{0};
  uint8_t cache_latency_shift = 0;
  bool retire_latency = false;       // in the header word, bits 47:32
  bool snapshot = false;             // a group of counters may stand behind the branches
  bool architectural = false;        // the header is that of architectural_record.h
  int16_t retire = kAbsent;          // architectural: the retire latency, and whether it is valid
  std::array<uint16_t, 6> starts{};  // architectural: where each group begins; 0: it is not there
  const RecordLayout* variants = nullptr;  // adaptive: by MSR_PEBS_DATA_CFG[3:0]

  constexpr bool adaptive() const { return header != kAbsent; }
};

// The header word of an adaptive record: the groups in MSR_PEBS_DATA_CFG's positions, and the size.
// [Linux 6.12 asm/perf_event.h struct pebs_basic]
namespace adaptive {
inline constexpr uint64_t kMemory = 1, kGprs = 2, kXmm = 4, kBranches = 8;
inline constexpr uint64_t kGroups = 0xF;
// Counters snapshotting: a group behind all others. [SDM Vol. 3 (325384-089) 21.9.2.3.1 "Counters and Metrics Group"]
inline constexpr uint64_t kCounters = 0x10, kMetrics = 0x20;
inline constexpr uint64_t kSnapshot = kCounters | kMetrics;
// Of MSR_PEBS_DATA_CFG: which counters are recorded.
inline constexpr unsigned kIncludeShift = 32;       // 47:32: general-purpose ones
inline constexpr unsigned kIncludeFixedShift = 48;  // 55:48: fixed ones
inline constexpr unsigned kMetricsBaseCounter = 3;  // the fixed counter that goes with the metrics
inline constexpr uint16_t kSnapshotHeaderBytes = 0x10;
inline constexpr unsigned kBranchEntriesShift = 24;  // 31:24: entries − 1
inline constexpr unsigned kRetireLatencyShift = 32;  // 47:32
inline constexpr unsigned kSizeShift = 48;           // 63:48: bytes of the record
inline constexpr uint16_t kBasicBytes = 0x20;
inline constexpr uint16_t kMemoryBytes = 0x20;
inline constexpr uint16_t kGprBytes = 0x90;
inline constexpr uint16_t kXmmBytes = 0x100;
inline constexpr uint16_t kBranchEntryBytes = 0x18;

// Of a header word or of MSR_PEBS_DATA_CFG: how many branch entries are recorded.
constexpr unsigned branch_entries(uint64_t word) {
  return word & kBranches ? static_cast<unsigned>((word >> kBranchEntriesShift) & 0xFF) + 1 : 0;
}
// The bytes of a record with these groups, without that of the counters.
constexpr size_t record_bytes(uint64_t word) {
  return kBasicBytes + (word & kMemory ? kMemoryBytes : 0) + (word & kGprs ? kGprBytes : 0) +
         (word & kXmm ? kXmmBytes : 0) + size_t{branch_entries(word)} * kBranchEntryBytes;
}
constexpr size_t size_field(uint64_t header) { return header >> kSizeShift; }

// What the group of counters holds: bit n for counter n, of the metrics 0 for their base and 1 for themselves.
struct SnapshotVectors {
  uint32_t gp = 0, fixed = 0, metrics = 0;

  constexpr unsigned values() const {
    return static_cast<unsigned>(std::popcount(gp) + std::popcount(fixed) + std::popcount(metrics));
  }
  constexpr size_t bytes() const { return kSnapshotHeaderBytes + size_t{8} * values(); }
};
// Those of a record with this MSR_PEBS_DATA_CFG. The header of a record does not name them.
constexpr SnapshotVectors snapshot_vectors(uint64_t config) {
  SnapshotVectors vectors;
  const auto fixed = static_cast<uint32_t>(config >> kIncludeFixedShift & 0xFF);
  if (config & kCounters) {
    vectors.gp = static_cast<uint32_t>(config >> kIncludeShift & 0xFFFF);
    vectors.fixed = fixed;
  }
  if ((config & kMetrics) != 0 && (fixed >> kMetricsBaseCounter & 1) != 0) vectors.metrics = 3;
  return vectors;
}
// The bytes of a record with all that this MSR_PEBS_DATA_CFG selects.
constexpr size_t configured_bytes(uint64_t config) {
  return record_bytes(config) + (config & kSnapshot ? snapshot_vectors(config).bytes() : 0);
}
}  // namespace adaptive

// Four facts of an adaptive record that come apart: its number, whether the latency field has the
// instruction's and the caches' share beside one another (Golden Cove on) [Linux 6.12 ds.c union
// intel_x86_pebs_latency], and whether the header word has the retire latency (Redwood Cove on, by
// IA32_PERF_CAPABILITIES[17]), and whether counters can stand in it (Lion Cove on). [SDM Vol. 3 (325384-089) 21.6.2.4.2, 21.9]
struct AdaptiveForm {
  uint8_t format = 4;
  bool splits_latency = false;
  bool retire_latency = false;
  bool snapshot = false;  // the group of counters may be selected
};

namespace internal {

// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8–R15 in the order AX, BX, CX, DX, SI, DI, BP, SP of the
// record.
inline constexpr std::array<int16_t, kGprs> kGprOffsets64 = {
    0x10, 0x20, 0x28, 0x18, 0x48, 0x40, 0x30, 0x38, 0x50, 0x58, 0x60, 0x68, 0x70, 0x78, 0x80, 0x88};
inline constexpr std::array<int16_t, kGprs> kGprOffsets32 = {
    0x08,    0x10,    0x14,    0x0C,    0x24,    0x20,    0x18,    0x1C,
    kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent};

constexpr std::array<int16_t, kGprs> no_gprs() {
  std::array<int16_t, kGprs> offsets{};
  for (int16_t& offset : offsets) offset = kAbsent;
  return offsets;
}

// The table for one choice of groups: they follow the basic group in the order memory, registers,
// XMM, branches, without padding. The registers stand in the order of their numbers.
constexpr RecordLayout adaptive_layout(AdaptiveForm form, unsigned groups) {
  RecordLayout r;
  r.format = form.format;
  r.header = 0x00;
  r.eventing_ip = 0x08;
  r.applicable_counters = 0x10;
  r.tsc = 0x18;
  r.gpr = no_gprs();
  r.latency_mask = form.splits_latency ? 0xFFFF : 0xFFFFFFFF;
  r.cache_latency_shift = form.splits_latency ? 32 : 0;
  r.retire_latency = form.retire_latency;
  r.snapshot = form.snapshot;
  int16_t at = adaptive::kBasicBytes;
  const auto field = [&at](int offset) { return static_cast<int16_t>(at + offset); };
  if (groups & adaptive::kMemory) {
    r.data_address = field(0x00);
    r.data_source = field(0x08);
    r.latency = field(0x10);
    r.tx_information = field(0x18);
    at = field(adaptive::kMemoryBytes);
  }
  if (groups & adaptive::kGprs) {
    r.flags = field(0x00);
    r.ip = field(0x08);
    for (unsigned i = 0; i < kGprs; ++i) r.gpr[i] = field(static_cast<int>(0x10 + 8 * i));
    at = field(adaptive::kGprBytes);
  }
  if (groups & adaptive::kXmm) {
    r.xmm = at;
    at = field(adaptive::kXmmBytes);
  }
  if (groups & adaptive::kBranches) r.lbr = at;
  r.bytes = static_cast<uint16_t>(at);
  return r;
}

template <AdaptiveForm kForm>
constexpr std::array<RecordLayout, 16> adaptive_layouts() {
  std::array<RecordLayout, 16> all{};
  for (unsigned groups = 0; groups < all.size(); ++groups) {
    all[groups] = adaptive_layout(kForm, groups);
  }
  return all;
}
template <AdaptiveForm kForm>
inline constexpr std::array<RecordLayout, 16> kAdaptiveVariants = adaptive_layouts<kForm>();

template <AdaptiveForm kForm>
constexpr RecordLayout adaptive_format() {
  RecordLayout r = kAdaptiveVariants<kForm>[0];
  r.variants = kAdaptiveVariants<kForm>.data();
  return r;
}
template <AdaptiveForm kForm>
inline constexpr RecordLayout kAdaptiveFormat = adaptive_format<kForm>();

constexpr RecordLayout format2() {
  return {.format = 2,
          .bytes = 0xC0,
          .flags = 0x00,
          .ip = 0x08,
          .gpr = kGprOffsets64,
          .global_status = 0x90,
          .data_address = 0x98,
          .data_source = 0xA0,
          .latency = 0xA8,
          .eventing_ip = 0xB0,
          .tx_information = 0xB8};
}

constexpr RecordLayout format3() {
  RecordLayout r = format2();
  r.format = 3;
  r.bytes = 0xC8;
  r.global_status = kAbsent;
  r.applicable_counters = 0x90;
  r.tsc = 0xC0;
  return r;
}

}  // namespace internal

// Format 0 outside IA-32e mode without DTES64. [SDM Figure 17-7 "PEBS Record Format"]
inline constexpr RecordLayout kRecordFormat0Legacy{.format = 0,
                                                   .field_bytes = 4,
                                                   .bytes = 0x28,
                                                   .flags = 0x00,
                                                   .ip = 0x04,
                                                   .gpr = internal::kGprOffsets32};
// Format 0. [SDM Figure 17-10 "PEBS Record Format 64-bit"]
inline constexpr RecordLayout kRecordFormat0{
    .format = 0, .bytes = 0x90, .flags = 0x00, .ip = 0x08, .gpr = internal::kGprOffsets64};
// Format 1. [SDM Table 18-23 "PEBS Record Format for Intel Core i7 Processor Family"]
inline constexpr RecordLayout kRecordFormat1{.format = 1,
                                             .bytes = 0xB0,
                                             .flags = 0x00,
                                             .ip = 0x08,
                                             .gpr = internal::kGprOffsets64,
                                             .global_status = 0x90,
                                             .data_address = 0x98,
                                             .data_source = 0xA0,
                                             .latency = 0xA8};
// Format 2: EventingIP and what a transaction did. [SDM Table 18-44 "PEBS Record Format for 4th
// Generation Intel Core Processor Family"]
inline constexpr RecordLayout kRecordFormat2 = internal::format2();
// Format 3: 90H names the counters that the record applies to, and there is a time stamp.
// [SDM Table 18-55 "PEBS Record Format for 6th Generation Intel Core Processor Family"]
inline constexpr RecordLayout kRecordFormat3 = internal::format3();
// Formats 4 and 5, adaptive. The table itself is that of a record with the basic group only.
// [Linux 6.12 asm/perf_event.h struct pebs_basic, pebs_meminfo, pebs_gprs, pebs_xmm]
inline constexpr const RecordLayout& kRecordFormat4 =
    internal::kAdaptiveFormat<AdaptiveForm{.format = 4}>;
inline constexpr const RecordLayout& kRecordFormat4Split =
    internal::kAdaptiveFormat<AdaptiveForm{.format = 4, .splits_latency = true}>;
inline constexpr const RecordLayout& kRecordFormat5 = internal::kAdaptiveFormat<AdaptiveForm{
    .format = 5, .splits_latency = true, .retire_latency = true}>;

// Format 6 has the group of counters, and nothing else that format 5 has not. [SDM Vol. 3 (325384-089) 21.9.2.3]
inline constexpr const RecordLayout& kRecordFormat6 = internal::kAdaptiveFormat<AdaptiveForm{
    .format = 6, .splits_latency = true, .retire_latency = true, .snapshot = true}>;

namespace internal {
template <uint8_t kFormat, bool kSnapshot>
constexpr const RecordLayout* adaptive_of(bool splits, bool retire) {
  if (splits) {
    return retire ? &kAdaptiveFormat<AdaptiveForm{kFormat, true, true, kSnapshot}>
                  : &kAdaptiveFormat<AdaptiveForm{kFormat, true, false, kSnapshot}>;
  }
  return retire ? &kAdaptiveFormat<AdaptiveForm{kFormat, false, true, kSnapshot}>
                : &kAdaptiveFormat<AdaptiveForm{kFormat, false, false, kSnapshot}>;
}
}  // namespace internal

// The table of an adaptive form; nullptr for a format that none describes. Some parts of format 5 have the group of
// counters.
constexpr const RecordLayout* adaptive_record(AdaptiveForm form) {
  const bool splits = form.splits_latency, retire = form.retire_latency;
  switch (form.format) {
    case 4:
      return internal::adaptive_of<4, false>(splits, retire);
    case 5:
      return form.snapshot ? internal::adaptive_of<5, true>(splits, retire)
                           : internal::adaptive_of<5, false>(splits, retire);
    case 6:
      return internal::adaptive_of<6, true>(splits, retire);
    default:
      return nullptr;
  }
}
// The table of a format of fixed layout; nullptr for the others.
constexpr const RecordLayout* fixed_record(unsigned format) {
  constexpr const RecordLayout* kFormats[] = {&kRecordFormat0, &kRecordFormat1, &kRecordFormat2,
                                              &kRecordFormat3};
  return format < std::size(kFormats) ? kFormats[format] : nullptr;
}

// The table of one record of an adaptive format, by its header word. One whose size field is not
// what its groups need is read as if it had the basic group only.
constexpr const RecordLayout* layout_of(const RecordLayout& format, uint64_t header) {
  if (format.variants == nullptr) return &format;
  const size_t stated = adaptive::size_field(header);
  const size_t groups = adaptive::record_bytes(header);
  // Which counters the last group holds stands in the group itself.
  const bool sound = format.snapshot && (header & adaptive::kSnapshot) != 0
                         ? stated >= groups + adaptive::kSnapshotHeaderBytes && stated % 8 == 0
                         : stated == groups;
  return &format.variants[sound ? header & adaptive::kGroups : 0];
}

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_RECORD_LAYOUT_H_
