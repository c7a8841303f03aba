// One instruction again and again: each waiting for the one before, which shows its latency, or none for another, which
// shows how many the core begins in a cycle.
#include <array>
#include <cstring>

#include "kernels/jit/emitter.h"

namespace skidproof::instruction_table {
namespace {

// Destinations of independent copies, which read rsi or xmm15 beside them; a chain reads r11.
const std::array<x86::Gp, 7> kGeneral = {x86::rax, x86::r9,  x86::rdx, x86::r8,
                                         x86::r11, x86::r10, x86::rcx};
constexpr uint32_t kVectors = 14;
constexpr uint64_t kConstant = 0x1E3779B97F4A7C15;
constexpr uint64_t kDivisor = 0x123456789ABCDE;
constexpr uint32_t kDivisor32 = 0x1234567;

// Where a copy writes: always to the same register in a chain.
struct Copy {
  Emitter& e;
  uint64_t i;
  bool chain;

  x86::Gp to() const { return chain ? x86::rax : kGeneral[i % kGeneral.size()]; }
  // What is read beside the destination, and what instead of it by an instruction of one source.
  x86::Gp beside() const { return chain ? x86::Gp(x86::r11) : kData; }
  x86::Gp from() const { return chain ? x86::Gp(x86::rax) : kData; }
  uint32_t lane() const { return chain ? 0 : static_cast<uint32_t>(i % kVectors); }
  uint32_t source() const { return chain ? 0 : 15; }
  x86::Xmm x() const { return x86::xmm(lane()); }
  x86::Xmm y() const { return x86::xmm(source()); }
};

// In a chain the quotient becomes the dividend again, by way of AND with 0 and OR.
void divide(const Copy& c, bool is_signed, bool wide) {
  const x86::Gp divisor = wide ? x86::Gp(x86::r8) : x86::Gp(x86::r8d);
  if (!c.chain) wide ? c.e.mov(x86::rax, x86::r11) : c.e.mov(x86::eax, x86::r11d);
  c.e.xor_(x86::edx, x86::edx);
  is_signed ? c.e.idiv(divisor) : c.e.div(divisor);
  if (!c.chain) return;
  if (wide) {
    c.e.and_(x86::rax, x86::r9);
    c.e.or_(x86::rax, x86::r11);
  } else {
    c.e.and_(x86::eax, x86::r9d);
    c.e.or_(x86::eax, x86::r11d);
  }
}

struct Entry {
  const char* name;
  void (*write)(const Copy&);
  uint64_t chained = 1;      // instructions of a copy in a chain; 0: there is none
  uint64_t independent = 1;  // and beside others; 0: copies cannot be independent
  Isa needs = Isa::kBaseline;
  uint64_t loads = 0, stores = 0;
};

const Entry kEntries[] = {
    {"add", [](const Copy& c) { c.e.add(c.to(), c.beside()); }},
    {"add_imm", [](const Copy& c) { c.e.add(c.to(), 3); }},
    {"and", [](const Copy& c) { c.e.and_(c.to(), c.beside()); }},
    {"or", [](const Copy& c) { c.e.or_(c.to(), c.beside()); }},
    {"adc", [](const Copy& c) { c.e.adc(c.to(), x86::r11); }, 1, 0},
    {"cmovz", [](const Copy& c) { c.e.cmovz(c.to(), c.beside()); }},
    {"imul", [](const Copy& c) { c.e.imul(c.to(), c.beside()); }},
    {"lea_2", [](const Copy& c) { c.e.lea(c.to(), x86::ptr(c.from(), c.beside())); }},
    {"lea_3", [](const Copy& c) { c.e.lea(c.to(), x86::ptr(c.from(), c.beside(), 0, 8)); }},
    {"lea_scaled", [](const Copy& c) { c.e.lea(c.to(), x86::ptr(c.beside(), c.from(), 2)); }},
    {"shl_imm", [](const Copy& c) { c.e.shl(c.to(), 3); }},
    {"shl_cl",
     [](const Copy& c) { c.e.shl(c.chain ? x86::Gp(x86::rax) : kGeneral[c.i % 6], x86::cl); }},
    {"rol_imm", [](const Copy& c) { c.e.rol(c.to(), 7); }},
    {"bswap", [](const Copy& c) { c.e.bswap(c.to()); }},
    {"movzx", [](const Copy& c) { c.e.movzx(c.to().r32(), c.from().r8Lo()); }},
    {"popcnt", [](const Copy& c) { c.e.popcnt(c.to(), c.from()); }, 1, 1, Isa::kPopcnt},
    {"lzcnt", [](const Copy& c) { c.e.lzcnt(c.to(), c.from()); }, 1, 1, Isa::kLzcnt},
    {"tzcnt", [](const Copy& c) { c.e.tzcnt(c.to(), c.from()); }, 1, 1, Isa::kBmi1},
    {"div32", [](const Copy& c) { divide(c, false, false); }, 4, 3},
    {"div64", [](const Copy& c) { divide(c, false, true); }, 4, 3},
    {"idiv32", [](const Copy& c) { divide(c, true, false); }, 4, 3},
    {"idiv64", [](const Copy& c) { divide(c, true, true); }, 4, 3},
    // From one register to another and back.
    {"mov",
     [](const Copy& c) {
       if (!c.chain) return void(c.e.mov(c.to(), c.beside()));
       c.i % 2 == 0 ? c.e.mov(x86::rdx, x86::rax) : c.e.mov(x86::rax, x86::rdx);
     }},
    {"xor_zero", [](const Copy& c) { c.e.xor_(c.to().r32(), c.to().r32()); }},
    {"nop", [](const Copy& c) { c.e.nop(); }, 0, 1},
    {"load",
     [](const Copy& c) { c.e.mov(c.to(), data_at(static_cast<int32_t>(128 + c.i % 64 * 8))); }, 0,
     1, Isa::kBaseline, 1, 0},
    {"store",
     [](const Copy& c) { c.e.mov(data_at(static_cast<int32_t>(128 + c.i % 64 * 8)), kData); }, 0, 1,
     Isa::kBaseline, 0, 1},
    {"movaps",
     [](const Copy& c) {
       if (!c.chain) return void(c.e.movaps(c.x(), x86::xmm15));
       c.i % 2 == 0 ? c.e.movaps(x86::xmm1, x86::xmm0) : c.e.movaps(x86::xmm0, x86::xmm1);
     }},
    {"pxor_zero", [](const Copy& c) { c.e.pxor(c.x(), c.x()); }},
    {"paddd", [](const Copy& c) { c.e.paddd(c.x(), x86::xmm15); }},
    {"pmuludq", [](const Copy& c) { c.e.pmuludq(c.x(), x86::xmm15); }},
    {"pmulld", [](const Copy& c) { c.e.pmulld(c.x(), x86::xmm15); }, 1, 1, Isa::kSse41},
    {"pshufd", [](const Copy& c) { c.e.pshufd(c.x(), c.y(), 0x1B); }},
    {"addps", [](const Copy& c) { c.e.addps(c.x(), x86::xmm15); }},
    {"mulps", [](const Copy& c) { c.e.mulps(c.x(), x86::xmm15); }},
    {"divps", [](const Copy& c) { c.e.divps(c.x(), x86::xmm15); }},
    // A root of a root … would soon be 1, whose root is easy: a product stands behind each.
    {"sqrtps",
     [](const Copy& c) {
       c.e.sqrtps(c.x(), c.y());
       if (c.chain) c.e.mulps(c.x(), x86::xmm15);
     },
     2, 1},
    {"addsd", [](const Copy& c) { c.e.addsd(c.x(), x86::xmm15); }},
    {"mulsd", [](const Copy& c) { c.e.mulsd(c.x(), x86::xmm15); }},
    {"divsd", [](const Copy& c) { c.e.divsd(c.x(), x86::xmm15); }},
    {"sqrtsd",
     [](const Copy& c) {
       c.e.sqrtsd(c.x(), c.y());
       if (c.chain) c.e.mulsd(c.x(), x86::xmm15);
     },
     2, 1},
    {"vaddps_256", [](const Copy& c) { c.e.vaddps(c.x().ymm(), c.x().ymm(), x86::ymm15); }, 1, 1,
     Isa::kAvx},
    {"vmulps_256", [](const Copy& c) { c.e.vmulps(c.x().ymm(), c.x().ymm(), x86::ymm15); }, 1, 1,
     Isa::kAvx},
    {"vdivps_256", [](const Copy& c) { c.e.vdivps(c.x().ymm(), c.x().ymm(), x86::ymm15); }, 1, 1,
     Isa::kAvx},
    {"vpaddd_256", [](const Copy& c) { c.e.vpaddd(c.x().ymm(), c.x().ymm(), x86::ymm15); }, 1, 1,
     Isa::kAvx2},
    {"vpmulld_256", [](const Copy& c) { c.e.vpmulld(c.x().ymm(), c.x().ymm(), x86::ymm15); }, 1, 1,
     Isa::kAvx2},
    {"vfmadd_256", [](const Copy& c) { c.e.vfmadd213ps(c.x().ymm(), x86::ymm15, x86::ymm14); }, 1,
     1, Isa::kFma},
    {"vaddps_512", [](const Copy& c) { c.e.vaddps(c.x().zmm(), c.x().zmm(), x86::zmm15); }, 1, 1,
     Isa::kAvx512},
    {"vmulps_512", [](const Copy& c) { c.e.vmulps(c.x().zmm(), c.x().zmm(), x86::zmm15); }, 1, 1,
     Isa::kAvx512},
    {"vdivps_512", [](const Copy& c) { c.e.vdivps(c.x().zmm(), c.x().zmm(), x86::zmm15); }, 1, 1,
     Isa::kAvx512},
    {"vpaddd_512", [](const Copy& c) { c.e.vpaddd(c.x().zmm(), c.x().zmm(), x86::zmm15); }, 1, 1,
     Isa::kAvx512},
    {"vpmulld_512", [](const Copy& c) { c.e.vpmulld(c.x().zmm(), c.x().zmm(), x86::zmm15); }, 1, 1,
     Isa::kAvx512},
    {"vfmadd_512", [](const Copy& c) { c.e.vfmadd213ps(c.x().zmm(), x86::zmm15, x86::zmm14); }, 1,
     1, Isa::kAvx512},
};

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Entry& entry : kEntries) out.emplace_back(entry.name);
  return out;
}

