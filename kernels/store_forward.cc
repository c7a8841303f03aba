// A chain through memory: what a load brings is what the next store writes, so that each round trip waits for the one
// before. Or a chain of loads, each of which brings the address of the next, its own, with a store elsewhere before it. The
// two addresses are data: one program serves every distance between them.
#include <cstring>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::store_forward {
namespace {

enum Bases : uint64_t { kTwo, kOne };
enum Chain : uint64_t { kByData, kByAddress };
// Addresses of the store and of the load.
constexpr uint64_t kHead = 16;

uint32_t store_bytes(const Params& p) { return 1u << p["store"]; }
uint32_t load_bytes(const Params& p) { return 1u << p["load"]; }
// Up to eight bytes go through a general register, more through a vector register.
bool is_vector(uint32_t bytes) { return bytes > 8; }
bool crosses(const Params& p) {
  return p["chain"] == kByData && is_vector(store_bytes(p)) != is_vector(load_bytes(p));
}
bool overlap(const Params& p) {
  return p["load_at"] < p["store_at"] + store_bytes(p) &&
         p["store_at"] < p["load_at"] + load_bytes(p);
}
// One wide access makes all of them VEX: legacy SSE beside used upper halves is slow on some generations.
bool uses_vex(const Params& p) { return std::max(store_bytes(p), load_bytes(p)) > 16; }

void move_vector(Emitter& e, uint32_t bytes, bool vex, bool loads, const x86::Mem& m) {
  if (bytes == 64) {
    loads ? e.vmovups(x86::zmm0, m) : e.vmovups(m, x86::zmm0);
  } else if (bytes == 32) {
    loads ? e.vmovups(x86::ymm0, m) : e.vmovups(m, x86::ymm0);
  } else if (vex) {
    loads ? e.vmovups(x86::xmm0, m) : e.vmovups(m, x86::xmm0);
  } else {
    loads ? e.movups(x86::xmm0, m) : e.movups(m, x86::xmm0);
  }
}

void store(Emitter& e, const Params& p, const x86::Mem& m) {
  switch (store_bytes(p)) {
    case 1:
      e.mov(m, x86::al);
      break;
    case 2:
      e.mov(m, x86::ax);
      break;
    case 4:
      e.mov(m, x86::eax);
      break;
    case 8:
      e.mov(m, x86::rax);
      break;
    default:
      move_vector(e, store_bytes(p), uses_vex(p), false, m);
      break;
  }
}

void load(Emitter& e, const Params& p, const x86::Mem& m) {
  if (p["chain"] == kByAddress) {
    e.mov(x86::r9, m);
    return;
  }
  switch (load_bytes(p)) {
    case 1:
    case 2:
      e.movzx(x86::eax, m);
      break;
    case 4:
      e.mov(x86::eax, m);
      break;
    case 8:
      e.mov(x86::rax, m);
      break;
    default:
      move_vector(e, load_bytes(p), uses_vex(p), true, m);
      break;
  }
}

// From the register that the load wrote to the one that the store reads, where they are of two kinds.
void transfer(Emitter& e, const Params& p) {
  if (is_vector(store_bytes(p))) {
    uses_vex(p) ? e.vmovq(x86::xmm0, x86::rax) : e.movq(x86::xmm0, x86::rax);
  } else {
    uses_vex(p) ? e.vmovq(x86::rax, x86::xmm0) : e.movq(x86::rax, x86::xmm0);
  }
}

}  // namespace

SKIDPROOF_KERNEL(store_forward){
    .brief = "a store and a load of what it wrote, or of bytes near it, again and again",
    .parameters =
        {{.name = "store",
          .brief = "bytes; 32 needs AVX, 64 AVX-512",
          .fallback = 3,
          .words = {"1", "2", "4", "8", "16", "32", "64"}},
         {.name = "load",
          .brief = "bytes; likewise",
          .fallback = 3,
          .words = {"1", "2", "4", "8", "16", "32", "64"}},
         {.name = "store_at",
          .brief = "offset of the store's first byte",
          .fallback = 128,
          .low = kHead,
          .high = 1 << 20},
         {.name = "load_at",
          .brief = "offset of the load's first byte",
          .fallback = 128,
          .low = kHead,
          .high = 1 << 20},
         {.name = "bases",
          .brief = "address registers: one for each, or the store's for both, and a displacement",
          .words = {"two", "one"}},
         {.name = "chain",
          .brief = "through what is stored and loaded, or through the address of a load beside the "
                   "store",
          .words = {"data", "address"}},
         {.name = "trips",
          .brief = "round trips each iteration",
          .fallback = 4,
          .low = 1,
          .high = 64}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["chain"] == kByData) return {};
      if (load_bytes(p) != 8 || p["bases"] != kTwo) {
        return fail(ErrorCode::kInvalidArgument, "an address is 8 bytes, in a register of its own");
      }
      if (!overlap(p)) return {};
      return fail(ErrorCode::kInvalidArgument, "the store would write the address");
    },
    .needs =
        [](const Params& p) {
          const uint32_t widest = std::max(store_bytes(p), load_bytes(p));
          if (widest == 64) return std::vector<Isa>{Isa::kAvx512};
          return widest == 32 ? std::vector<Isa>{Isa::kAvx} : std::vector<Isa>{};
        },
    .data_bytes = [](const Params& p) -> size_t {
      return std::max(p["store_at"] + store_bytes(p), p["load_at"] + load_bytes(p));
    },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t address, uint64_t seed) {
          const uint64_t places[] = {address + p["store_at"], address + p["load_at"]};
          std::memcpy(host.data(), places, sizeof places);
          Random random(derive_seed(seed, "store_forward"));
          const auto fill = [&](uint64_t at, uint32_t bytes) {
            for (std::byte& b : host.subspan(at, bytes)) b = static_cast<std::byte>(random.next());
          };
          fill(p["store_at"], store_bytes(p));
          fill(p["load_at"], load_bytes(p));
          if (p["chain"] == kByAddress)
            std::memcpy(&host[p["load_at"]], &places[1], sizeof places[1]);
        },
    .per_iteration =
        [](const Params& p) {
          const Expectations one{.instructions = crosses(p) ? 3u : 2u, .loads = 1, .stores = 1};
          return one * p["trips"];
        },
    // r8 is where the store goes, r9 where the load comes from. A vector register holds what nobody promised.
    .setup =
        [](Emitter& e, const Params& p) {
          e.mov(x86::r8, data_at(0));
          if (p["bases"] == kTwo) e.mov(x86::r9, data_at(8));
          if (is_vector(store_bytes(p)))
            move_vector(e, store_bytes(p), uses_vex(p), true, x86::ptr(x86::r8));
        },
    .body =
        [](Emitter& e, const Params& p) {
          const auto distance =
              static_cast<int32_t>(p["load_at"]) - static_cast<int32_t>(p["store_at"]);
          const x86::Mem to = x86::ptr(x86::r8, 0, store_bytes(p));
          const x86::Mem from = p["bases"] == kTwo ? x86::ptr(x86::r9, 0, load_bytes(p))
                                                   : x86::ptr(x86::r8, distance, load_bytes(p));
          for (uint64_t i = 0; i < p["trips"]; ++i) {
            e.mark("store", i);
            store(e, p, to);
            e.mark("load", i);
            load(e, p, from);
            if (crosses(p)) transfer(e, p);
          }
        },
    .long_mode_only = true,
};

}  // namespace skidproof::store_forward
