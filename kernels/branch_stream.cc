// Every kind of near branch in a known order: what a branch trace must show.
#include "kernels/jit/emitter.h"

namespace skidproof::branch_stream {
namespace {

// Over a no-operation that is never executed.
void jump_over(Emitter& e) {
  asmjit::Label over = e.newLabel();
  e.mark("jump");
  e.short_().jmp(over);
  e.nop();
  e.bind(over);
}

// A taken branch whose target is the instruction behind it.
void jump_to_next(Emitter& e) {
  asmjit::Label next = e.newLabel();
  e.mark("jump.next");
  e.short_().jmp(next);
  e.bind(next);
}

void jump_indirect(Emitter& e) {
  asmjit::Label target = e.newLabel();
  e.lea(x86::rax, x86::ptr(target));
  e.mark("jump.indirect");
  e.jmp(x86::rax);
  e.nop();
  e.bind(target);
  e.mark("jump.indirect.target");
  e.nop();
}

// rdx is 1: JE after TEST of it falls through, JNE jumps.
void conditional(Emitter& e) {
  asmjit::Label over = e.newLabel();
  e.test(x86::rdx, x86::rdx);
  e.mark("not_taken");
  e.short_().je(over);
  e.mark("taken");
  e.short_().jne(over);
  e.nop();
  e.bind(over);
}

void calls(Emitter& e) {
  asmjit::Label outer = e.newLabel();
  asmjit::Label inner = e.newLabel();
  e.mark("call");
  e.call(outer);
  e.lea(x86::rax, x86::ptr(inner));
  e.mark("call.indirect");
  e.call(x86::rax);
  e.after_return([&e, outer, inner] {
    e.bind(outer);
    e.mark("call.nested");
    e.call(inner);
    e.mark("ret.outer");
    e.ret();
    e.bind(inner);
    e.mark("call.indirect.target");
    e.mark("ret.inner");
    e.ret();
  });
}

void inner_loop(Emitter& e, uint64_t trips) {
  asmjit::Label again = e.newLabel();
  e.mov(x86::ecx, trips);
  e.bind(again);
  e.nop();
  e.sub(x86::ecx, 1);
  e.mark("inner.jnz");
  e.short_().jnz(again);
}

}  // namespace

SKIDPROOF_KERNEL(branch_stream){
    .brief = "jumps, calls, returns and conditional jumps, direct and indirect, in a known order",
    .parameters = {{.name = "trips",
                    .brief = "times round the inner loop each iteration",
                    .fallback = 3,
                    .low = 1,
                    .high = 64}},
    .per_iteration =
        [](const Params& p) {
          uint64_t trips = p["trips"];
          return Expectations{.instructions = 16 + 3 * trips,
                              .loads = 3,
                              .stores = 3,
                              .branches_taken = 9 + trips,
                              .branches_not_taken = 2,
                              .fusible_pairs = 1 + trips};
        },
    .setup = [](Emitter& e, const Params&) { e.mov(x86::rdx, 1); },
    .body =
        [](Emitter& e, const Params& p) {
          jump_over(e);
          jump_to_next(e);
          jump_indirect(e);
          conditional(e);
          calls(e);
          inner_loop(e, p["trips"]);
        },
};

}  // namespace skidproof::branch_stream