const Entry& entry_of(const Params& p) { return kEntries[p["instruction"]]; }
bool chained(const Params& p) { return p["order"] == 0; }
uint64_t length_of(const Params& p) {
  return chained(p) ? entry_of(p).chained : entry_of(p).independent;
}

// Floats near 1 in the first 64 bytes, doubles in the next.
void constants(std::span<std::byte> host) {
  for (size_t i = 0; i < 16; ++i) {
    const float value = 1.0000001F;
    std::memcpy(&host[i * sizeof value], &value, sizeof value);
  }
  for (size_t i = 0; i < 8; ++i) {
    const double value = 1.0000001;
    std::memcpy(&host[64 + i * sizeof value], &value, sizeof value);
  }
}

void load_vectors(Emitter& e, const Params& p) {
  const Entry& entry = entry_of(p);
  const bool doubles = std::string_view(entry.name).ends_with("sd");
  for (uint32_t i = 0; i < 16; ++i) {
    if (entry.needs == Isa::kAvx512) {
      e.vmovups(x86::zmm(i), data_at(0, 64));
    } else if (entry.needs == Isa::kAvx || entry.needs == Isa::kAvx2 || entry.needs == Isa::kFma) {
      e.vmovups(x86::ymm(i), data_at(0, 32));
    } else {
      e.movups(x86::xmm(i), data_at(doubles ? 64 : 0, 16));
    }
  }
}

