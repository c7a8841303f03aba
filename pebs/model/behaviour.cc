#include "pebs/model/behaviour.h"

#include <numeric>

namespace skidproof::model {

arch::CpuidLeaf extended_leaf(const arch::Microarch& microarch,
                              const ExtendedLeafBehaviour& behaviour, uint32_t subleaf) {
  arch::CpuidLeaf leaf = extended_perfmon_leaf(microarch, subleaf);
  if (!microarch.extended.leaf) return leaf;
  if (subleaf == arch::cpuid::kExtendedMain) {
    leaf.eax ^= behaviour.wrong_subleaves;
    leaf.ecx += behaviour.slots_more;
  }
  if (subleaf == arch::cpuid::kExtendedCounters) {
    leaf.eax ^= behaviour.wrong_gp;
    leaf.ebx ^= behaviour.wrong_fixed;
  }
  if (subleaf == arch::cpuid::kExtendedPebs && microarch.extended.pebs) {
    leaf.ebx ^= behaviour.wrong_pebs_groups;
  }
  if (subleaf == arch::cpuid::kExtendedPebsCounters && microarch.extended.pebs) {
    leaf.eax ^= behaviour.wrong_pebs_gp;
    leaf.ebx ^= behaviour.wrong_pdist_gp;
    leaf.ecx ^= behaviour.wrong_pebs_fixed;
    leaf.edx ^= behaviour.wrong_pdist_fixed;
  }
  return leaf;
}

Behaviour behaviour_of(const arch::Microarch& microarch, const Rough& rough) {
  Behaviour b;
  b.rough = rough;
  b.full_width_bits = microarch.gp_width;
  b.answering_fixed = microarch.fixed_counters;
  b.pebs_counters = microarch.pebs_counters;
  b.fused_pair_skid = microarch.fused_pair_skid;
  std::iota(b.gpr_source.begin(), b.gpr_source.end(), uint8_t{0});
  b.pdir_counters = microarch.pdir_counter;
  b.precise_store_counters = microarch.precise_store_counter;
  b.core = core_behaviour_of(microarch, rough);
  b.adaptive.pdir_fixed = microarch.pdir_fixed_counter;
  b.adaptive.pdist_counters = microarch.pdist_counters;
  b.adaptive.pdist_on_fixed_next = microarch.pdir_records_next;
  b.adaptive.store_sample_counters = microarch.store_sample_counter;
  b.adaptive.any_event = microarch.pebs_any_event;
  b.efficient.reduced_skid_counters = microarch.reduced_skid_counters;
  b.efficient.load_info = b.efficient.store_info = microarch.access;
  b.freeze_clears_global_ctrl = !microarch.streamlined_freeze();
  b.generation.streamlined_freeze = microarch.streamlined_freeze();
  b.full_sets_ovf_buffer =
      rough.full_buffer == 0 ? microarch.full_buffer_sets_ovf : rough.full_buffer == 1;
  b.bts.unaligned_overrun = rough.unaligned_overrun != 0;
  return b;
}

}  // namespace skidproof::model
