// One indirect jump through a fixed order of targets.
#include <cstring>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::indirect_jumps {
namespace {

constexpr uint64_t kTargetBytes = 16;  // from one target to the next

// Each target once, as offsets from the first.
std::vector<uint32_t> offsets(uint64_t targets, uint64_t seed) {
  std::vector<uint32_t> out(targets);
  std::iota(out.begin(), out.end(), 0u);
  Random random(derive_seed(seed, "indirect_jumps"));
  for (uint64_t i = targets; i-- > 1;) std::swap(out[i], out[random.below(i + 1)]);
  for (uint32_t& offset : out) offset *= kTargetBytes;
  return out;
}

}  // namespace

SKIDPROOF_KERNEL(indirect_jumps){
    .brief = "each iteration an indirect jump to the next of its targets, which jumps back",
    .parameters =
        {{.name = "targets",
          .brief = "gone to one after the other in a random order, by the seed, again and again",
          .fallback = 4,
          .low = 1,
          .high = 16 << 10}},
    .data_bytes = [](const Params& p) -> size_t { return sizeof(uint32_t) * p["targets"]; },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          const std::vector<uint32_t> table = offsets(p["targets"], seed);
          std::memcpy(host.data(), table.data(), sizeof(uint32_t) * table.size());
        },
    .per_iteration =
        [](const Params&) {
          return Expectations{.instructions = 8, .loads = 1, .branches_taken = 2};
        },
    .setup = [](Emitter& e, const Params& p) { e.mov(x86::r9, p["targets"]); },
    .body =
        [](Emitter& e, const Params& p) {
          const asmjit::Label first = e.newLabel(), back = e.newLabel();
          e.lea(x86::r8, x86::ptr(first));
          e.mark("load");
          e.mov(x86::eax, x86::dword_ptr(kData, x86::rcx, 2));
          e.inc(x86::rcx);
          e.cmp(x86::rcx, x86::r9);
          e.cmove(x86::rcx, x86::rdx);
          e.add(x86::rax, x86::r8);
          e.mark("branch");
          e.jmp(x86::rax);
          e.bind(back);
          e.after_return([&e, first, back, targets = p["targets"]] {
            e.nops_until((e.address() + kTargetBytes - 1) / kTargetBytes * kTargetBytes);
            e.bind(first);
            for (uint64_t i = 0; i < targets; ++i) {
              const uint64_t next = e.address() + kTargetBytes;
              if (i == 0) e.mark("target");
              e.jmp(back);
              e.unreached_until(next);
            }
          });
        },
    .long_mode_only = true,
};

}  // namespace skidproof::indirect_jumps
