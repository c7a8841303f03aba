// One conditional jump that goes through a pattern of directions again and again: how long a pattern can be learned.
#include <cstring>
#include <utility>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::repeated_pattern {
namespace {

enum Pattern : uint64_t { kAlternating, kRandom };

std::vector<uint8_t> directions(const Params& p, uint64_t seed) {
  std::vector<uint8_t> out(p["length"]);
  for (uint64_t i = 0; i < out.size(); ++i) out[i] = i % 2 == 0 ? 1 : 0;
  if (p["pattern"] == kRandom) {
    Random random(derive_seed(seed, "repeated_pattern"));
    for (uint64_t i = out.size(); i-- > 1;) std::swap(out[i], out[random.below(i + 1)]);
  }
  return out;
}

}  // namespace

// Both ways execute as many instructions, one jump that is taken and one that is not, so that an iteration is the same
// whatever its direction. The index begins anew by CMOV: a loop over the pattern would have an end to be predicted, too.
SKIDPROOF_KERNEL(repeated_pattern){
    .brief =
        "each iteration one step in a cycle of directions; the two ways of the jump are equally "
        "long",
    .parameters = {{.name = "pattern",
                    .brief = "random: half of them taken, by the seed",
                    .words = {"alternating", "random"}},
                   {.name = "length",
                    .brief = "of the cycle; an even number",
                    .fallback = 64,
                    .low = 2,
                    .high = 32 << 10}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["length"] % 2 == 0) return {};
      return fail(ErrorCode::kInvalidArgument, "length is odd",
                  "half of the directions must be a number");
    },
    .data_bytes = [](const Params& p) -> size_t { return p["length"]; },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          const std::vector<uint8_t> table = directions(p, seed);
          std::memcpy(host.data(), table.data(), table.size());
        },
    .per_iteration =
        [](const Params&) {
          return Expectations{.instructions = 7,
                              .loads = 1,
                              .branches_taken = 1,
                              .branches_not_taken = 1,
                              .fusible_pairs = 1};
        },
    .setup = [](Emitter& e, const Params& p) { e.mov(x86::r8, p["length"]); },
    .body =
        [](Emitter& e, const Params&) {
          const asmjit::Label one = e.newLabel(), join = e.newLabel();
          e.mark("load");
          e.movzx(x86::eax, data_at(x86::rcx, 0, 1));
          e.inc(x86::rcx);
          e.cmp(x86::rcx, x86::r8);
          e.cmove(x86::rcx, x86::rdx);
          e.mark("first");
          e.test(x86::eax, x86::eax);
          e.mark("branch");
          e.short_().jne(one);
          e.mark("next");
          e.short_().jmp(join);
          e.bind(one);
          e.mark("target");
          e.short_().jb(join);  // never: TEST clears CF
          e.bind(join);
        },
    .long_mode_only = true,
};

}  // namespace skidproof::repeated_pattern
