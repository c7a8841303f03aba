#include "pebs/model/adaptive_record.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/msr.h"

namespace skidproof::model {
namespace {

using namespace arch;

class Writer {
 public:
  void put(uint64_t value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void replace(size_t at, uint64_t value) { std::memcpy(bytes_.data() + at, &value, sizeof value); }
  size_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Format 4: instruction latency in 31:0. Format 5: 15:0, and the cache latency in 47:32. [Linux 6.12
// ds.c union intel_x86_pebs_latency]
uint64_t latency_field(const Microarch& m, const AdaptiveBehaviour& how, const RecordData& data) {
  if (m.record->cache_latency_shift == 0) return data.latency;
  uint64_t instruction = data.latency & 0xFFFF;
  uint64_t cache = how.cache_latency ? uint64_t{data.cache_latency} & 0xFFFF : 0;
  if (how.latency_halves_swapped) std::swap(instruction, cache);
  return instruction | (cache << m.record->cache_latency_shift);
}

void put_basic(Writer& out, const AdaptiveBehaviour& how, const RecordData& data) {
  out.put(0);  // the header, once the size is known
  out.put(how.counters_before_ip ? data.applicable_counters : data.eventing_ip);
  out.put(how.counters_before_ip ? data.eventing_ip : data.applicable_counters);
  out.put(data.tsc);
  if (how.basic_padded) out.put(0);
}

void put_memory(Writer& out, const Microarch& m, const AdaptiveBehaviour& how,
                const RecordData& data) {
  const std::array<uint64_t, 4> fields = {data.data_address, data.data_source,
                                          latency_field(m, how, data), data.tx_information};
  for (uint8_t field : how.memory_order) out.put(fields[field]);
}

void put_gprs(Writer& out, const AdaptiveBehaviour& how, const RecordData& data,
              const Registers& registers) {
  // AX, BX, CX, DX, SI, DI, BP, SP: what the fixed formats have.
  constexpr Gpr kOldOrder[] = {Gpr::kRax, Gpr::kRbx, Gpr::kRcx, Gpr::kRdx,
                               Gpr::kRsi, Gpr::kRdi, Gpr::kRbp, Gpr::kRsp};
  out.put(data.flags);
  out.put(how.next_ip_in_gprs ? data.ip : data.eventing_ip);
  for (unsigned i = 0; i < kGprs; ++i) {
    const bool old = how.gprs_in_old_order && i < std::size(kOldOrder);
    out.put(registers.gpr[data.gpr_source[old ? static_cast<size_t>(kOldOrder[i]) : i]]);
  }
}

void put_xmm(Writer& out, const AdaptiveBehaviour& how, const VectorRegisters* vectors) {
  constexpr unsigned kXmms = 16;
  for (unsigned i = 0; i < kXmms; ++i) {
    const unsigned from = (i + how.xmm_shift) % kXmms;
    const bool known = vectors != nullptr && how.xmm_recorded;
    out.put(known ? (*vectors)[from][0] : 0);
    out.put(known && how.xmm_upper_half ? (*vectors)[from][1] : 0);
  }
}

void put_branches(Writer& out, const AdaptiveBehaviour& how, const BranchRing* branches,
                  unsigned entries) {
  for (unsigned i = 0; i < entries; ++i) {
    LastBranch entry;
    if (branches != nullptr)
      entry = branches->back(how.branches_newest_first ? i : entries - 1 - i);
    if (how.branches_swapped) std::swap(entry.from, entry.to);
    if (!how.branch_mispredict) entry.info &= ~branch_info::kMispredicted;
    if (!how.branch_cycles) entry.info &= ~branch_info::kMostCycles;
    out.put(entry.from);
    out.put(entry.to);
    out.put(entry.info);
  }
}

// What the configuration includes decides, and the metrics' own bit.
adaptive::SnapshotVectors included(const Version6Behaviour& how, uint64_t config) {
  adaptive::SnapshotVectors vectors = adaptive::snapshot_vectors(config);
  if (how.snapshot_every_counter && (config & adaptive::kCounters) != 0) vectors.gp |= 0xFF;
  if (!how.metrics_need_include && (config & adaptive::kMetrics) != 0) vectors.metrics = 3;
  return vectors;
}

// Header and values of the group of counters.
void put_counters(Writer& out, const Version6Behaviour& how, const CounterSnapshot& now,
                  const adaptive::SnapshotVectors& vectors) {
  const uint32_t named = how.metrics_one_vector_bit ? vectors.metrics & 2 : vectors.metrics;
  const bool swapped = how.snapshot_vectors_swapped;
  const uint64_t low = swapped ? vectors.fixed : vectors.gp;
  out.put(low | uint64_t{swapped ? vectors.gp : vectors.fixed} << 32);
  out.put(named);
  const uint64_t kept = how.snapshot_truncates ? 0xFFFFFFFF : ~uint64_t{0};
  const auto put_some = [&](uint32_t vector, const auto& values) {
    const size_t all = values.size();
    for (size_t k = 0; k < all; ++k) {
      const size_t n = how.snapshot_descending ? all - 1 - k : k;
      if ((vector >> n & 1) != 0) out.put(values[n] & kept);
    }
  };
  if (how.snapshot_fixed_first) put_some(vectors.fixed, now.fixed);
  put_some(vectors.gp, now.gp);
  if (!how.snapshot_fixed_first) put_some(vectors.fixed, now.fixed);
  if (vectors.metrics == 0) return;
  const uint64_t base = now.fixed[adaptive::kMetricsBaseCounter];
  out.put(how.metrics_before_base ? now.metrics : base);
  out.put(how.metrics_before_base ? base : now.metrics);
}

uint64_t retire_latency_of(const AdaptiveBehaviour& how, uint64_t cycles) {
  if (!how.retire_latency) return 0;
  cycles *= how.retire_latency_scale;
  return how.retire_latency_wraps ? cycles & how.retire_latency_most
                                  : std::min<uint64_t>(cycles, how.retire_latency_most);
}

}  // namespace

std::vector<std::byte> adaptive_record(const Microarch& m, const Behaviour& behaviour,
                                       const RecordData& data, const AdaptiveInput& input) {
  const AdaptiveBehaviour& how = behaviour.adaptive;
  const Version6Behaviour& how6 = behaviour.version6;
  const uint64_t snapshot = input.counters != nullptr ? adaptive::kSnapshot : 0;
  const uint64_t selected = input.config & (adaptive::kGroups | snapshot);
  const uint64_t always = how6.snapshot_without_adaptive ? selected & adaptive::kSnapshot : 0;
  const uint64_t groups = input.adaptive ? selected : always;
  const auto put_snapshot = [&](Writer& to, bool before) {
    if ((groups & adaptive::kSnapshot) == 0 || how6.snapshot_before_branches != before) return;
    put_counters(to, how6, *input.counters, included(how6, input.config));
  };
  unsigned entries = adaptive::branch_entries(input.config);
  if (groups & adaptive::kBranches)
    entries -= std::min<unsigned>(how.branches_missing, entries - 1);
  Writer out;
  put_basic(out, how, data);
  for (Group group : how.order) {
    if (group == Group::kBranches) put_snapshot(out, true);
    if (((groups >> static_cast<unsigned>(group)) & 1) == 0) continue;
    switch (group) {
      case Group::kMemory:
        put_memory(out, m, how, data);
        break;
      case Group::kGprs:
        put_gprs(out, how, data, *input.registers);
        break;
      case Group::kXmm:
        put_xmm(out, how, input.vectors);
        break;
      case Group::kBranches:
        put_branches(out, how, input.branches, entries);
        break;
    }
  }
  put_snapshot(out, false);
  uint64_t named = how.names_selected_groups ? selected : groups;
  uint64_t header = how.names_groups ? named : 0;
  if (header & adaptive::kBranches) {
    header |= uint64_t{entries - 1} << adaptive::kBranchEntriesShift;
  }
  if (m.pebs_timing_info || how.retire_latency_unannounced) {
    header |= retire_latency_of(how, data.retire_latency) << adaptive::kRetireLatencyShift;
  }
  size_t size = how.size_of_basic_only ? adaptive::kBasicBytes : out.size();
  header |= (size + static_cast<uint64_t>(int64_t{how.size_bias})) << adaptive::kSizeShift;
  out.replace(0, header);
  return out.take();
}

namespace {

// Address, four reserved words, what the access says, latencies, transaction.
void put_aux(Writer& out, const AdaptiveBehaviour& how, const RecordData& data) {
  constexpr unsigned kReserved = 4;
  uint64_t instruction = data.latency & 0xFFFF;
  uint64_t cache = how.cache_latency ? uint64_t{data.cache_latency} & 0xFFFF : 0;
  if (how.latency_halves_swapped) std::swap(instruction, cache);
  out.put(data.data_address);
  for (unsigned i = 0; i < kReserved; ++i) out.put(0);
  out.put(data.data_source);
  out.put(instruction | cache << 32);
  out.put(data.tx_information);
}

void put_ymm_high(Writer& out, const VectorRegisters* vectors) {
  constexpr unsigned kRegisters = 16;
  for (unsigned i = 0; i < kRegisters; ++i) {
    out.put(vectors != nullptr ? (*vectors)[i][2] : 0);
    out.put(vectors != nullptr ? (*vectors)[i][3] : 0);
  }
}

void put_architectural_branches(Writer& out, const Behaviour& behaviour,
                                const ArchitecturalInput& input) {
  const unsigned depth = input.branches->depth();
  if (!behaviour.arch_pebs.branches_without_header) {
    out.put(0);
    out.put(input.branch_control);
    out.put(depth);
    for (unsigned i = 0; i < 3; ++i) out.put(0);  // the last event record
  }
  put_branches(out, behaviour.adaptive, input.branches,
               architectural::branch_entries(input.groups, depth));
}

}  // namespace

std::vector<std::byte> architectural_record(const Behaviour& behaviour, const RecordData& data,
                                            const ArchitecturalInput& input) {
  const ArchPebsBehaviour& how = behaviour.arch_pebs;
  const AdaptiveBehaviour& adaptive_ones = behaviour.adaptive;
  Writer out;
  out.put(0);  // the header, once the size is known
  out.put(0);
  out.put(how.counters_behind_ip ? data.eventing_ip : data.applicable_counters);
  out.put(how.counters_behind_ip ? data.applicable_counters : data.eventing_ip);
  out.put(data.tsc);
  out.put(retire_latency_of(adaptive_ones, data.retire_latency) |
          (how.retire_valid ? architectural::kRetireValid : 0));
  out.put(0);
  out.put(0);
  if (input.groups & cfg_c::kAux) put_aux(out, adaptive_ones, data);
  if (input.groups & cfg_c::kGprs) {
    RecordData swapped = data;
    if (how.flags_behind_ip) {
      swapped.flags = data.ip;
      swapped.ip = data.flags;
    }
    put_gprs(out, adaptive_ones, swapped, *input.registers);
    out.put(0);  // the shadow stack pointer
    out.put(0);
  }
  if (input.groups & cfg_c::kXer) {
    if (!how.xer_without_header) {
      out.put(0);
      out.put(0);
    }
    if (input.groups & cfg_c::kXmm) put_xmm(out, adaptive_ones, input.vectors);
    if (input.groups & cfg_c::kYmmHigh) put_ymm_high(out, input.vectors);
  }
  if (input.groups & cfg_c::kBranches) put_architectural_branches(out, behaviour, input);
  if (architectural::has_counters(input.groups)) {
    put_counters(out, behaviour.version6, *input.now, input.counters);
  }
  while (out.size() % pebs_index::kUnit != 0) out.put(0);
  const size_t size = out.size() - (how.header_size_less ? architectural::kHeaderBytes : 0);
  out.replace(0, size | (input.mode64 ? architectural::kMode64 : 0) |
                     (how.continued_always ? architectural::kContinued : 0) | input.groups |
                     architectural::kBasic);
  return out.take();
}

}  // namespace skidproof::model
