// One instruction of two uops that may be one in the fused domain, with each form of address.
#include "kernels/jit/emitter.h"

namespace skidproof::micro_fusion {
namespace {

enum Operation : uint64_t { kAddLoad, kAdcLoad, kCmovLoad, kVexLoad, kStore, kCompareImmediate };
enum Address : uint64_t { kBase, kIndexed, kRip };

bool stores(const Params& p) { return p["operation"] == kStore; }

void emit_one(Emitter& e, const Params& p, const x86::Mem& cell) {
  switch (p["operation"]) {
    case kAddLoad:
      e.add(x86::rax, cell);
      break;
    case kAdcLoad:
      e.adc(x86::rax, cell);
      break;
    case kCmovLoad:
      e.cmove(x86::rax, cell);
      break;
    case kVexLoad:
      e.vaddsd(x86::xmm0, x86::xmm1, cell);
      break;
    case kStore:
      e.mov(cell, x86::rax);
      break;
    default:
      e.cmp(cell, 1);
      break;
  }
}

}  // namespace

SKIDPROOF_KERNEL(micro_fusion){
    .brief = "an operation with a memory operand: its base alone, with an index, or RIP-relative",
    .parameters = {{.name = "operation",
                    .brief = "what reads or writes the memory; vex has three operands",
                    .words = {"add", "adc", "cmov", "vex", "store", "cmp_imm"}},
                   {.name = "address",
                    .brief = "rip: eight no-operations behind the code, which nothing may write",
                    .words = {"base", "indexed", "rip"}},
                   {.name = "copies",
                    .brief = "of the instruction in each iteration",
                    .fallback = 8,
                    .low = 1,
                    .high = 64}},
    .check = [](const Params& p) -> Expected<void> {
      if (!stores(p) || p["address"] != kRip) return {};
      return fail(ErrorCode::kInvalidArgument, "the RIP-relative operand is code",
                  "use an operation that reads it");
    },
    .needs =
        [](const Params& p) {
          return p["operation"] == kVexLoad ? std::vector<Isa>{Isa::kAvx} : std::vector<Isa>{};
        },
    .data_bytes = [](const Params&) -> size_t { return 64; },
    .per_iteration =
        [](const Params& p) {
          Expectations one{.instructions = 1, .loads = !stores(p), .stores = stores(p)};
          return one * p["copies"];
        },
    .body =
        [](Emitter& e, const Params& p) {
          asmjit::Label constant = e.newLabel();
          x86::Mem cell = data_at(0);
          if (p["address"] == kIndexed) cell = data_at(x86::rcx, 0);  // RCX is 0
          if (p["address"] == kRip) {
            cell = x86::ptr(constant, 0, 8);
            e.after_return([&e, constant] {
              e.bind(constant);
              for (int i = 0; i < 8; ++i) e.nop();
            });
          }
          for (uint64_t i = 0; i < p["copies"]; ++i) {
            e.mark("operation", i);
            emit_one(e, p, cell);
          }
        },
};

}  // namespace skidproof::micro_fusion
