// One conditional jump whose directions are data: as easy or as hard to predict as the pattern is.
#include <cstring>
#include <numeric>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::branch_pattern {
namespace {

enum Pattern : uint64_t { kAlways, kNever, kAlternating, kRandom };

uint64_t taken(const Params& p) {
  switch (p["pattern"]) {
    case kAlways:
      return p["length"];
    case kNever:
      return 0;
    default:
      return p["length"] / 2;
  }
}

// One direction each, 1 taken. The random pattern is a shuffle of as many ones as zeros, so that
// the counts of an iteration do not depend on the seed.
std::vector<uint64_t> directions(const Params& p, uint64_t seed) {
  std::vector<uint64_t> out(p["length"]);
  uint64_t pattern = p["pattern"];
  for (uint64_t i = 0; i < out.size(); ++i) {
    out[i] = pattern == kAlways || (pattern != kNever && i % 2 == 0) ? 1 : 0;
  }
  if (pattern == kRandom) {
    Random random(derive_seed(seed, "branch_pattern"));
    for (uint64_t i = out.size(); i-- > 1;) std::swap(out[i], out[random.below(i + 1)]);
  }
  return out;
}

}  // namespace

SKIDPROOF_KERNEL(branch_pattern){
    .brief = "each iteration reads a table of directions and jumps, or not, once for each entry",
    .parameters = {{.name = "pattern",
                    .brief = "of the directions; random: half of them taken, by the seed",
                    .words = {"always", "never", "alternating", "random"}},
                   {.name = "length",
                    .brief = "entries in the table; an even number",
                    .fallback = 64,
                    .low = 2,
                    .high = 64 << 10}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["length"] % 2 == 0) return {};
      return fail(ErrorCode::kInvalidArgument, "length is odd",
                  "half of the directions must be a number");
    },
    .data_bytes = [](const Params& p) -> size_t { return p["length"] * 8; },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          std::vector<uint64_t> table = directions(p, seed);
          std::memcpy(host.data(), table.data(), table.size() * 8);
        },
    .per_iteration =
        [](const Params& p) {
          uint64_t n = p["length"];
          uint64_t fall = n - taken(p);
          return Expectations{.instructions = 1 + 6 * n + fall,
                              .loads = n,
                              .branches_taken = taken(p) + n - 1,
                              .branches_not_taken = fall + 1,
                              .fusible_pairs = 2 * n};
        },
    .body =
        [](Emitter& e, const Params& p) {
          asmjit::Label again = e.newLabel();
          asmjit::Label target = e.newLabel();
          e.xor_(x86::ecx, x86::ecx);
          e.bind(again);
          e.mark("load");
          e.mov(x86::rax, x86::ptr(kData, x86::rcx, 3));
          e.mark("first");
          e.test(x86::rax, x86::rax);
          e.mark("branch");
          e.short_().jne(target);
          e.mark("next");
          e.nop();
          e.bind(target);
          e.mark("target");
          e.inc(x86::rcx);
          e.mark("table.cmp");
          e.cmp(x86::rcx, p["length"]);
          e.mark("table.jne");
          e.short_().jne(again);
        },
};

}  // namespace skidproof::branch_pattern
