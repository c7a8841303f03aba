// One event an iteration, far in cycles from the next: whatever is done about one is done before
// the other.
#include "kernels/jit/emitter.h"

namespace skidproof::sparse_event {
namespace {

enum Event : uint64_t { kLoad, kStore, kTaken, kNotTaken, kSimd };

// Dependent, so that none can start before the one before it has ended. No step loses what the one
// before it gave: RAX stays different from step to step, which a record is told by.
void chain(Emitter& e, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    i % 2 == 0 ? e.imul(x86::rax, x86::rdx) : e.add(x86::rax, x86::rdx);
  }
}

// A no-operation keeps TEST and the jump apart: the event is not part of a fusible pair.
void not_taken(Emitter& e) {
  asmjit::Label never = e.newLabel();
  e.test(x86::rdx, x86::rdx);
  e.nop();
  e.mark("event");
  e.short_().je(never);
  e.mark("after");
  e.nop();
  e.bind(never);
}

void body(Emitter& e, const Params& p) {
  uint64_t half = p["spacing"] / 2;
  chain(e, half);
  switch (p["event"]) {
    case kLoad:
    case kStore:
      e.mark("event");
      p["event"] == kLoad ? e.mov(x86::rcx, data_at(0)) : e.mov(data_at(0), kCounter);
      e.mark("after");
      break;
    case kNotTaken:
      not_taken(e);
      break;
    case kSimd:
      e.mark("event");
      e.movd(x86::ecx, x86::xmm0);
      e.mark("after");
      break;
    default:
      e.alias("event", "loop.jnz");
      e.alias("after", "loop.first");
      break;
  }
  chain(e, p["spacing"] - half);
}

Expectations expect(const Params& p) {
  Expectations out{.instructions = p["spacing"]};
  switch (p["event"]) {
    case kLoad:
      out += {.instructions = 1, .loads = 1};
      break;
    case kStore:
      out += {.instructions = 1, .stores = 1};
      break;
    case kNotTaken:
      out += {.instructions = 4, .branches_not_taken = 1};
      break;
    case kSimd:
      out += {.instructions = 1};
      break;
    default:
      break;
  }
  return out;
}

}  // namespace

SKIDPROOF_KERNEL(sparse_event){
    .brief =
        "one load, store, taken or not-taken branch, or SIMD move each iteration, amid a dependent "
        "chain",
    .parameters =
        {{.name = "event",
          .brief = "what happens once; taken is the loop's own jump, so that there is no other",
          .words = {"load", "store", "taken", "not_taken", "simd"}},
         {.name = "spacing",
          .brief = "dependent imul and add each iteration, half of them before the event",
          .fallback = 64,
          .low = 2,
          .high = 16 << 10}},
    .data_bytes = [](const Params& p) -> size_t { return p["event"] <= kStore ? 64 : 0; },
    .per_iteration = expect,
    .setup =
        [](Emitter& e, const Params&) {
          e.mov(x86::rax, 3);
          e.mov(x86::rdx, e.native(0x9E3779B97F4A7C15u));
        },
    .body = body,
};

}  // namespace skidproof::sparse_event
