// CPUID leaves beside 0AH, as a row's part reports them (0AH is perfmon_leaf() in reserved.h), and
// the bits in them that this project reads. [SDM vol. 2A, CPUID]
#ifndef SKIDPROOF_PEBS_ARCH_ENUMERATION_H_
#define SKIDPROOF_PEBS_ARCH_ENUMERATION_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "pebs/arch/microarch.h"

namespace skidproof::arch {

struct CpuidLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

namespace cpuid {
// In the virtual lab: from where on the hypervisor's range answers leaves as the played part has
// them, which the guest's own software must not see.
inline constexpr uint32_t kVirtualLabLeaves = 0x40000100;
// There, too: what is played besides the row ("rough=7"), 16 bytes in each subleaf, zeros behind its end.
inline constexpr uint32_t kVirtualLabWords = 0x40000200;
inline constexpr uint32_t kCaches = 0x04, kFeatures = 0x07, kPerfmon = 0x0A, kCore = 0x1A,
                          kExtendedPerfmon = 0x23;
inline constexpr uint32_t kPdcm = 1U << 15;  // 01H:ECX: IA32_PERF_CAPABILITIES exists
// 07H
inline constexpr uint32_t kSgx = 1U << 2;              // EBX
inline constexpr uint32_t kRtm = 1U << 11;             // EBX
inline constexpr uint32_t kProcessorTrace = 1U << 25;  // EBX
inline constexpr uint32_t kLa57 = 1U << 16;            // ECX
inline constexpr uint32_t kHybrid = 1U << 15;          // EDX
inline constexpr uint32_t kArchPerfmonExt = 1U << 8;   // 07H.01H:EAX: leaf 23H exists
// 23H.00H
inline constexpr uint32_t kUmask2 = 1U << 0, kEqual = 1U << 1;  // EBX
// Its subleaves.
inline constexpr uint32_t kExtendedMain = 0, kExtendedCounters = 1, kExtendedReload = 2,
                          kExtendedEvents = 3, kExtendedPebs = 4, kExtendedPebsCounters = 5;
// 04H, EAX[4:0]
inline constexpr uint32_t kNoCache = 0, kDataCache = 1, kUnifiedCache = 3;
}  // namespace cpuid

// 07H, subleaf 0: of it only what a row says.
constexpr CpuidLeaf features_leaf(const Microarch& m) {
  return {.eax = m.extended.leaf ? 1U : 0,  // the highest subleaf
          .ebx = (m.sgx ? cpuid::kSgx : 0) | (m.tsx ? cpuid::kRtm : 0) |
                 (m.processor_trace ? cpuid::kProcessorTrace : 0),
          .ecx = m.la57 ? cpuid::kLa57 : 0,
          .edx = m.hybrid ? cpuid::kHybrid : 0};
}

// 07H, subleaf 1.
constexpr CpuidLeaf more_features_leaf(const Microarch& m) {
  return {.eax = m.extended.leaf ? cpuid::kArchPerfmonExt : 0};
}

// 23H, of the core that the row describes; zeros for a subleaf that EAX of the first does not name. [SDM Vol. 3
// (325384-089) 21.2.9 "Scalable Enumeration Architecture"]
constexpr CpuidLeaf extended_perfmon_leaf(const Microarch& m, uint32_t subleaf) {
  const ExtendedPerfmon& x = m.extended;
  if (!x.leaf) return {};
  switch (subleaf) {
    case cpuid::kExtendedMain:
      return {.eax = 1U << cpuid::kExtendedMain | 1U << cpuid::kExtendedCounters |
                     (x.auto_reload() ? 1U << cpuid::kExtendedReload : 0) |
                     1U << cpuid::kExtendedEvents |
                     (x.pebs ? 1U << cpuid::kExtendedPebs | 1U << cpuid::kExtendedPebsCounters : 0),
              .ebx = (x.umask2 ? cpuid::kUmask2 : 0) | (x.equal ? cpuid::kEqual : 0),
              .ecx = x.slots};
    case cpuid::kExtendedCounters:
      return {.eax = x.gp, .ebx = x.fixed};
    case cpuid::kExtendedReload:
      return {.eax = x.reloaded_gp,
              .ebx = x.reloaded_fixed,
              .ecx = x.reloading_gp,
              .edx = x.reloading_fixed};
    case cpuid::kExtendedEvents:
      return {.eax = x.events};
    case cpuid::kExtendedPebs:
      return {.ebx = x.pebs_groups};
    case cpuid::kExtendedPebsCounters:
      return {.eax = x.pebs_gp, .ebx = x.pdist_gp, .ecx = x.pebs_fixed, .edx = x.pdist_fixed};
    default:
      return {};
  }
}

// 04H: one cache for each subleaf, the last answered with no cache. The core model has no
// instruction cache.
constexpr CpuidLeaf caches_leaf(const CacheGeometry& caches, uint32_t subleaf) {
  const auto leaf = [&](uint32_t type, uint32_t level, uint32_t bytes, uint32_t ways) {
    return CpuidLeaf{.eax = type | level << 5,
                     .ebx = (caches.line_bytes - 1) | (ways - 1) << 22,
                     .ecx = bytes / (caches.line_bytes * ways) - 1,
                     .edx = 0};
  };
  switch (subleaf) {
    case 0:
      return leaf(cpuid::kDataCache, 1, caches.l1_bytes, caches.l1_ways);
    case 1:
      return leaf(cpuid::kUnifiedCache, 2, caches.l2_bytes, caches.l2_ways);
    case 2:
      return leaf(cpuid::kUnifiedCache, 3, caches.l3_bytes, caches.l3_ways);
    default:
      return {};
  }
}

// Text, 16 bytes in each subleaf, in the order of the registers.
constexpr CpuidLeaf words_leaf(std::string_view words, uint32_t subleaf) {
  const auto four = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4 && at + i < words.size(); ++i) {
      value |= uint32_t{static_cast<unsigned char>(words[at + i])} << (8 * i);
    }
    return value;
  };
  const size_t from = size_t{16} * subleaf;
  return {.eax = four(from), .ebx = four(from + 4), .ecx = four(from + 8), .edx = four(from + 12)};
}

// 1AH: the type of the core, on hybrid parts.
constexpr CpuidLeaf core_leaf(const Microarch& m) {
  return {.eax = m.hybrid ? static_cast<uint32_t>(m.core) << 24 | 1 : 0};
}

// The highest basic leaf: 05H where there is no performance monitoring, and as far as the row's facts
// are told.
constexpr uint32_t highest_basic_leaf(const Microarch& m) {
  if (!m.architectural_perfmon()) return 0x5;
  if (m.extended.leaf) return cpuid::kExtendedPerfmon;
  return m.hybrid ? cpuid::kCore : cpuid::kPerfmon;
}

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_ENUMERATION_H_
