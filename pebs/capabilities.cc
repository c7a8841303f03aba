#include "pebs/capabilities.h"

#include <fmt/format.h>

#include <bit>
#include <string_view>
#include <utility>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/enumeration.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"

namespace skidproof {
namespace {

using namespace arch;  // MSR names

// CPUID leaf 04H lists at most one data or unified cache for each level, and instruction caches.
constexpr uint32_t kMostSubleaves = 8;

std::vector<Cache> caches_of(const Machine& machine) {
  std::vector<Cache> caches;
  for (uint32_t subleaf = 0; subleaf < kMostSubleaves; ++subleaf) {
    const Machine::CpuidResult leaf = machine.cpuid(cpuid::kCaches, subleaf);
    const uint32_t type = leaf.eax & 0x1F;
    if (type == cpuid::kNoCache) break;
    if (type != cpuid::kDataCache && type != cpuid::kUnifiedCache) continue;
    Cache cache;
    cache.level = leaf.eax >> 5 & 7;
    cache.line_bytes = (leaf.ebx & 0xFFF) + 1;
    cache.ways = (leaf.ebx >> 22) + 1;
    cache.bytes = uint64_t{cache.ways} * ((leaf.ebx >> 12 & 0x3FF) + 1) * cache.line_bytes *
                  (uint64_t{leaf.ecx} + 1);
    caches.push_back(cache);
  }
  return caches;
}

// Leaf 23H exists where 07H.01H says so; a subleaf that its first does not name says nothing. [SDM Vol. 3 (325384-089)
// 21.2.9.1 "CPUID Sub-leaves"]
ExtendedPerfmon extended_of(const Machine& machine, uint32_t highest) {
  ExtendedPerfmon found;
  if (highest < cpuid::kExtendedPerfmon || machine.cpuid(cpuid::kFeatures, 0).eax < 1) return found;
  found.leaf = (machine.cpuid(cpuid::kFeatures, 1).eax & cpuid::kArchPerfmonExt) != 0;
  if (!found.leaf) return found;
  const Machine::CpuidResult main = machine.cpuid(cpuid::kExtendedPerfmon, cpuid::kExtendedMain);
  found.umask2 = (main.ebx & cpuid::kUmask2) != 0;
  found.equal = (main.ebx & cpuid::kEqual) != 0;
  found.slots = static_cast<uint8_t>(main.ecx);
  const auto has = [&](uint32_t subleaf) { return (main.eax >> subleaf & 1) != 0; };
  if (has(cpuid::kExtendedCounters)) {
    const auto leaf = machine.cpuid(cpuid::kExtendedPerfmon, cpuid::kExtendedCounters);
    found.gp = leaf.eax;
    found.fixed = leaf.ebx;
  }
  if (has(cpuid::kExtendedReload)) {
    const auto leaf = machine.cpuid(cpuid::kExtendedPerfmon, cpuid::kExtendedReload);
    found.reloaded_gp = leaf.eax;
    found.reloaded_fixed = leaf.ebx;
    found.reloading_gp = leaf.ecx;
    found.reloading_fixed = leaf.edx;
  }
  if (has(cpuid::kExtendedEvents)) {
    found.events = machine.cpuid(cpuid::kExtendedPerfmon, cpuid::kExtendedEvents).eax;
  }
  found.pebs = has(cpuid::kExtendedPebs) && has(cpuid::kExtendedPebsCounters);
  if (found.pebs) {
    const auto leaf = machine.cpuid(cpuid::kExtendedPerfmon, cpuid::kExtendedPebsCounters);
    found.pebs_groups = machine.cpuid(cpuid::kExtendedPerfmon, cpuid::kExtendedPebs).ebx;
    found.pebs_gp = leaf.eax;
    found.pdist_gp = leaf.ebx;
    found.pebs_fixed = leaf.ecx;
    found.pdist_fixed = leaf.edx;
  }
  return found;
}

void read_cpuid(const Machine& machine, Capabilities& found) {
  const uint32_t highest = machine.cpuid(0, 0).eax;
  if (highest >= cpuid::kCaches) found.caches = caches_of(machine);
  if (highest >= cpuid::kFeatures) {
    const Machine::CpuidResult features = machine.cpuid(cpuid::kFeatures, 0);
    found.sgx = (features.ebx & cpuid::kSgx) != 0;
    found.tsx = (features.ebx & cpuid::kRtm) != 0;
    found.processor_trace = (features.ebx & cpuid::kProcessorTrace) != 0;
    found.la57 = (features.ecx & cpuid::kLa57) != 0;
    found.hybrid = (features.edx & cpuid::kHybrid) != 0;
  }
  if (highest >= cpuid::kPerfmon) {
    const Machine::CpuidResult perfmon = machine.cpuid(cpuid::kPerfmon, 0);
    found.perfmon_version = perfmon.eax & 0xFF;
    found.gp_counters = perfmon.eax >> 8 & 0xFF;
    found.gp_width = perfmon.eax >> 16 & 0xFF;
    found.fixed_counters = perfmon.edx & 0x1F;
    found.fixed_width = perfmon.edx >> 5 & 0xFF;
    if (found.perfmon_version >= 5) found.fixed_mask = perfmon.ecx;
  }
  found.extended = extended_of(machine, highest);
  found.core_type =
      core_type_of([&](uint32_t leaf, uint32_t subleaf) { return machine.cpuid(leaf, subleaf); });
}

void read_perf_capabilities(uint64_t value, Capabilities& found) {
  found.perf_capabilities = value;
  found.lbr_format = static_cast<unsigned>(value & 0x3F);
  found.pebs_trap = (value & capabilities::kPebsTrap) != 0;
  found.pebs_format =
      static_cast<unsigned>((value & capabilities::kFormat) >> capabilities::kFormatShift);
  found.smm_freeze = (value & capabilities::kSmmFreeze) != 0;
  found.full_width_writes = (value & capabilities::kFullWidthWrite) != 0;
  found.baseline = (value & capabilities::kPebsBaseline) != 0;
  found.perf_metrics = (value & capabilities::kPerfMetrics) != 0;
  found.timing_info = (value & capabilities::kPebsTimingInfo) != 0;
  found.metrics_clear = (value & capabilities::kRdpmcMetricsClear) != 0;
}

// The register's value; empty where it does not exist or nobody can read it here.
Expected<std::optional<uint64_t>> register_if_any(Machine& machine, uint32_t msr) {
  Expected<uint64_t> value = machine.rdmsr(msr);
  if (value) return std::optional(*value);
  const ErrorCode code = value.error().code;
  if (code == ErrorCode::kGeneralProtection || code == ErrorCode::kNotAvailable) {
    return std::optional<uint64_t>();
  }
  return tl::make_unexpected(value.error());
}

Expected<void> read_registers(Machine& machine, Capabilities& found) {
  if (!machine.identity().pmu) return {};
  if (const auto enable = SKIDPROOF_TRY(register_if_any(machine, IA32_MISC_ENABLE))) {
    found.pebs_available = (*enable & misc_enable::kPebsUnavailable) == 0;
    found.bts_available = (*enable & misc_enable::kBtsUnavailable) == 0;
  }
  const bool announced = (machine.cpuid(1, 0).ecx & cpuid::kPdcm) != 0;
  if (!announced) return {};
  if (const auto value = SKIDPROOF_TRY(register_if_any(machine, IA32_PERF_CAPABILITIES))) {
    read_perf_capabilities(*value, found);
  }
  return {};
}

}  // namespace

const Cache* Capabilities::cache(unsigned level) const {
  for (const Cache& each : caches) {
    if (each.level == level) return &each;
  }
  return nullptr;
}

Expected<Capabilities> read_capabilities(Machine& machine) {
  Capabilities found;
  read_cpuid(machine, found);
  SKIDPROOF_CHECK(read_registers(machine, found));
  return found;
}

Capabilities capabilities_of(Machine& machine) {
  Capabilities found;
  read_cpuid(machine, found);
  static_cast<void>(read_registers(machine, found));
  return found;
}

Expected<Microarch> as_enumerated(const Microarch& row, const Capabilities& found) {
  Microarch m = row;
  if (!row.architectural_perfmon()) return m;
  m.sgx = found.sgx;
  m.processor_trace = found.processor_trace;
  m.la57 = found.la57;
  m.tsx = found.tsx;
  m.perfevtsel_defined =
      found.tsx ? m.perfevtsel_defined | evtsel::kInTx : m.perfevtsel_defined & ~evtsel::kInTx;
  if (row.perfmon_version >= 6) {
    if (found.extended.leaf && found.extended.gp == 0) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("CPUID.23H.01H:EAX of this processor lists no general-purpose counter; the "
                      "row {} has {}",
                      row.name, std::popcount(row.extended.gp)),
          "only what needs no counter can be tested on this processor");
    }
    if (found.extended.leaf) m.extended = found.extended;
    const uint64_t later = evtsel::kUmask2 | evtsel::kEqual;
    m.perfevtsel_defined = (m.perfevtsel_defined & ~later) |
                           (m.extended.umask2 ? evtsel::kUmask2 : 0) |
                           (m.extended.equal ? evtsel::kEqual : 0);
  }
  if (!found.perf_capabilities) return m;
  m.metrics_clear = found.metrics_clear;
  m.pebs_timing_info = found.timing_info;
  m.pebs_baseline = found.baseline;
  m.perf_metrics = found.perf_metrics;
  const bool splits = row.record->cache_latency_shift != 0;
  const bool architectural = found.pebs_format == kArchitecturalFormat;
  if (architectural != found.extended.pebs && (architectural || row.architectural_pebs())) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("IA32_PERF_CAPABILITIES reports PEBS record format {}, and "
                            "CPUID.23H.00H:EAX[5:4] says that "
                            "architectural PEBS is {}",
                            found.pebs_format, found.extended.pebs ? "there" : "not there"),
                "only what needs no record can be tested on this processor");
  }
  if (architectural) {
    // Format FH is architectural PEBS: CPUID says which counters have it.
    m.pebs_counters = static_cast<uint16_t>(found.extended.pebs_gp);
    m.pebs_fixed_counters = static_cast<uint8_t>(found.extended.pebs_fixed);
    m.pdist_counters = static_cast<uint16_t>(found.extended.pdist_gp);
    m.pdir_fixed_counter = static_cast<uint8_t>(found.extended.pdist_fixed);
    m.record = &kArchitecturalRecord;
    return m;
  }
  const RecordLayout* record = fixed_record(found.pebs_format);
  if (record == nullptr) {
    record = adaptive_record({.format = static_cast<uint8_t>(found.pebs_format),
                              .splits_latency = splits,
                              .retire_latency = found.timing_info,
                              .snapshot = row.pebs_counters_group});
  }
  if (record == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("IA32_PERF_CAPABILITIES reports PEBS record format {}, which no table "
                            "here describes; the row {} has format {}",
                            found.pebs_format, row.name, row.record->format),
                "only what needs no record can be tested on this processor");
  }
  if (record->format != row.record->format) {
    m.ds = record->adaptive()    ? ds_of_adaptive_format(record->format)
           : record->format == 0 ? kDsOneReset
                                 : kDsFourResets;
  }
  m.record = record;
  return m;
}

