// A load of each line of a window, one pass each iteration, with a pause between two groups of them: traffic of a chosen
// rate for somebody else's measurement.
#include "kernels/jit/emitter.h"

namespace skidproof::paced_stream {
namespace {

constexpr uint64_t kLine = 64;

uint64_t groups(const Params& p) { return p["window"] / (p["lines"] * kLine); }

}  // namespace

SKIDPROOF_KERNEL(paced_stream){
    .brief =
        "loads of each line of a window with pauses in between: memory traffic of a chosen rate",
    .parameters = {{.name = "window",
                    .brief = "bytes; a multiple of a group of lines",
                    .fallback = 4 << 10,
                    .low = kLine,
                    .high = uint64_t{4} << 30},
                   {.name = "lines",
                    .brief = "loaded between two pauses",
                    .fallback = 8,
                    .low = 1,
                    .high = 64},
                   {.name = "pause",
                    .brief = "steps of a countdown of a cycle each; 0: none",
                    .high = 1 << 20}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["window"] % (p["lines"] * kLine) == 0) return {};
      return fail(ErrorCode::kInvalidArgument, "window is not a multiple of a group of lines",
                  "the walk would pass its end");
    },
    .data_bytes = [](const Params& p) -> size_t { return p["window"]; },
    .per_iteration =
        [](const Params& p) {
          const uint64_t n = groups(p), lines = p["lines"], steps = p["pause"];
          const uint64_t pause = steps == 0 ? 0 : 1 + 2 * steps;
          return Expectations{.instructions = 1 + n * (lines + 3 + pause),
                              .loads = n * lines,
                              .branches_taken = n - 1 + (steps == 0 ? 0 : n * (steps - 1)),
                              .branches_not_taken = 1 + (steps == 0 ? 0 : n),
                              .fusible_pairs = n * (1 + steps)};
        },
    // rcx is where the walk is, r9 where it ends, r10 counts the pause down.
    .setup =
        [](Emitter& e, const Params& p) {
          e.mov(x86::rcx, kData);
          e.mov(x86::r9, p["window"]);
          e.add(x86::r9, kData);
        },
    .body =
        [](Emitter& e, const Params& p) {
          const asmjit::Label again = e.newLabel();
          e.bind(again);
          for (uint64_t i = 0; i < p["lines"]; ++i) {
            e.mark("load", i);
            e.mov(i % 2 == 0 ? x86::rax : x86::rdx,
                  x86::ptr(x86::rcx, static_cast<int32_t>(i * kLine), 8));
          }
          if (p["pause"] != 0) {
            const asmjit::Label wait = e.newLabel();
            e.mov(x86::r10d, p["pause"]);
            e.bind(wait);
            e.sub(x86::r10, 1);
            e.mark("pause.jnz");
            e.jnz(wait);
          }
          e.add(x86::rcx, p["lines"] * kLine);
          e.cmp(x86::rcx, x86::r9);
          e.mark("pass.jb");
          e.jb(again);
          e.mov(x86::rcx, kData);
        },
    .long_mode_only = true,
};

}  // namespace skidproof::paced_stream
