// Dependent loads: each reads the address of the next, so that one latency follows another.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::pointer_chase {
namespace {

enum Order : uint64_t { kRandom, kForward, kBackward };

uint64_t slots(const Params& p) { return p["bytes"] / p["granularity"]; }

// Where slot i's pointer stands. With `stagger` every slot uses another cache line of its own, so
// that page sized slots do not all fall into one set of the caches; with 2 the lines move on by one after as many slots as
// there are lines in one, so that they fill all sets of caches whose ways are larger than a slot, too; with 3 also after
// as many of these again, and so on, whatever the size of a way.
struct Slots {
  explicit Slots(const Params& p)
      : granularity(p["granularity"]), shift(p["shift"]), stagger(p["stagger"]) {}
  uint64_t offset_of(uint64_t i) const {
    uint64_t within = i % 2 != 0 ? shift : 0;  // which no stagger stands beside
    if (stagger == 1) within = i * 64 % granularity;
    if (stagger == 2) within = (i + i / (granularity / 64)) * 64 % granularity;
    if (stagger == 3 && granularity > 64) {
      for (uint64_t rest = i; rest != 0; rest /= granularity / 64) within += rest;
      within = within * 64 % granularity;
    }
    return i * granularity + within;
  }

  uint64_t granularity, shift, stagger;
};

// One cycle through all slots (Sattolo, "An algorithm to generate a random cyclic permutation",
// 1986): a plain shuffle would fall into several cycles, and the chase would see only one of them. Which slots are swapped does not
// depend on what is in them, so those of the next swaps are fetched meanwhile: of large sets each is a miss.
std::vector<uint32_t> successors(uint64_t count, uint64_t order, uint64_t seed) {
  constexpr size_t kAhead = 32;
  std::vector<uint32_t> next(count);
  std::iota(next.begin(), next.end(), uint32_t{0});
  if (order == kRandom) {
    Random random(derive_seed(seed, "pointer_chase"));
    std::array<uint64_t, kAhead> others{};
    for (uint64_t left = count; left > 1;) {
      const uint64_t some = std::min<uint64_t>(kAhead, left - 1);
      for (uint64_t k = 0; k < some; ++k) {
        others[k] = random.below(left - 1 - k);
        __builtin_prefetch(&next[others[k]], 1);
      }
      for (uint64_t k = 0; k < some; ++k) std::swap(next[left - 1 - k], next[others[k]]);
      left -= some;
    }
    return next;
  }
  for (uint64_t i = 0; i < count; ++i)
    next[i] = static_cast<uint32_t>((i + (order == kForward ? 1 : count - 1)) % count);
  return next;
}

}  // namespace

SKIDPROOF_KERNEL(pointer_chase){
    .brief = "dependent loads through one cycle of pointers: mov rax, [rax]",
    .parameters =
        {{.name = "bytes",
          .brief = "working set",
          .fallback = 32 << 10,
          .low = 64,
          .high = uint64_t{1} << 30},
         {.name = "granularity",
          .brief = "distance of two pointers in bytes: 64 a line, 4096 a page; a multiple of 8",
          .fallback = 64,
          .low = 8,
          .high = 4 << 20},
         {.name = "order",
          .brief = "random: a single random cycle; forward, backward: a constant stride",
          .words = {"random", "forward", "backward"}},
         {.name = "stagger",
          .brief = "1: each pointer in another line of its slot (granularity a multiple of 64); 2: "
                   "so that they "
                   "fill caches with ways larger than a slot, too; 3: with ways of any size",
          .high = 3},
         {.name = "shift",
          .brief = "bytes by which every other pointer stands further in its slot; a multiple of 8",
          .high = 4 << 20},
         {.name = "flush",
          .brief =
              "1: each line is flushed behind its load, so that the next one comes from memory",
          .high = 1},
         {.name = "unroll", .brief = "loads each iteration", .fallback = 1, .low = 1, .high = 256}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["granularity"] % 8 != 0 || (p["stagger"] != 0 && p["granularity"] % 64 != 0)) {
        return fail(ErrorCode::kInvalidArgument,
                    "granularity is not a multiple of 8, or of 64 with stagger",
                    "a pointer that crosses a line is split_access's subject");
      }
      if (p["shift"] % 8 != 0 || p["shift"] + 8 > p["granularity"] ||
          (p["shift"] != 0 && p["stagger"] != 0)) {
        return fail(ErrorCode::kInvalidArgument,
                    "shift is no multiple of 8 within granularity, or beside stagger",
                    "one displacement at a time");
      }
      if (slots(p) == 0) return fail(ErrorCode::kInvalidArgument, "bytes is less than granularity");
      return {};
    },
    .data_bytes = [](const Params& p) { return static_cast<size_t>(p["bytes"]); },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t address, uint64_t seed) {
          const std::vector<uint32_t> next = successors(slots(p), p["order"], seed);
          const Slots where(p);
          for (uint64_t i = 0; i < next.size(); ++i) {
            const uint64_t pointer = address + where.offset_of(next[i]);
            std::memcpy(&host[where.offset_of(i)], &pointer, sizeof pointer);
          }
        },
    .per_iteration =
        [](const Params& p) {
          const uint64_t flushing = p["flush"] != 0 ? 2 : 0;  // MOV and CLFLUSH
          return Expectations{.instructions = p["unroll"] * (1 + flushing), .loads = p["unroll"]};
        },
    .setup = [](Emitter& e, const Params&) { e.mov(x86::rax, kData); },
    .body =
        [](Emitter& e, const Params& p) {
          for (uint64_t i = 0; i < p["unroll"]; ++i) {
            if (p["flush"] != 0) e.mov(x86::rdx, x86::rax);
            e.mark("load", i);
            e.mov(x86::rax, x86::ptr(x86::rax));
            if (p["flush"] != 0) e.clflush(x86::ptr(x86::rdx));
          }
        },
};

}  // namespace skidproof::pointer_chase
