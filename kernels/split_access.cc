// Accesses that lie across the border of two cache lines, or of two pages, or, to compare them with, across none.
#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::split_access {
namespace {

enum Kind : uint64_t { kLoad, kStore };
enum Width : uint64_t { k8, k16, k32, k64 };
enum Border : uint64_t { kLine, kPage, kNone };

uint64_t border(const Params& p) { return p["border"] == kPage ? 4096 : 64; }

// Half of the i-th access lies on each side of a border, of which every access has one of its own; or it ends there.
x86::Mem across(const Emitter& e, const Params& p, uint64_t i) {
  uint32_t width = p["width"] == k8 ? e.word_bytes() : 8u << p["width"];
  uint32_t before = p["border"] == kNone ? width : width / 2;
  return data_at(static_cast<int32_t>((2 * i + 1) * border(p) - before), width);
}

void load(Emitter& e, uint64_t width, const x86::Mem& m) {
  switch (width) {
    case k8:
      e.mov(x86::rax, m);
      break;
    case k16:
      e.movups(x86::xmm0, m);
      break;
    case k32:
      e.vmovups(x86::ymm0, m);
      break;
    default:
      e.vmovups(x86::zmm0, m);
      break;
  }
}

void store(Emitter& e, uint64_t width, const x86::Mem& m) {
  switch (width) {
    case k8:
      e.mov(m, kCounter);
      break;
    case k16:
      e.movups(m, x86::xmm0);
      break;
    case k32:
      e.vmovups(m, x86::ymm0);
      break;
    default:
      e.vmovups(m, x86::zmm0);
      break;
  }
}

}  // namespace

SKIDPROOF_KERNEL(split_access){
    .brief = "loads or stores that cross a cache line or a page",
    .parameters =
        {{.name = "kind", .brief = "the access", .words = {"load", "store"}},
         {.name = "width",
          .brief = "bytes an access, a general register's for 8; 32 needs AVX, 64 AVX-512",
          .words = {"8", "16", "32", "64"}},
         {.name = "border", .brief = "what is crossed", .words = {"line", "page", "none"}},
         {.name = "unroll",
          .brief = "accesses each iteration",
          .fallback = 4,
          .low = 1,
          .high = 64}},
    .needs =
        [](const Params& p) {
          if (p["width"] == k64) return std::vector<Isa>{Isa::kAvx512};
          return p["width"] == k32 ? std::vector<Isa>{Isa::kAvx} : std::vector<Isa>{};
        },
    .data_bytes = [](const Params& p) -> size_t { return 2 * p["unroll"] * border(p); },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          Random random(derive_seed(seed, "split_access"));
          for (std::byte& b : host.first(p["width"] == k64 ? 64 : 32))
            b = static_cast<std::byte>(random.next());
        },
    .per_iteration =
        [](const Params& p) {
          uint64_t n = p["unroll"];
          bool stores = p["kind"] == kStore;
          return Expectations{.instructions = n, .loads = stores ? 0 : n, .stores = stores ? n : 0};
        },
    // The arena's first bytes hold what wide stores write; none of up to 32 bytes reaches them.
    .setup =
        [](Emitter& e, const Params& p) {
          if (p["kind"] == kStore && p["width"] != k8)
            load(e, p["width"], data_at(0, 8u << p["width"]));
        },
    .body =
        [](Emitter& e, const Params& p) {
          for (uint64_t i = 0; i < p["unroll"]; ++i) {
            e.mark(p["kind"] == kLoad ? "load" : "store", i);
            p["kind"] == kLoad ? load(e, p["width"], across(e, p, i))
                               : store(e, p["width"], across(e, p, i));
          }
        },
};

}  // namespace skidproof::split_access
