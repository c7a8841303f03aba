// Atomic read-modify-writes: one load and one store that nothing comes between.
#include "kernels/jit/emitter.h"

namespace skidproof::locked_rmw {
namespace {

enum Operation : uint64_t { kAdd, kXadd };

}  // namespace

SKIDPROOF_KERNEL(locked_rmw){
    .brief = "lock add or lock xadd, each on a cache line of its own",
    .parameters = {{.name = "operation", .brief = "the instruction", .words = {"add", "xadd"}},
                   {.name = "unroll",
                    .brief = "instructions, and lines, each iteration",
                    .fallback = 1,
                    .low = 1,
                    .high = 1024}},
    .data_bytes = [](const Params& p) -> size_t { return 64 * p["unroll"]; },
    .per_iteration =
        [](const Params& p) {
          uint64_t n = p["unroll"];
          return Expectations{.instructions = n, .loads = n, .stores = n};
        },
    .setup = [](Emitter& e, const Params&) { e.mov(x86::rax, 1); },
    .body =
        [](Emitter& e, const Params& p) {
          for (uint64_t i = 0; i < p["unroll"]; ++i) {
            x86::Mem cell = data_at(static_cast<int32_t>(64 * i));
            e.mark("rmw", i);
            p["operation"] == kAdd ? e.lock().add(cell, x86::rax) : e.lock().xadd(cell, x86::rax);
          }
        },
};

}  // namespace skidproof::locked_rmw
