// A division among cheap instructions: while it has not retired, nothing behind it can, and a
// sample that waits for time to pass falls into its shadow.
#include "kernels/jit/emitter.h"

namespace skidproof::division_shadow {
namespace {

enum Operation : uint64_t { kDiv, kIdiv };
enum Cheap : uint64_t { kLea, kLoad };

// A 128-bit dividend and a divisor of full width: the slow path of every divider, and a quotient
// that fits both signed and unsigned (0x0123… / 0x7EDC… < 1/2).
constexpr uint64_t kHigh = 0x0123456789ABCDEF;
constexpr uint64_t kLow = 0xFEDCBA9876543210;
constexpr uint64_t kDivisor = 0x7EDCBA9876543211;

// Independent of all others, one uop, no flags.
void cheap(Emitter& e, const Params& p, std::string_view name) {
  for (uint64_t i = 0; i < p[name]; ++i) {
    e.mark(name, i);
    const auto to = i % 2 == 0 ? x86::rcx : x86::r11;
    if (p["cheap"] == kLoad) {
      e.mov(to, data_at(static_cast<int32_t>(i % 8 * 8)));
    } else {
      e.lea(to, data_at(static_cast<int32_t>(i % 100)));
    }
  }
}

}  // namespace

SKIDPROOF_KERNEL(division_shadow){
    .brief = "one 128-by-64-bit division among cheap independent instructions",
    .parameters =
        {{.name = "operation", .brief = "the division", .words = {"div", "idiv"}},
         {.name = "before", .brief = "cheap instructions before it", .fallback = 8, .high = 1024},
         {.name = "after", .brief = "cheap instructions after it", .fallback = 8, .high = 1024},
         {.name = "cheap", .brief = "what they are", .words = {"lea", "load"}}},
    .data_bytes = [](const Params& p) -> size_t { return p["cheap"] == kLoad ? 64 : 0; },
    .per_iteration =
        [](const Params& p) {
          const uint64_t around = p["before"] + p["after"];
          return Expectations{.instructions = around + 3,
                              .loads = p["cheap"] == kLoad ? around : 0};
        },
    .setup =
        [](Emitter& e, const Params&) {
          e.mov(x86::r8, kLow);
          e.mov(x86::r9, kHigh);
          e.mov(x86::r10, kDivisor);
        },
    .body =
        [](Emitter& e, const Params& p) {
          cheap(e, p, "before");
          e.mark("low");
          e.mov(x86::rax, x86::r8);
          e.mark("high");
          e.mov(x86::rdx, x86::r9);
          e.mark("div");
          p["operation"] == kDiv ? e.div(x86::r10) : e.idiv(x86::r10);
          cheap(e, p, "after");
        },
    .long_mode_only = true,
};

}  // namespace skidproof::division_shadow
