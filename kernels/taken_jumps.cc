// Jumps that are always taken, at equal distances: what one costs by how many there are, by how far apart they stand, and
// by where in its line a target begins.
#include "kernels/jit/emitter.h"

namespace skidproof::taken_jumps {
namespace {

enum Kind : uint64_t { kJmp, kJcc };

constexpr uint64_t kRunBytes = 4;   // of a no-operation that is executed
constexpr uint64_t kJumpBytes = 2;  // with a displacement of one byte
constexpr uint64_t kNopBytes = 9;   // the longest no-operation

uint64_t lead(const Params& p) { return (p["offset"] + kNopBytes - 1) / kNopBytes; }

}  // namespace

SKIDPROOF_KERNEL(taken_jumps){
    .brief = "jumps over what stands between them, one after another",
    .parameters =
        {{.name = "jumps", .brief = "each iteration", .fallback = 16, .low = 1, .high = 64 << 10},
         {.name = "spacing",
          .brief = "bytes from one target to the next",
          .fallback = 16,
          .low = kJumpBytes,
          .high = 128},
         {.name = "offset",
          .brief = "bytes from the loop's beginning, a line's, to the first target; no-operations "
                   "stand there",
          .high = 127},
         {.name = "run",
          .brief = "no-operations of four bytes between a target and its jump",
          .high = 31},
         {.name = "kind",
          .brief = "jcc: conditional ones, whose targets a decoder does not follow by itself",
          .words = {"jmp", "jcc"}}},
    .check = [](const Params& p) -> Expected<void> {
      if (kRunBytes * p["run"] + kJumpBytes <= p["spacing"]) return {};
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} no-operations and a jump are longer than {} bytes", p["run"],
                              p["spacing"]),
                  "more spacing, or a shorter run");
    },
    .per_iteration =
        [](const Params& p) {
          return Expectations{.instructions = (p["run"] + 1) * p["jumps"] + lead(p),
                              .branches_taken = p["jumps"]};
        },
    // An iteration begins where the loop's own JNZ was taken, so that JNE is taken as well: nothing here writes flags.
    .body =
        [](Emitter& e, const Params& p) {
          uint64_t target = e.address() + p["offset"];
          e.nops_until(target);
          e.mark("jump");
          for (uint64_t i = 0; i < p["jumps"]; ++i) {
            const asmjit::Label next = e.newLabel();
            for (uint64_t nop = 0; nop < p["run"]; ++nop) e.nop_of(kRunBytes);
            p["kind"] == kJmp ? e.short_().jmp(next) : e.short_().jne(next);
            target += p["spacing"];
            e.nops_until(target);
            e.bind(next);
          }
        },
};

}  // namespace skidproof::taken_jumps
