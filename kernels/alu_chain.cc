// Each instruction waits for the one before: time per instruction is the latency of the operation.
#include "kernels/jit/emitter.h"

namespace skidproof::alu_chain {
namespace {

enum Operation : uint64_t { kAdd, kImul, kRor };

}  // namespace

// add rax, rax and not add rax, 1: recent cores do the latter at rename, in no time at all.
SKIDPROOF_KERNEL(alu_chain){
    .brief = "a chain of dependent integer operations on rax",
    .parameters =
        {{.name = "operation",
          .brief = "add rax, rax (1 cycle); imul rax, rax (3 on Intel's cores); ror rax, 7 (1)",
          .words = {"add", "imul", "ror"}},
         {.name = "length",
          .brief = "operations each iteration",
          .fallback = 64,
          .low = 1,
          .high = 16 << 10}},
    .per_iteration = [](const Params& p) { return Expectations{.instructions = p["length"]}; },
    .setup = [](Emitter& e, const Params&) { e.mov(x86::rax, e.native(0x9E3779B97F4A7C15u)); },
    .body =
        [](Emitter& e, const Params& p) {
          for (uint64_t i = 0; i < p["length"]; ++i) {
            if (i == 0) e.mark("chain");
            switch (p["operation"]) {
              case kAdd:
                e.add(x86::rax, x86::rax);
                break;
              case kImul:
                e.imul(x86::rax, x86::rax);
                break;
              default:
                e.ror(x86::rax, 7);
                break;
            }
          }
        },
};

}  // namespace skidproof::alu_chain
