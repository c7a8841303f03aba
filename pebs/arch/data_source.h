// What a record's A0H says: the data source of a load, the status of a precise store.
#ifndef SKIDPROOF_PEBS_ARCH_DATA_SOURCE_H_
#define SKIDPROOF_PEBS_ARCH_DATA_SOURCE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "pebs/arch/msr.h"

namespace skidproof::arch {

// Bits 3:0 of the data source encoding. [SDM Table 18-24; Sandy Bridge refers to it unchanged
// (Table 18-33), where Linux reads 5, 6, 7 as L3 hit with snoop miss, snoop hit and HITM]
enum class DataSource : uint8_t {
  kUnknownL3Miss = 0x0,
  kL1Hit = 0x1,
  kFillBuffer = 0x2,  // the line was already being fetched
  kL2Hit = 0x3,
  kL3Hit = 0x4,            // no other core's cache was asked
  kL3HitSnoopClean = 0x5,  // another core was asked and had it unmodified
  kL3HitSnoopModified = 0x6,
  kReserved7 = 0x7,           // LLC HitM on 06_2AH and 06_2EH
  kRemoteCacheForward = 0x8,  // L3 miss, forwarded clean by another package
  kReserved9 = 0x9,
  kLocalDramShared = 0xA,
  kRemoteDramShared = 0xB,
  kLocalDramExclusive = 0xC,
  kRemoteDramExclusive = 0xD,
  kIo = 0xE,
  kUncached = 0xF,
};

// A0H of a precise store record. [SDM 18.9.4.3 "Precise Store Facility", Table 18-34]
namespace store_status {
inline constexpr uint64_t kL1Hit = bit(0);  // 0: missed the L1 data cache
inline constexpr uint64_t kStlbMiss = bit(4);
inline constexpr uint64_t kLocked = bit(5);
inline constexpr uint64_t kDefined = kL1Hit | kStlbMiss | kLocked;
}  // namespace store_status

constexpr std::string_view name_of(DataSource source) {
  switch (source) {
    case DataSource::kUnknownL3Miss:
      return "unknown L3 miss";
    case DataSource::kL1Hit:
      return "L1 hit";
    case DataSource::kFillBuffer:
      return "fill buffer";
    case DataSource::kL2Hit:
      return "L2 hit";
    case DataSource::kL3Hit:
      return "L3 hit";
    case DataSource::kL3HitSnoopClean:
      return "L3 hit, snooped clean";
    case DataSource::kL3HitSnoopModified:
      return "L3 hit, snooped modified";
    case DataSource::kReserved7:
      return "reserved (7)";
    case DataSource::kRemoteCacheForward:
      return "remote cache";
    case DataSource::kReserved9:
      return "reserved (9)";
    case DataSource::kLocalDramShared:
      return "local DRAM, shared";
    case DataSource::kRemoteDramShared:
      return "remote DRAM, shared";
    case DataSource::kLocalDramExclusive:
      return "local DRAM, exclusive";
    case DataSource::kRemoteDramExclusive:
      return "remote DRAM, exclusive";
    case DataSource::kIo:
      return "I/O";
    case DataSource::kUncached:
      return "uncached";
  }
  return "unknown";
}

// A data source encoding, and what it says in the terms above.
struct SourceEncoding {
  uint8_t encoding = 0;
  DataSource source = DataSource::kUnknownL3Miss;
};
// Lion Cove. [SDM Vol. 3 (325384-089) Table 21-107 "Data Source Encoding for Memory Accesses (Lion Cove and Next Generation
// Microarchitectures)"] A merge with a miss of the second level is a line that was already being fetched, too.
inline constexpr SourceEncoding kLionCoveSources[] = {{0x01, DataSource::kL1Hit},
                                                      {0x02, DataSource::kL1Hit},
                                                      {0x03, DataSource::kFillBuffer},
                                                      {0x05, DataSource::kL2Hit},
                                                      {0x06, DataSource::kFillBuffer},
                                                      {0x08, DataSource::kL3Hit},
                                                      {0x0C, DataSource::kL3HitSnoopClean},
                                                      {0x0D, DataSource::kL3HitSnoopModified},
                                                      {0x0F, DataSource::kRemoteCacheForward},
                                                      {0x10, DataSource::kLocalDramShared},
                                                      {0x11, DataSource::kUnknownL3Miss},
                                                      {0x11, DataSource::kLocalDramExclusive}};

// Where the word of an access says what. Nehalem and Westmere have the source alone.
struct AccessInfo {
  uint64_t source = 0xF;
  uint64_t stlb_miss = bit(4);
  uint64_t locked = bit(5);
  uint64_t blocked = 0;                            // why it was: data, address, store forwarding
  std::span<const SourceEncoding> encodings = {};  // empty: DataSource's own numbers
  // By Intel, the source and the flags: else what Linux reads there is observed.
  bool source_published = true;
  bool flags_published = true;

  // Whether the word says where the data came from, where 0 may say that it does not know. (E8)
  constexpr bool tells_source(uint64_t word) const { return (word & source) != 0; }
  constexpr uint64_t defined() const { return source | stlb_miss | locked | blocked; }
  // What a word's source says: kReserved9 for an encoding that none describes. What is no part of the source is ignored.
  constexpr DataSource source_of(uint64_t word) const {
    const auto encoding = static_cast<uint8_t>(word & source);
    if (encodings.empty()) return static_cast<DataSource>(encoding);
    if (encoding == 0) return DataSource::kUnknownL3Miss;
    for (const SourceEncoding& one : encodings) {
      if (one.encoding == encoding) return one.source;
    }
    return DataSource::kReserved9;
  }
  // The first encoding of a source; 0, unknown, where there is none.
  constexpr uint64_t encoding_of(DataSource of) const {
    if (encodings.empty()) return static_cast<uint64_t>(of);
    for (const SourceEncoding& one : encodings) {
      if (one.source == of) return one.encoding;
    }
    return 0;
  }
};
// Sandy Bridge and later. [SDM Table 18-33]
inline constexpr AccessInfo kAccessInfo{};
// Golden Cove and Redwood Cove. [SDM 089 Table 21-98]
inline constexpr AccessInfo kAccessInfoGoldenCove{.blocked = bit(6) | bit(7)};
// Lion Cove. [SDM Vol. 3 (325384-089) Table 21-57 for the width of the source; Linux 6.16 ds.c union intel_x86_pebs_dse,
// ld_lnc]
inline constexpr AccessInfo kAccessInfoLionCove{.source = 0x1F,
                                                .stlb_miss = bit(10),
                                                .locked = bit(11),
                                                .blocked = bit(6) | bit(7),
                                                .encodings = kLionCoveSources,
                                                .flags_published = false};
// Gracemont: lock and STLB miss change places. [SDM 089 Table 21-54 "E-core PEBS Memory Access Info
// Encoding"]
inline constexpr AccessInfo kAccessInfoGracemont{
    .stlb_miss = bit(5), .locked = bit(4), .blocked = bit(6)};
// Crestmont and Skymont: a source of five bits. [Linux 6.12 ds.c union intel_x86_pebs_dse, mtl_latency_data_small]
inline constexpr AccessInfo kAccessInfoCrestmont{.source = 0x1F,
                                                 .stlb_miss = bit(6),
                                                 .locked = bit(5),
                                                 .blocked = bit(7),
                                                 .source_published = false,
                                                 .flags_published = false};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_DATA_SOURCE_H_