std::vector<std::string> contradictions(const Capabilities& found) {
  std::vector<std::string> words;
  const ExtendedPerfmon& x = found.extended;
  if (!x.leaf) {
    if (found.perfmon_version >= 6) {
      words.push_back(fmt::format(
          "CPUID.0AH says version {} of performance monitoring, and CPUID.23H, which came "
          "with version 6, does not exist",
          found.perfmon_version));
    }
    return words;
  }
  const auto listed = static_cast<unsigned>(std::popcount(x.gp));
  if (listed < found.gp_counters) {
    words.push_back(
        fmt::format("CPUID.23H lists {} general-purpose counters, and CPUID.0AH counts {}", listed,
                    found.gp_counters));
  }
  const auto common = static_cast<uint32_t>(low_bits(found.fixed_counters)) | found.fixed_mask;
  for (uint32_t rest = common & ~x.fixed; rest != 0; rest &= rest - 1) {
    words.push_back(fmt::format("CPUID.23H lacks fixed counter {}, which CPUID.0AH has",
                                std::countr_zero(rest)));
  }
  if (found.perf_capabilities && (found.pebs_format == kArchitecturalFormat) != x.pebs) {
    words.push_back(
        fmt::format("IA32_PERF_CAPABILITIES reports PEBS record format {}, and "
                    "CPUID.23H.00H:EAX[5:4] says that "
                    "architectural PEBS is {}",
                    found.pebs_format, x.pebs ? "there" : "not there"));
  }
  const auto beyond = [&](uint32_t what, uint32_t of, std::string_view name, std::string_view lists,
                          std::string_view lacks) {
    for (uint32_t rest = what & ~of; rest != 0; rest &= rest - 1) {
      words.push_back(
          fmt::format("{} lists {} {}, which {}", lists, name, std::countr_zero(rest), lacks));
    }
  };
  constexpr std::string_view kGp = "general-purpose counter", kFixed = "fixed counter";
  constexpr std::string_view kPebs = "CPUID.23H.05H", kNoCounter = "CPUID.23H.01H lacks";
  beyond(x.pebs_gp, x.gp, kGp, kPebs, kNoCounter);
  beyond(x.pebs_fixed, x.fixed, kFixed, kPebs, kNoCounter);
  constexpr std::string_view kPdist = "CPUID.23H.05H:EBX/EDX", kNoPebs = "has no PEBS there";
  beyond(x.pdist_gp, x.pebs_gp, kGp, kPdist, kNoPebs);
  beyond(x.pdist_fixed, x.pebs_fixed, kFixed, kPdist, kNoPebs);
  return words;
}

