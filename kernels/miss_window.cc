// Two loads that miss, a run of cheap instructions between them: while the core can hold all of it the misses overlap, and
// an iteration takes one miss; else the second load enters when the first retires, and it takes two.
//
// The method is Henry Wong's ("Measuring Reorder Buffer Capacity", 2013). His loads are two chains; here the next pair's
// addresses are sum and difference of what both loaded, so that no pair begins before the last one is over, and what lies
// between the loads is all that has to fit.
#include <cstring>
#include <numeric>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::miss_window {
namespace {

// What each takes of the core while the first load is on its way:
enum Filler : uint64_t {
  kNop,        // a place in the reorder buffer
  kInteger,    // and a general register
  kVector,     // … a vector register
  kVector256,  // the same, 32 bytes of it
  kLoad,       // … a place in the load queue, and in turns a general or a vector register
  kStore,      // … a place in the store queue
  kWaiting,    // … a place in the scheduler and a general register, until the first load is there
  kWaitingVector,  // the same with a vector register
  kMixed,  // eight kInteger, six kVector and two kStore in sixteen: a place in the reorder buffer, and little else
  kMixedPairs,  // the same, two of a kind in a row: of what shares an entry by its neighbours another number is held
};

constexpr int32_t kHead = 4096;  // what fillers load and store; the pairs stand behind it
constexpr uint64_t kSlots = 32;  // of 16 bytes, that they go through

uint64_t half(const Params& p) { return p["pairs"] * p["stride"]; }
// MOVQ of the loaded value into a vector register.
uint64_t extra(const Params& p) { return p["filler"] == kWaitingVector ? 1 : 0; }

bool is_mixture(uint64_t filler) { return filler == kMixed || filler == kMixedPairs; }

// The i-th of a mixture.
Filler mixed(uint64_t mixture, uint64_t i) {
  if (mixture == kMixedPairs) i /= 2;
  if (i % 8 == 7) return kStore;
  return i % 2 == 0 ? kInteger : kVector;
}

uint64_t count_of(const Params& p, Filler wanted) {
  if (!is_mixture(p["filler"])) return p["filler"] == wanted ? p["count"] : 0;
  uint64_t n = 0;
  for (uint64_t i = 0; i < p["count"]; ++i) n += mixed(p["filler"], i) == wanted;
  return n;
}

// OR and not ADD or MOV: additions of constants and moves are done at rename by some cores, and take no register there.
void filler(Emitter& e, Filler which, uint64_t i) {
  const x86::Gp general[] = {x86::rcx, x86::r10, x86::r11};
  const x86::Gp& to = general[i % 3];
  const auto lane = static_cast<uint32_t>(i % 12);
  const auto slot = static_cast<int32_t>(i % kSlots * 16);
  switch (which) {
    case kNop:
      e.nop();
      break;
    case kInteger:
      e.or_(to, x86::r9);
      break;
    case kWaiting:
      e.or_(to, x86::r8);
      break;
    case kVector:
      e.por(x86::xmm(lane), x86::xmm15);
      break;
    case kVector256:
      e.vpor(x86::ymm(lane), x86::ymm15, x86::ymm14);
      break;
    case kWaitingVector:
      e.por(x86::xmm(lane), x86::xmm13);
      break;
    case kLoad:
      i % 2 == 0 ? e.mov(to, data_at(slot)) : e.movups(x86::xmm(lane), data_at(slot, 16));
      break;
    default:
      e.mov(data_at(slot), x86::r9);
      break;
  }
}

// An order of all lines of one half; the first pass begins with the first lines.
std::vector<uint64_t> shuffled(uint64_t count, Random& random) {
  std::vector<uint64_t> order(count);
  std::iota(order.begin(), order.end(), uint64_t{0});
  for (uint64_t i = count; i-- > 2;) std::swap(order[i], order[random.between(1, i)]);
  return order;
}

}  // namespace

SKIDPROOF_KERNEL(miss_window){
    .brief = "two loads that miss with fillers between them: how much a core holds while it waits",
    .parameters =
        {{.name = "filler",
          .brief = "what stands between the loads",
          .words = {"nop", "integer", "vector", "vector256", "load", "store", "waiting",
                    "waiting_vector", "mixed", "mixed_pairs"}},
         {.name = "count", .brief = "fillers", .fallback = 32, .high = 8 << 10},
         {.name = "pairs",
          .brief =
              "of lines, gone through in a random order; who runs it flushes them before each pass",
          .fallback = 64,
          .low = 2,
          .high = 1 << 16},
         {.name = "stride",
          .brief = "bytes from one pair's line to the next's: enough that no prefetcher guesses "
                   "them; a multiple of 64",
          .fallback = 256,
          .low = 64,
          .high = 4096}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["stride"] % 64 == 0) return {};
      return fail(ErrorCode::kInvalidArgument, "stride is not a multiple of 64",
                  "each load has a line of its own");
    },
    .needs =
        [](const Params& p) {
          return p["filler"] == kVector256 ? std::vector<Isa>{Isa::kAvx2} : std::vector<Isa>{};
        },
    .data_bytes = [](const Params& p) -> size_t { return kHead + 2 * half(p); },
    // Half the sum of the next pair's addresses, and half the difference: each line of either half once in a pass, in orders
    // that know nothing of one another, so that no bank of memory is asked twice for every pair.
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t address, uint64_t seed) {
          Random random(derive_seed(seed, "miss_window"));
          const std::vector<uint64_t> first = shuffled(p["pairs"], random),
                                      second = shuffled(p["pairs"], random);
          for (uint64_t i = 0; i < p["pairs"]; ++i) {
            const uint64_t next = (i + 1) % p["pairs"];
            const uint64_t a = kHead + first[next] * p["stride"],
                           b = kHead + half(p) + second[next] * p["stride"];
            const uint64_t sum = address + (a + b) / 2, difference = a / 2 - b / 2;
            std::memcpy(&host[kHead + first[i] * p["stride"]], &sum, sizeof sum);
            std::memcpy(&host[kHead + half(p) + second[i] * p["stride"]], &difference,
                        sizeof difference);
          }
        },
    .per_iteration =
        [](const Params& p) {
          return Expectations{.instructions = 5 + extra(p) + p["count"],
                              .loads = 2 + count_of(p, kLoad),
                              .stores = count_of(p, kStore)};
        },
    // rax and rdx are the pair's addresses, r8 and then rdx what was loaded.
    .setup =
        [](Emitter& e, const Params& p) {
          e.lea(x86::rax, x86::ptr(kData, kHead));
          e.lea(x86::rdx, x86::ptr(kData, static_cast<int32_t>(kHead + half(p))));
          e.mov(x86::r9, 0x5555555555555555u);
        },
    .body =
        [](Emitter& e, const Params& p) {
          e.mark("first");
          e.mov(x86::r8, x86::ptr(x86::rax));
          if (extra(p) != 0) e.movq(x86::xmm13, x86::r8);
          for (uint64_t i = 0; i < p["count"]; ++i) {
            if (i == 0) e.mark("filler");
            const uint64_t asked = p["filler"];
            filler(e, is_mixture(asked) ? mixed(asked, i) : static_cast<Filler>(asked), i);
          }
          e.mark("second");
          e.mov(x86::rdx, x86::ptr(x86::rdx));
          e.lea(x86::rax, x86::ptr(x86::r8, x86::rdx));
          e.sub(x86::r8, x86::rdx);
          e.mov(x86::rdx, x86::r8);
        },
    .long_mode_only = true,
};

}  // namespace skidproof::miss_window
