// Independent loads that walk through a window again and again.
#include <cstring>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::load_stream {
namespace {

enum Width : uint64_t { k8, k16, k32 };

uint64_t bytes_of(const Params& p) { return uint64_t{8} << p["width"]; }

}  // namespace

SKIDPROOF_KERNEL(load_stream){
    .brief = "independent loads of 8, 16 or 32 bytes that wrap in a window",
    .parameters =
        {{.name = "width", .brief = "bytes a load; 32 needs AVX", .words = {"8", "16", "32"}},
         {.name = "stride",
          .brief = "bytes from one load to the next; a multiple of width keeps them unsplit",
          .fallback = 64,
          .low = 1,
          .high = 4 << 10},
         {.name = "window",
          .brief = "the offset of an iteration's first load wraps here; a power of two",
          .fallback = 32 << 10,
          .low = 64,
          .high = uint64_t{1} << 30},
         {.name = "unroll", .brief = "loads each iteration", .fallback = 4, .low = 1, .high = 64}},
    .check = [](const Params& p) -> Expected<void> {
      uint64_t window = p["window"];
      if ((window & (window - 1)) == 0) return {};
      return fail(ErrorCode::kInvalidArgument, "window is not a power of two");
    },
    .needs =
        [](const Params& p) {
          return p["width"] == k32 ? std::vector<Isa>{Isa::kAvx} : std::vector<Isa>{};
        },
    .data_bytes = [](const Params& p) -> size_t {
      return p["window"] + p["unroll"] * p["stride"] + 32;
    },
    .fill =
        [](const Params&, std::span<std::byte> host, uint64_t, uint64_t seed) {
          Random random(derive_seed(seed, "load_stream"));
          for (size_t i = 0; i + 8 <= host.size(); i += 8) {
            uint64_t value = random.next();
            std::memcpy(&host[i], &value, sizeof value);
          }
        },
    .per_iteration =
        [](const Params& p) {
          return Expectations{.instructions = p["unroll"] + 2, .loads = p["unroll"]};
        },
    .body =
        [](Emitter& e, const Params& p) {
          for (uint64_t i = 0; i < p["unroll"]; ++i) {
            x86::Mem source = data_at(x86::rcx, static_cast<int32_t>(i * p["stride"]),
                                      static_cast<uint32_t>(bytes_of(p)));
            e.mark("load", i);
            switch (p["width"]) {
              case k8:
                e.mov(x86::rax, source);
                break;
              case k16:
                e.movups(x86::xmm0, source);
                break;
              default:
                e.vmovups(x86::ymm0, source);
                break;
            }
          }
          e.add(x86::rcx, p["unroll"] * p["stride"]);
          e.and_(x86::rcx, p["window"] - 1);
        },
};

}  // namespace skidproof::load_stream
