// No body at all: what the loop alone does and costs.
#include "kernels/jit/emitter.h"

namespace skidproof::empty {

SKIDPROOF_KERNEL(empty){
    .brief = "the loop alone: sub and jnz",
    .per_iteration = [](const Params&) { return Expectations{}; },
    .body = [](Emitter&, const Params&) {},
};

}  // namespace skidproof::empty