void load_general(Emitter& e, const Params& p) {
  e.mov(x86::r11, kConstant);
  for (const x86::Gp& reg : {x86::rax, x86::rdx, x86::r10}) e.mov(reg, x86::r11);
  e.mov(x86::ecx, 3);
  const std::string_view name = entry_of(p).name;
  name.ends_with("div32") ? e.mov(x86::r8d, kDivisor32) : e.mov(x86::r8, kDivisor);
}

}  // namespace

SKIDPROOF_KERNEL(instruction_table){
    .brief = "copies of one instruction, each waiting for the one before or none for another",
    .parameters =
        {{.name = "instruction",
          .brief = "which; its second operand, where it has one, is a constant register",
          .words = names()},
         {.name = "order", .brief = "of the copies", .words = {"chain", "independent"}},
         {.name = "copies", .brief = "each iteration", .fallback = 16, .low = 1, .high = 1024}},
    .check = [](const Params& p) -> Expected<void> {
      if (length_of(p) != 0) return {};
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} has no {} copies", p.word("instruction"), p.word("order")));
    },
    .needs =
        [](const Params& p) {
          const Isa isa = entry_of(p).needs;
          return isa == Isa::kBaseline ? std::vector<Isa>{} : std::vector<Isa>{isa};
        },
    .data_bytes = [](const Params&) -> size_t { return 128 + 64 * 8; },
    .fill = [](const Params&, std::span<std::byte> host, uint64_t, uint64_t) { constants(host); },
    .per_iteration =
        [](const Params& p) {
          const Entry& entry = entry_of(p);
          return Expectations{
                     .instructions = length_of(p), .loads = entry.loads, .stores = entry.stores} *
                 p["copies"];
        },
    .setup =
        [](Emitter& e, const Params& p) {
          load_general(e, p);
          load_vectors(e, p);
        },
    .body =
        [](Emitter& e, const Params& p) {
          e.mark("copy");
          for (uint64_t i = 0; i < p["copies"]; ++i) entry_of(p).write({e, i, chained(p)});
        },
    .long_mode_only = true,
};

}  // namespace skidproof::instruction_table
