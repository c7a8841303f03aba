// A chain of calls and the returns out of it.
#include "kernels/jit/emitter.h"

namespace skidproof::call_return {

SKIDPROOF_KERNEL(call_return){
    .brief = "depth nested calls and their returns",
    .parameters =
        {{.name = "depth",
          .brief = "calls each iteration; beyond 16 the return predictor of most parts overflows",
          .fallback = 1,
          .low = 1,
          .high = 256}},
    .per_iteration =
        [](const Params& p) {
          uint64_t depth = p["depth"];
          return Expectations{.instructions = 2 * depth,
                              .loads = depth,
                              .stores = depth,
                              .branches_taken = 2 * depth};
        },
    .body =
        [](Emitter& e, const Params& p) {
          asmjit::Label function = e.newLabel();
          e.mark("call");
          e.call(function);
          e.after_return([&e, function, depth = p["depth"]]() mutable {
            for (uint64_t i = 0; i < depth; ++i) {
              e.bind(function);
              e.mark("function", i);
              if (i + 1 < depth) {
                function = e.newLabel();
                e.mark("call", i + 1);
                e.call(function);
              }
              e.mark("ret", i);
              e.ret();
            }
          });
        },
};

}  // namespace skidproof::call_return
