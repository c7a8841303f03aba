// Accesses that lie across the border of two cache lines, or of two pages.
#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::split_access {
namespace {

enum Kind : uint64_t { kLoad, kStore };
enum Width : uint64_t { k8, k16, k32 };
enum Border : uint64_t { kLine, kPage };

uint64_t border(const Params& p) { return p["border"] == kLine ? 64 : 4096; }

// Half of the i-th access lies on each side of a border; every access has a border of its own.
x86::Mem across(const Emitter& e, const Params& p, uint64_t i) {
  uint32_t width = p["width"] == k8 ? e.word_bytes() : 8u << p["width"];
  return data_at(static_cast<int32_t>((2 * i + 1) * border(p) - width / 2), width);
}

void load(Emitter& e, uint64_t width, const x86::Mem& m) {
  switch (width) {
    case k8:
      e.mov(x86::rax, m);
      break;
    case k16:
      e.movups(x86::xmm0, m);
      break;
    default:
      e.vmovups(x86::ymm0, m);
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
    default:
      e.vmovups(m, x86::ymm0);
      break;
  }
}

}  // namespace

SKIDPROOF_KERNEL(split_access){
    .brief = "loads or stores that cross a cache line or a page",
    .parameters = {{.name = "kind", .brief = "the access", .words = {"load", "store"}},
                   {.name = "width",
                    .brief = "bytes an access, a general register's for 8; 32 needs AVX",
                    .words = {"8", "16", "32"}},
                   {.name = "border", .brief = "what is crossed", .words = {"line", "page"}},
                   {.name = "unroll",
                    .brief = "accesses each iteration",
                    .fallback = 4,
                    .low = 1,
                    .high = 64}},
    .needs =
        [](const Params& p) {
          return p["width"] == k32 ? std::vector<Isa>{Isa::kAvx} : std::vector<Isa>{};
        },
    .data_bytes = [](const Params& p) -> size_t { return 2 * p["unroll"] * border(p); },
    .fill =
        [](const Params&, std::span<std::byte> host, uint64_t, uint64_t seed) {
          Random random(derive_seed(seed, "split_access"));
          for (std::byte& b : host.first(32)) b = static_cast<std::byte>(random.next());
        },
    .per_iteration =
        [](const Params& p) {
          uint64_t n = p["unroll"];
          bool stores = p["kind"] == kStore;
          return Expectations{.instructions = n, .loads = stores ? 0 : n, .stores = stores ? n : 0};
        },
    // No store reaches the arena's first 32 bytes: they hold what wide stores write.
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
