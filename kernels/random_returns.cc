// Nested calls, the outer ones each from one of two places as the data say: only a stack of returns knows where each of
// them goes back to, since random jumps in the innermost function leave no history that would tell.
#include <algorithm>
#include <cstring>
#include <functional>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::random_returns {
namespace {

enum Data : uint64_t { kRandom, kFixed };

constexpr uint64_t kWords = 512;  // one for each iteration, again and again
constexpr uint64_t kLine = 64;

// Two calls of the next function, one of which is reached. Both ways have a jump that is taken and one that is not.
void choice(Emitter& e, const asmjit::Label& function, const std::function<void()>& after) {
  const asmjit::Label one = e.newLabel(), zero = e.newLabel();
  e.ror(x86::rax, 1);
  e.short_().jc(one);
  e.short_().jmp(zero);
  e.bind(one);
  e.short_().jnc(zero);  // never
  e.call(function);
  after();
  e.bind(zero);
  e.call(function);
  after();
}

// A jump of its own in a random direction, both ways equally long.
void shuffle(Emitter& e) {
  const asmjit::Label one = e.newLabel(), join = e.newLabel();
  e.ror(x86::rax, 1);
  e.short_().jc(one);
  e.short_().jmp(join);
  e.bind(one);
  e.short_().jnc(join);  // never
  e.bind(join);
}

uint64_t choices(const Params& p) { return std::min(p["choices"], p["depth"]); }

}  // namespace

SKIDPROOF_KERNEL(random_returns){
    .brief =
        "depth nested calls and their returns, the outer calls from one of two places by random "
        "data",
    .parameters =
        {{.name = "depth", .brief = "calls each iteration", .fallback = 4, .low = 1, .high = 256},
         {.name = "choices",
          .brief = "outer calls that come from two places",
          .fallback = 1,
          .low = 1,
          .high = 256},
         {.name = "shuffles",
          .brief = "random jumps in the innermost function",
          .fallback = 8,
          .high = 32},
         {.name = "data",
          .brief = "fixed: the calls come from the same places always, up to 63 of them",
          .words = {"random", "fixed"}}},
    .data_bytes = [](const Params&) -> size_t { return 8 * kWords; },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          Random random(derive_seed(seed, "random_returns"));
          for (size_t at = 0; at + 8 <= host.size(); at += 8) {
            uint64_t word = random.next();
            if (p["data"] == kFixed)
              word &= ~((uint64_t{1} << std::min<uint64_t>(choices(p), 63)) - 1);
            std::memcpy(host.data() + at, &word, sizeof word);
          }
        },
    .per_iteration =
        [](const Params& p) {
          const uint64_t depth = p["depth"], jumps = choices(p) + p["shuffles"];
          return Expectations{.instructions = 4 + 2 * depth + 3 * jumps,
                              .loads = 1 + depth,
                              .stores = depth,
                              .branches_taken = 1 + 2 * depth + jumps,
                              .branches_not_taken = jumps};
        },
    .body =
        [](Emitter& e, const Params& p) {
          const asmjit::Label function = e.newLabel(), join = e.newLabel();
          e.mov(x86::ecx, x86::edi);
          e.and_(x86::ecx, kWords - 1);
          e.mark("load");
          e.mov(x86::rax, x86::ptr(kData, x86::rcx, 3));
          choice(e, function, [&] { e.jmp(join); });
          e.bind(join);
          e.after_return(
              [&e, function, depth = p["depth"], choices = choices(p), shuffles = p["shuffles"]]() {
                asmjit::Label at = function;
                for (uint64_t i = 1; i <= depth; ++i) {
                  e.unreached_until((e.address() + kLine - 1) / kLine * kLine);
                  e.bind(at);
                  if (i == 1) e.mark("function");
                  if (i < depth) at = e.newLabel();
                  if (i == depth) {
                    for (uint64_t k = 0; k < shuffles; ++k) shuffle(e);
                  } else if (i < choices) {
                    choice(e, at, [&] { e.ret(); });
                    continue;
                  } else {
                    e.call(at);
                  }
                  e.ret();
                }
              });
        },
    .long_mode_only = true,
};

}  // namespace skidproof::random_returns
