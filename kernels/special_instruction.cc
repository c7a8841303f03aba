// Instructions that are neither computation nor access, each followed by a no-operation: what counts or records
// them as something else shows.
#include "kernels/jit/emitter.h"

namespace skidproof::special_instruction {
namespace {

enum Special : uint64_t { kMovSs, kCpuid, kMfence };

// A subleaf of leaf 7 that no processor has: all four registers are 0 behind it, on every machine.
constexpr uint32_t kLeaf = 7, kSubleaf = 31;

void special(Emitter& e, uint64_t which, uint64_t i) {
  if (which == kCpuid) {
    e.mov(x86::eax, kLeaf);
    e.mov(x86::ecx, kSubleaf);
  }
  e.mark("special", i);
  switch (which) {
    case kMovSs:
      e.mov(x86::ss, x86::ecx);
      break;
    case kCpuid:
      e.cpuid();
      break;
    default:
      e.mfence();
      break;
  }
  e.mark("behind", i);
  e.nop();
}

}  // namespace

SKIDPROOF_KERNEL(special_instruction){
    .brief = "MOV SS, CPUID or MFENCE, a no-operation behind each",
    .parameters = {{.name = "instruction",
                    .brief = "which; MOV SS loads what SS holds",
                    .words = {"mov_ss", "cpuid", "mfence"}},
                   {.name = "unroll",
                    .brief = "of them each iteration",
                    .fallback = 4,
                    .low = 1,
                    .high = 64}},
    .per_iteration =
        [](const Params& p) {
          const uint64_t each = p["instruction"] == kCpuid ? 4 : 2;
          const uint64_t restore = p["instruction"] == kCpuid ? 1 : 0;
          return Expectations{.instructions = each * p["unroll"] + restore};
        },
    .setup =
        [](Emitter& e, const Params& p) {
          p["instruction"] == kCpuid ? e.mov(x86::r8, x86::rbx) : e.mov(x86::ecx, x86::ss);
        },
    .body =
        [](Emitter& e, const Params& p) {
          for (uint64_t i = 0; i < p["unroll"]; ++i) special(e, p["instruction"], i);
          if (p["instruction"] == kCpuid) e.mov(x86::rbx, x86::r8);
        },
    .long_mode_only = true,
    .reads_environment = true,
    .restores_rbx = true,
};

}  // namespace skidproof::special_instruction
