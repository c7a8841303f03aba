// Stores that walk through a window again and again, regular or non-temporal. Store j of iteration
// i (both from 0) goes to data + (i * unroll * stride) mod window + j * stride.
#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::store_stream {
namespace {

enum Width : uint64_t { k8, k16, k32 };
enum Kind : uint64_t { kRegular, kNonTemporal };

uint32_t bytes_of(const Params& p) { return 8u << p["width"]; }

// 8-byte stores write the loop's counter, so that every pass leaves other values; wider ones write
// the pattern that `setup` loads from the arena's tail.
void store(Emitter& e, const Params& p, const x86::Mem& target) {
  bool regular = p["kind"] == kRegular;
  switch (p["width"]) {
    case k8:
      regular ? e.mov(target, kCounter) : e.movnti(target, kCounter);
      break;
    case k16:
      regular ? e.movups(target, x86::xmm0) : e.movntps(target, x86::xmm0);
      break;
    default:
      regular ? e.vmovups(target, x86::ymm0) : e.vmovntps(target, x86::ymm0);
      break;
  }
}

uint64_t pattern_offset(const Params& p) {
  return (p["window"] + p["unroll"] * p["stride"] + 31) / 32 * 32 + 32;
}

}  // namespace

SKIDPROOF_KERNEL(store_stream){
    .brief = "stores of 8, 16 or 32 bytes that wrap in a window",
    .parameters =
        {{.name = "width", .brief = "bytes a store; 32 needs AVX", .words = {"8", "16", "32"}},
         {.name = "kind",
          .brief = "nontemporal: MOVNTI, MOVNTPS, VMOVNTPS",
          .words = {"regular", "nontemporal"}},
         {.name = "stride",
          .brief = "bytes from one store to the next; nontemporal needs a multiple of width",
          .fallback = 64,
          .low = 1,
          .high = 4 << 10},
         {.name = "window",
          .brief = "the offset of an iteration's first store wraps here; a power of two",
          .fallback = 32 << 10,
          .low = 64,
          .high = uint64_t{1} << 30},
         {.name = "unroll", .brief = "stores each iteration", .fallback = 4, .low = 1, .high = 64}},
    .check = [](const Params& p) -> Expected<void> {
      uint64_t window = p["window"];
      if ((window & (window - 1)) != 0) {
        return fail(ErrorCode::kInvalidArgument, "window is not a power of two");
      }
      if (p["kind"] == kNonTemporal && p["stride"] % bytes_of(p) != 0) {
        return fail(ErrorCode::kInvalidArgument, "stride is not a multiple of width",
                    "MOVNTPS faults on an unaligned address");
      }
      return {};
    },
    .needs =
        [](const Params& p) {
          return p["width"] == k32 ? std::vector<Isa>{Isa::kAvx} : std::vector<Isa>{};
        },
    .data_bytes = [](const Params& p) -> size_t { return pattern_offset(p) + 32; },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          Random random(derive_seed(seed, "store_stream"));
          for (std::byte& b : host.subspan(pattern_offset(p)))
            b = static_cast<std::byte>(random.next());
        },
    .per_iteration =
        [](const Params& p) {
          return Expectations{.instructions = p["unroll"] + 2, .stores = p["unroll"]};
        },
    .setup =
        [](Emitter& e, const Params& p) {
          x86::Mem pattern = data_at(static_cast<int32_t>(pattern_offset(p)), bytes_of(p));
          if (p["width"] == k16) e.movups(x86::xmm0, pattern);
          if (p["width"] == k32) e.vmovups(x86::ymm0, pattern);
        },
    .body =
        [](Emitter& e, const Params& p) {
          for (uint64_t i = 0; i < p["unroll"]; ++i) {
            e.mark("store", i);
            store(e, p, data_at(x86::rcx, static_cast<int32_t>(i * p["stride"]), bytes_of(p)));
          }
          e.add(x86::rcx, p["unroll"] * p["stride"]);
          e.and_(x86::rcx, p["window"] - 1);
        },
};

}  // namespace skidproof::store_stream
