// No-operations of one length: every instruction like every other, one byte long at every address.
#include <array>
#include <span>

#include "kernels/jit/emitter.h"

namespace skidproof::nop_sled {
namespace {

// The recommended encodings. [Intel SDM vol. 2, "NOP", table "Recommended Multi-Byte Sequence of NOP Instruction"]
constexpr std::array<std::array<uint8_t, 9>, 9> kEncodings = {{
    {0x90},
    {0x66, 0x90},
    {0x0F, 0x1F, 0x00},
    {0x0F, 0x1F, 0x40, 0x00},
    {0x0F, 0x1F, 0x44, 0x00, 0x00},
    {0x66, 0x0F, 0x1F, 0x44, 0x00, 0x00},
    {0x0F, 0x1F, 0x80, 0x00, 0x00, 0x00, 0x00},
    {0x0F, 0x1F, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00},
    {0x66, 0x0F, 0x1F, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00},
}};

}  // namespace

SKIDPROOF_KERNEL(nop_sled){
    .brief = "no-operations of one length",
    .parameters = {{.name = "count",
                    .brief = "no-operations each iteration",
                    .fallback = 64,
                    .low = 1,
                    .high = 64 << 10},
                   {.name = "bytes", .brief = "of each", .fallback = 1, .low = 1, .high = 9}},
    .per_iteration = [](const Params& p) { return Expectations{.instructions = p["count"]}; },
    .body =
        [](Emitter& e, const Params& p) {
          e.mark("nop");
          const uint64_t bytes = p["bytes"];
          for (uint64_t i = 0; i < p["count"]; ++i) e.embed(kEncodings[bytes - 1].data(), bytes);
        },
};

}  // namespace skidproof::nop_sled
