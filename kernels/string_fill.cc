// REP STOSQ: one instruction however many elements it stores.
#include "kernels/jit/emitter.h"

namespace skidproof::string_fill {

SKIDPROOF_KERNEL(string_fill){
    .brief = "fills memory with repeated string stores",
    .parameters = {{.name = "elements",
                    .brief = "of eight bytes that each instruction stores",
                    .fallback = 16,
                    .high = 512},
                   {.name = "copies",
                    .brief = "repeated instructions in each iteration",
                    .fallback = 4,
                    .low = 1,
                    .high = 64}},
    .data_bytes = [](const Params&) -> size_t { return 4096; },
    .per_iteration =
        [](const Params& p) {
          Expectations one{.instructions = 5, .stores = 1};
          return one * p["copies"];
        },
    .body =
        [](Emitter& e, const Params& p) {
          for (uint64_t i = 0; i < p["copies"]; ++i) {
            e.mov(x86::r8, kCounter);
            e.mov(x86::rdi, kData);
            e.mov(x86::ecx, p["elements"]);
            e.mark("fill", i);
            e.rep().stosq();
            e.mov(kCounter, x86::r8);
          }
        },
    .long_mode_only = true,
    .string_instructions = true,
};

}  // namespace skidproof::string_fill
