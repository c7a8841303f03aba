// Code without a branch and without a loop, other for every seed: each address is executed once.
#include <array>
#include <cstring>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::straight_line {
namespace {

constexpr size_t kArena = 4096;
constexpr std::array<x86::Gp, 7> kScratch = {x86::rax, x86::rcx, x86::rdx, x86::r8,
                                             x86::r9,  x86::r10, x86::r11};

// Of those that exist: the first three in 32-bit mode.
x86::Gp any_register(const Emitter& e, Random& random) {
  return kScratch[random.below(e.mode() == Mode::kLong ? kScratch.size() : 3)];
}
x86::Mem any_cell(Random& random) {
  return data_at(static_cast<int32_t>(8 * random.below(kArena / 8)));
}

// Only operations that work on registers. IMUL and shifts leave some flags undefined; nothing reads
// flags.
void emit_alu(Emitter& e, Random& random) {
  x86::Gp a = any_register(e, random);
  x86::Gp b = any_register(e, random);
  uint64_t small = random.between(1, 63);
  switch (random.below(16)) {
    case 0:
      e.add(a, b);
      break;
    case 1:
      e.sub(a, b);
      break;
    case 2:
      e.and_(a, b);
      break;
    case 3:
      e.or_(a, b);
      break;
    case 4:
      e.xor_(a, b);
      break;
    case 5:
      e.cmp(a, b);
      break;
    case 6:
      e.test(a, b);
      break;
    case 7:
      e.inc(a);
      break;
    case 8:
      e.dec(a);
      break;
    case 9:
      e.imul(a, b);
      break;
    case 10:
      e.ror(a, small);
      break;
    case 11:
      e.shl(a, small);
      break;
    case 12:
      e.shr(a, small);
      break;
    case 13:
      e.lea(a, x86::ptr(b, static_cast<int32_t>(small)));
      break;
    case 14:
      e.mov(a, b);
      break;
    default:
      e.mov(a, e.native(random.next()));
      break;
  }
}

uint64_t loads(const Params& p) { return p["instructions"] / 8; }
uint64_t stores(const Params& p) { return p["instructions"] / 8; }

// Which slots are loads, which stores: as many for every seed, elsewhere for each.
enum Slot : uint8_t { kAlu, kLoad, kStore };
std::vector<Slot> slots(const Params& p, Random& random) {
  std::vector<Slot> out(p["instructions"], kAlu);
  for (uint64_t i = 0; i < loads(p); ++i) out[i] = kLoad;
  for (uint64_t i = 0; i < stores(p); ++i) out[loads(p) + i] = kStore;
  for (uint64_t i = out.size(); i-- > 1;) std::swap(out[i], out[random.below(i + 1)]);
  return out;
}

void emit_access(Emitter& e, Random& random, Slot slot) {
  // Two statements: the order in which a call evaluates its arguments is the compiler's, and the
  // same seed must give the same code with each.
  x86::Gp value = any_register(e, random);
  x86::Mem cell = any_cell(random);
  slot == kLoad ? e.mov(value, cell) : e.mov(cell, value);
}

void body(Emitter& e, const Params& p) {
  Random random(derive_seed(e.seed(), "straight_line"));
  e.mark("line");
  for (Slot slot : slots(p, random)) {
    slot == kAlu ? emit_alu(e, random) : emit_access(e, random, slot);
  }
}

}  // namespace

SKIDPROOF_KERNEL(straight_line){
    .brief = "straight-line code by the seed: an eighth loads, an eighth stores; runs once",
    .parameters = {{.name = "instructions",
                    .brief = "how many",
                    .fallback = 256,
                    .low = 1,
                    .high = 64 << 10}},
    .data_bytes = [](const Params&) -> size_t { return kArena; },
    .fill =
        [](const Params&, std::span<std::byte> host, uint64_t, uint64_t seed) {
          Random random(derive_seed(seed, "straight_line.data"));
          for (size_t i = 0; i < host.size(); i += 8) {
            uint64_t value = random.next();
            std::memcpy(&host[i], &value, sizeof value);
          }
        },
    .per_iteration =
        [](const Params& p) {
          return Expectations{
              .instructions = p["instructions"], .loads = loads(p), .stores = stores(p)};
        },
    .body = body,
    .loop = false,
};

}  // namespace skidproof::straight_line
