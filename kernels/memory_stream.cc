// Loads, stores or copies that walk straight through a window, one pass each iteration, as fast as the ports allow: little
// else is in the loop, and each access has an address of one register.
#include <cstring>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::memory_stream {
namespace {

enum Kind : uint64_t { kLoad, kStore, kStoreNonTemporal, kCopy, kCopyNonTemporal };
enum Width : uint64_t { k8, k16, k32, k64 };
constexpr uint64_t kReach = uint64_t{512}
                            << 20;  // of a displacement, with a copy's other half behind it

uint64_t width_bytes(const Params& p) { return uint64_t{8} << p["width"]; }
uint64_t step(const Params& p) { return p["stride"] == 0 ? width_bytes(p) : p["stride"]; }
uint64_t chunk(const Params& p) { return p["unroll"] * step(p); }
uint64_t part(const Params& p) { return p["window"] / p["streams"]; }
bool copies(const Params& p) { return p["kind"] == kCopy || p["kind"] == kCopyNonTemporal; }
bool non_temporal(const Params& p) {
  return p["kind"] == kStoreNonTemporal || p["kind"] == kCopyNonTemporal;
}
// A copy's second half begins half a page further, so that no store has the low address bits of a load nearby.
uint64_t target_offset(const Params& p) { return (p["window"] + 4095) / 4096 * 4096 + 2048; }

void load(Emitter& e, const Params& p, uint64_t i, const x86::Mem& m) {
  const auto lane = static_cast<uint32_t>(i % 8);
  switch (p["width"]) {
    case k8:
      e.mov(lane % 2 == 0 ? x86::rax : x86::rdx, m);
      break;
    case k16:
      e.movups(x86::xmm(lane), m);
      break;
    case k32:
      e.vmovups(x86::ymm(lane), m);
      break;
    default:
      e.vmovups(x86::zmm(lane), m);
      break;
  }
}

void store(Emitter& e, const Params& p, uint64_t i, const x86::Mem& m) {
  const auto lane = static_cast<uint32_t>(i % 8);
  const x86::Gp general = lane % 2 == 0 ? x86::rax : x86::rdx;
  const bool streams = non_temporal(p);
  switch (p["width"]) {
    case k8:
      streams ? e.movnti(m, general) : e.mov(m, general);
      break;
    case k16:
      streams ? e.movntps(m, x86::xmm(lane)) : e.movups(m, x86::xmm(lane));
      break;
    case k32:
      streams ? e.vmovntps(m, x86::ymm(lane)) : e.vmovups(m, x86::ymm(lane));
      break;
    default:
      streams ? e.vmovntps(m, x86::zmm(lane)) : e.vmovups(m, x86::zmm(lane));
      break;
  }
}

x86::Mem at(const x86::Gp& base, uint64_t offset, const Params& p) {
  return x86::ptr(base, static_cast<int32_t>(offset), static_cast<uint32_t>(width_bytes(p)));
}

}  // namespace

SKIDPROOF_KERNEL(memory_stream){
    .brief = "loads, stores or copies straight through a window: what bandwidth is measured with",
    .parameters =
        {{.name = "kind",
          .brief =
              "of the accesses; a copy reads the window and writes another of its size behind it",
          .words = {"load", "store", "store-nontemporal", "copy", "copy-nontemporal"}},
         {.name = "width",
          .brief = "bytes an access; 32 needs AVX, 64 AVX-512",
          .words = {"8", "16", "32", "64"}},
         {.name = "window",
          .brief = "bytes; a multiple of unroll accesses",
          .fallback = 4 << 10,
          .low = 64,
          .high = uint64_t{4} << 30},
         {.name = "stride",
          .brief = "bytes from one access to the next; 0: the width",
          .high = 64 << 10},
         {.name = "unroll",
          .brief = "accesses of a stream between two steps of the walk",
          .fallback = 8,
          .low = 1,
          .high = 128},
         {.name = "streams",
          .brief = "equal parts of the window, walked side by side: more for prefetchers to follow",
          .fallback = 1,
          .low = 1,
          .high = 16}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["window"] % (p["streams"] * chunk(p)) != 0) {
        return fail(ErrorCode::kInvalidArgument,
                    "window is not a multiple of unroll accesses of each stream",
                    "the walk would pass its end");
      }
      if (p["streams"] > 1 && p["window"] > kReach) {
        return fail(ErrorCode::kInvalidArgument, "the last stream is out of an address's reach",
                    "a window of several streams has 512 MiB at the most");
      }
      if (step(p) % width_bytes(p) == 0) return {};
      return fail(ErrorCode::kInvalidArgument, "stride is not a multiple of width",
                  "accesses that cross lines are split_access's subject");
    },
    .needs =
        [](const Params& p) {
          if (p["width"] == k64) return std::vector<Isa>{Isa::kAvx512};
          return p["width"] == k32 ? std::vector<Isa>{Isa::kAvx} : std::vector<Isa>{};
        },
    .data_bytes = [](const Params& p) -> size_t {
      return copies(p) ? target_offset(p) + p["window"] : p["window"];
    },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          // A page of noise again and again: windows may be large.
          Random random(derive_seed(seed, "memory_stream"));
          std::vector<std::byte> noise(4096);
          for (std::byte& b : noise) b = static_cast<std::byte>(random.next());
          for (size_t i = 0; i < p["window"]; i += noise.size()) {
            std::memcpy(&host[i], noise.data(), std::min<size_t>(noise.size(), p["window"] - i));
          }
        },
    .per_iteration =
        [](const Params& p) {
          const uint64_t n = p["window"] / step(p), steps = part(p) / chunk(p);
          const bool loads = p["kind"] == kLoad || copies(p), stores = p["kind"] != kLoad;
          return Expectations{.instructions = 1 + n * (loads + stores) + 3 * steps,
                              .loads = loads ? n : 0,
                              .stores = stores ? n : 0,
                              .branches_taken = steps - 1,
                              .branches_not_taken = 1,
                              .fusible_pairs = steps};
        },
    // rcx is where the walk is, r9 where it ends.
    .setup =
        [](Emitter& e, const Params& p) {
          e.mov(x86::rcx, kData);
          e.mov(x86::r9, part(p));
          e.add(x86::r9, kData);
          // What stores write.
          if (p["kind"] == kLoad || copies(p)) return;
          e.mov(x86::rax, e.native(0x5555555555555555u));
          e.mov(x86::rdx, e.native(0xAAAAAAAAAAAAAAAAu));
          for (uint64_t i = 0; i < 8 && p["width"] != k8; ++i) load(e, p, i, at(kData, 0, p));
        },
    .body =
        [](Emitter& e, const Params& p) {
          const asmjit::Label again = e.newLabel();
          e.bind(again);
          for (uint64_t i = 0; i < p["streams"] * p["unroll"]; ++i) {
            const uint64_t from = i / p["unroll"] * part(p) + i % p["unroll"] * step(p);
            if (p["kind"] == kLoad || copies(p)) {
              e.mark("load", i);
              load(e, p, i, at(x86::rcx, from, p));
            }
            if (p["kind"] == kLoad) continue;
            e.mark("store", i);
            store(e, p, i, at(x86::rcx, (copies(p) ? target_offset(p) : 0) + from, p));
          }
          e.add(x86::rcx, chunk(p));
          e.cmp(x86::rcx, x86::r9);
          e.mark("pass.jb");
          e.jb(again);
          e.mov(x86::rcx, kData);
        },
    .long_mode_only = true,
};

}  // namespace skidproof::memory_stream
