// No-operations of one byte: every instruction like every other, at every address.
#include "kernels/jit/emitter.h"

namespace skidproof::nop_sled {

SKIDPROOF_KERNEL(nop_sled){
    .brief = "one-byte no-operations",
    .parameters = {{.name = "count",
                    .brief = "no-operations each iteration",
                    .fallback = 64,
                    .low = 1,
                    .high = 64 << 10}},
    .per_iteration = [](const Params& p) { return Expectations{.instructions = p["count"]}; },
    .body =
        [](Emitter& e, const Params& p) {
          e.mark("nop");
          for (uint64_t i = 0; i < p["count"]; ++i) e.nop();
        },
};

}  // namespace skidproof::nop_sled
