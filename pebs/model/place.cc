// An instruction among its neighbours: fused pairs, slots and stalls of a block, and what it adds to
// the signals.
#include <algorithm>

#include "pebs/model/decode.h"

namespace skidproof::model {

using arch::Signal;

namespace {

// Slots that un-lamination adds.
unsigned split_uops(const InstructionFacts& f, const CoreBehaviour& behaviour) {
  if (f.rip_immediate && behaviour.rip_immediate_splits) return 1;
  if (!f.indexed) return 0;
  return behaviour.indexed == arch::IndexedFusion::kTwoOperands && f.keeps_indexed ? 0 : 1;
}

bool fuses(const InstructionFacts& first, const InstructionFacts& jump,
           const CoreBehaviour& behaviour) {
  arch::FusionFirst kind = first.fusion;
  const bool mistaken = (first.bitwise && behaviour.fuses_bitwise) ||
                        (first.arithmetic && behaviour.fuses_arithmetic);
  if (mistaken) kind = arch::FusionFirst::kTest;
  return behaviour.fusion.fuses(
      kind, arch::condition_of_code(jump.condition), first.explicit_load,
      first.explicit_store && !behaviour.fuses_writes,
      first.immediate && first.explicit_load && !behaviour.fuses_immediates,
      jump.mode == Mode::kLong);
}

// Whether the two begin on either side of a border.
bool apart(const InstructionFacts& first, const InstructionFacts& jump, uint32_t border) {
  return border != 0 && first.address / border != jump.address / border;
}

}  // namespace

void place(std::span<InstructionFacts> block, const CoreBehaviour& behaviour) {
  const unsigned width = std::max(1u, behaviour.caches.retire_width);
  for (size_t n = 0; n < block.size(); ++n) {
    InstructionFacts& f = block[n];
    f.fused_with_next = f.fused_with_previous = false;
    f.slots = static_cast<uint8_t>(f.uops + split_uops(f, behaviour));
    unsigned held = f.occupancy * width;
    bool chained = n > 0 && f.chain != kNoRegister && (block[n - 1].writes >> f.chain & 1);
    unsigned latency = 0;  // of what nothing hides, in slots
    if (chained) latency = f.latency * width;
    if (f.dependent_load) latency += behaviour.caches.l1_latency * width;
    if (latency > f.slots) held = std::max(held, latency - f.slots);
    f.stall = static_cast<uint16_t>(std::min(held, 128 * width));
    if (n == 0 || !f.jcc) continue;
    const bool over_lines = !block[n - 1].nop && block[n - 1].end() % 64 == 0;
    const uint8_t more = over_lines ? behaviour.line_end_uops : uint8_t{0};
    const bool over_a_nop = behaviour.fuses_apart && n > 1 && block[n - 1].nop;
    InstructionFacts& first = block[over_a_nop ? n - 2 : n - 1];
    if (fuses(first, f, behaviour) && !apart(first, f, behaviour.fusion_border)) {
      first.fused_with_next = true;
      f.fused_with_previous = true;
      f.slots = 0;
      f.stall = static_cast<uint16_t>(
          std::min<uint32_t>(f.stall + behaviour.fused_stall * width, 128 * width));
    }
    f.slots = static_cast<uint8_t>(f.slots + more);
  }
}

void add_static_counts(const InstructionFacts& f, arch::SignalCounts& counts) {
  auto add = [&](Signal signal, uint64_t n) { counts[arch::index(signal)] += n; };
  add(Signal::kInstructions, 1);
  add(Signal::kUops, f.slots);
  add(Signal::kMacroFused, f.fused_with_next);
  add(Signal::kNops, f.nop);
  add(Signal::kSimd, f.simd);
  add(Signal::kLoads, f.loads);
  add(Signal::kStores, f.stores);
  add(Signal::kLockedLoads, f.locked && f.loads > 0);
  if (f.branch == Branch::kNone) return;
  bool call = f.branch == Branch::kCall || f.branch == Branch::kIndirectCall;
  bool conditional = f.branch == Branch::kConditional;
  add(Signal::kBranches, 1);
  add(Signal::kConditional, conditional);
  add(Signal::kNearCalls, call);
  add(Signal::kNearReturns, f.branch == Branch::kReturn);
  add(Signal::kNearTaken, !conditional);
}

}  // namespace skidproof::model
