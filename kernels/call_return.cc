// A chain of calls and the returns out of it.
#include "kernels/jit/emitter.h"

namespace skidproof::call_return {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kFunctionBytes = 8;  // a call and a return

}  // namespace

SKIDPROOF_KERNEL(call_return){
    .brief = "depth nested calls and their returns",
    .parameters =
        {{.name = "depth",
          .brief = "calls each iteration; beyond 16 the return predictor of most parts overflows",
          .fallback = 1,
          .low = 1,
          .high = 256},
         {.name = "spacing",
          .brief = "bytes from one function to the next; 0: as near as they can stand",
          .high = 256}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["spacing"] == 0 || p["spacing"] >= kFunctionBytes) return {};
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a function is longer than {} bytes", p["spacing"]),
                  fmt::format("give 0, or {} at least", kFunctionBytes));
    },
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
          e.after_return([&e, function, depth = p["depth"], spacing = p["spacing"]]() mutable {
            if (spacing != 0) e.nops_until((e.address() + kLine - 1) / kLine * kLine);
            for (uint64_t i = 0; i < depth; ++i) {
              const uint64_t next = e.address() + spacing;
              e.bind(function);
              e.mark("function", i);
              if (i + 1 < depth) {
                function = e.newLabel();
                e.mark("call", i + 1);
                e.call(function);
              }
              e.mark("ret", i);
              e.ret();
              if (spacing != 0 && i + 1 < depth) e.unreached_until(next);
            }
          });
        },
};

}  // namespace skidproof::call_return
