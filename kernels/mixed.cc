// Loads, stores, arithmetic and branches in known numbers, interleaved.
#include <array>

#include "kernels/jit/emitter.h"

namespace skidproof::mixed {
namespace {

constexpr uint64_t kMost = 64;

// r8 is 1: JE after TEST of it falls through, JNE jumps.
void emit_branch(Emitter& e, bool taken, uint64_t i) {
  asmjit::Label target = e.newLabel();
  e.test(x86::r8, x86::r8);
  e.mark(taken ? "taken" : "not_taken", i);
  taken ? e.short_().jne(target) : e.short_().je(target);
  e.nop();
  e.bind(target);
}

void emit_alu(Emitter& e, uint64_t i) {
  e.mark("alu", i);
  i % 2 == 0 ? e.add(x86::rcx, x86::r8) : e.imul(x86::rdx, x86::rcx);
}

// One of each kind in turn until all are written.
void body(Emitter& e, const Params& p) {
  for (uint64_t i = 0; i < kMost; ++i) {
    if (i < p["loads"]) {
      e.mark("load", i);
      e.mov(x86::rax, data_at(static_cast<int32_t>(64 * i)));
    }
    if (i < p["alu"]) emit_alu(e, i);
    if (i < p["stores"]) {
      e.mark("store", i);
      e.mov(data_at(static_cast<int32_t>(64 * (kMost + i))), kCounter);
    }
    if (i < p["taken"]) emit_branch(e, true, i);
    if (i < p["not_taken"]) emit_branch(e, false, i);
  }
}

}  // namespace

SKIDPROOF_KERNEL(mixed){
    .brief = "loads, stores, arithmetic and branches in known numbers",
    .parameters =
        {{.name = "loads", .brief = "loads, a line each", .fallback = 4, .high = kMost},
         {.name = "stores", .brief = "stores, a line each", .fallback = 2, .high = kMost},
         {.name = "alu", .brief = "additions and multiplications", .fallback = 8, .high = kMost},
         {.name = "taken", .brief = "conditional jumps taken", .fallback = 2, .high = kMost},
         {.name = "not_taken",
          .brief = "conditional jumps that fall through",
          .fallback = 2,
          .high = kMost}},
    .data_bytes = [](const Params&) -> size_t { return 2 * kMost * 64; },
    .per_iteration =
        [](const Params& p) {
          return Expectations{.instructions = p["loads"] + p["stores"] + p["alu"] + 2 * p["taken"] +
                                              3 * p["not_taken"],
                              .loads = p["loads"],
                              .stores = p["stores"],
                              .branches_taken = p["taken"],
                              .branches_not_taken = p["not_taken"],
                              .fusible_pairs = p["taken"] + p["not_taken"]};
        },
    .setup = [](Emitter& e, const Params&) { e.mov(x86::r8, 1); },
    .body = body,
    .long_mode_only = true,
};

}  // namespace skidproof::mixed
