// Taken jumps, each at an address of its own: the last branches say how far the program was.
#include "kernels/jit/emitter.h"

namespace skidproof::jump_chain {

SKIDPROOF_KERNEL(jump_chain){
    .brief = "jumps to the next instruction, one after another",
    .parameters = {{.name = "jumps",
                    .brief = "jumps each iteration",
                    .fallback = 64,
                    .low = 1,
                    .high = 64 << 10}},
    .per_iteration =
        [](const Params& p) {
          return Expectations{.instructions = p["jumps"], .branches_taken = p["jumps"]};
        },
    .body =
        [](Emitter& e, const Params& p) {
          e.mark("jump");
          for (uint64_t i = 0; i < p["jumps"]; ++i) {
            asmjit::Label next = e.newLabel();
            e.short_().jmp(next);
            e.bind(next);
          }
        },
};

}  // namespace skidproof::jump_chain