std::vector<std::string> differences(const Capabilities& found, const Microarch& row) {
  std::vector<std::string> words;
  const auto compare = [&](std::string_view what, auto seen, auto expected) {
    if (seen != expected) words.push_back(fmt::format("{}={}, row: {}", what, seen, expected));
  };
  if (!row.architectural_perfmon()) return words;
  compare("perfmon-version", found.perfmon_version, unsigned{row.perfmon_version});
  compare("counter-width", found.gp_width, unsigned{row.gp_width});
  if (found.gp_counters != row.gp_counters) {
    compare("counters", found.gp_counters, unsigned{row.gp_counters_alone});
  }
  compare("fixed-counters", found.fixed_counters, unsigned{row.fixed_counters});
  if (row.perfmon_version >= 6) {
    compare("extended-counters", fmt::format("{:#x}", found.extended.gp),
            fmt::format("{:#x}", row.extended.gp));
    compare("extended-fixed-counters", fmt::format("{:#x}", found.extended.fixed),
            fmt::format("{:#x}", row.extended.fixed));
    compare("umask2", found.extended.umask2, row.extended.umask2);
    compare("equal-flag", found.extended.equal, row.extended.equal);
    const auto pebs = [](const ExtendedPerfmon& x) {
      return fmt::format("{:#x}/{:#x}, PDist {:#x}/{:#x}, groups {:#x}", x.pebs_gp, x.pebs_fixed,
                         x.pdist_gp, x.pdist_fixed, x.pebs_groups);
    };
    compare("architectural-pebs", pebs(found.extended), pebs(row.extended));
  }
  for (std::string& word : contradictions(found)) words.push_back(std::move(word));
  compare("tsx", found.tsx, row.tsx);
  compare("sgx", found.sgx, row.sgx);
  compare("processor-trace", found.processor_trace, row.processor_trace);
  compare("la57", found.la57, row.la57);
  if (!found.perf_capabilities) {
    words.emplace_back("perf-capabilities=absent");
    return words;
  }
  compare("pebs-format", found.pebs_format, unsigned{row.record->format});
  compare("pebs-baseline", found.baseline, row.pebs_baseline);
  compare("pebs-timing-info", found.timing_info, row.pebs_timing_info);
  compare("lbr-format", found.lbr_format, unsigned{row.lbr_format});
  compare("smm-freeze", found.smm_freeze, row.smm_freeze);
  compare("full-width-writes", found.full_width_writes, row.full_width_writes);
  compare("perf-metrics", found.perf_metrics, row.perf_metrics);
  compare("metrics-clear", found.metrics_clear, row.metrics_clear);
  return words;
}

}  // namespace skidproof
