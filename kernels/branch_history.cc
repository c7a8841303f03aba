// A conditional jump, others that are always taken, and one that goes as the first went: the last is known only to a
// predictor that remembers so far back. The code is the same where it goes its own way instead: the data differ.
#include <cstring>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::branch_history {
namespace {

enum Second : uint64_t { kSame, kIndependent };

constexpr uint64_t kBetweenBytes = 8;  // from one jump between to the next

// Ways of equal length: one jump that is taken and one that is not on each.
void diamond(Emitter& e, uint64_t index) {
  const asmjit::Label one = e.newLabel(), join = e.newLabel();
  e.test(x86::eax, 1 + index);  // its bit of the entry
  e.mark("branch", index);
  e.short_().jne(one);
  e.short_().jmp(join);
  e.bind(one);
  e.short_().jb(join);  // never: TEST clears CF
  e.bind(join);
}

}  // namespace

SKIDPROOF_KERNEL(branch_history){
    .brief = "a jump in a random direction, taken jumps, and one more with a direction",
    .parameters =
        {{.name = "second",
          .brief = "goes as the first went, or by itself",
          .words = {"same", "independent"}},
         {.name = "between", .brief = "jumps between the two", .fallback = 4, .high = 2048},
         {.name = "length",
          .brief = "directions in the table, which the iterations go through; a power of two",
          .fallback = 1024,
          .low = 2,
          .high = 64 << 10}},
    .check = [](const Params& p) -> Expected<void> {
      if ((p["length"] & (p["length"] - 1)) == 0) return {};
      return fail(ErrorCode::kInvalidArgument, fmt::format("a length of {}", p["length"]),
                  "give a power of two");
    },
    .data_bytes = [](const Params& p) -> size_t { return p["length"]; },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          Random random(derive_seed(seed, "branch_history"));
          for (std::byte& entry : host) {
            const uint64_t first = random.below(2), other = random.below(2);
            entry = static_cast<std::byte>(first | (p["second"] == kSame ? first : other) << 1);
          }
        },
    .per_iteration =
        [](const Params& p) {
          return Expectations{.instructions = 9 + p["between"],
                              .loads = 1,
                              .branches_taken = 2 + p["between"],
                              .branches_not_taken = 2,
                              .fusible_pairs = 2};
        },
    .body =
        [](Emitter& e, const Params& p) {
          e.mov(x86::ecx, x86::edi);
          e.and_(x86::ecx, p["length"] - 1);
          e.mark("load");
          e.movzx(x86::eax, data_at(x86::rcx, 0, 1));
          diamond(e, 0);
          uint64_t target = e.address();
          for (uint64_t i = 0; i < p["between"]; ++i) {
            const asmjit::Label next = e.newLabel();
            if (i == 0) e.mark("between");
            e.short_().jmp(next);
            target += kBetweenBytes;
            e.unreached_until(target);
            e.bind(next);
          }
          diamond(e, 1);
        },
};

}  // namespace skidproof::branch_history
