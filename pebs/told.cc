// Leaves 04H, 18H, 80000005H, 80000006H and 8000001DH.
#include "pebs/told.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

namespace skidproof {
namespace {

std::optional<ToldCache> deterministic(const Machine& machine, uint32_t leaf, unsigned level) {
  for (uint32_t sub = 0; sub < 16; ++sub) {
    const auto r = machine.cpuid(leaf, sub);
    const uint32_t type = r.eax & 31;  // 0: no more; 1 data, 2 instructions, 3 unified
    if (type == 0) break;
    if (type == 2 || (r.eax >> 5 & 7) != level) continue;
    const uint64_t line = (r.ebx & 0xFFF) + 1, partitions = (r.ebx >> 12 & 0x3FF) + 1,
                   ways = (r.ebx >> 22) + 1;
    return ToldCache{.bytes = ways * partitions * line * (uint64_t{r.ecx} + 1),
                     .ways = ways,
                     .line = line,
                     .sharing = (r.eax >> 14 & 0xFFF) + 1,
                     .leaf = fmt::format("CPUID.{:02X}H", leaf)};
  }
  return std::nullopt;
}

std::optional<ToldTlb> intel_tlb(const Machine& machine, unsigned level) {
  const uint32_t last = std::min<uint32_t>(machine.cpuid(0x18, 0).eax, 32);
  std::optional<ToldTlb> found;
  for (uint32_t sub = 0; sub <= last; ++sub) {
    const auto r = machine.cpuid(0x18, sub);
    const uint32_t type = r.edx & 31;  // 1 data, 3 unified, 4 loads only, 5 stores only
    const bool small_pages = (r.ebx & 1) != 0;
    if ((type != 1 && type != 3 && type != 4) || (r.edx >> 5 & 7) != level || !small_pages)
      continue;
    const uint64_t entries = uint64_t{r.ebx >> 16} * r.ecx;
    if (entries != 0) found = ToldTlb{std::max(entries, found ? found->entries : 0), "CPUID.18H"};
  }
  return found;
}

}  // namespace

std::optional<ToldCache> told_cache(const Machine& machine, unsigned level) {
  if (machine.cpuid(0, 0).eax >= 4) {
    if (auto cache = deterministic(machine, 4, level)) return cache;
  }
  if (machine.cpuid(0x80000000, 0).eax >= 0x8000001D)
    return deterministic(machine, 0x8000001D, level);
  return std::nullopt;
}

std::optional<ToldTlb> told_tlb(const Machine& machine, unsigned level) {
  if (machine.cpuid(0, 0).eax >= 0x18) {
    if (auto tlb = intel_tlb(machine, level)) return tlb;
  }
  const uint32_t leaf = level == 1 ? 0x80000005 : 0x80000006;
  if (machine.cpuid(0x80000000, 0).eax < leaf) return std::nullopt;
  const uint32_t ebx = machine.cpuid(leaf, 0).ebx;
  const uint64_t entries = level == 1 ? ebx >> 16 & 0xFF : ebx >> 16 & 0xFFF;
  if (entries == 0) return std::nullopt;
  return ToldTlb{entries, fmt::format("CPUID.{:X}H", leaf)};
}

}  // namespace skidproof
