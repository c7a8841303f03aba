// asmjit's assembler, which refuses instead of skipping.
#include "kernels/jit/emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace skidproof {

// asmjit reports a bad instruction here and then goes on without it; finish() must not.
void Emitter::Refusals::handleError(asmjit::Error, const char* message, asmjit::BaseEmitter*) {
  if (first.empty()) first = message;
}

Emitter::Emitter(const Placement& placement) : placement_(placement) {
  asmjit::Arch arch = placement.mode == Mode::kLong ? asmjit::Arch::kX64 : asmjit::Arch::kX86;
  holder_.init(asmjit::Environment(arch), placement.code_address);
  holder_.setErrorHandler(&refusals_);
  holder_.attach(this);
  addDiagnosticOptions(asmjit::DiagnosticOptions::kValidateAssembler);
  addEncodingOptions(asmjit::EncodingOptions::kOptimizedAlign);  // few long no-operations
}

// The holder is a member and so goes before the base class that is attached to it.
Emitter::~Emitter() { holder_.detach(this); }

namespace {

x86::Gp narrow(const x86::Gp& reg) { return reg.isGpq() ? reg.r32() : reg; }

bool is_general(const asmjit::Operand_& operand) {
  return operand.isReg() && x86::Reg::isGp(operand);
}

}  // namespace

// What an operand of 64-bit code means in 32-bit mode.
asmjit::Operand_ Emitter::narrowed(const asmjit::Operand_& operand, bool vector) {
  auto check = [this](uint32_t id) {
    if (id >= 8) refuse(fmt::format("there is no r{} in {}", id, name_of(mode())));
  };
  if (is_general(operand)) {
    const auto& reg = operand.as<x86::Gp>();
    check(reg.id());
    return narrow(reg);
  }
  if (operand.isMem()) {
    auto memory = operand.as<x86::Mem>();
    if (memory.hasBaseReg()) {
      check(memory.baseId());
      memory.setBase(x86::gpd(memory.baseId()));
    }
    if (memory.hasIndexReg()) {
      check(memory.indexId());
      memory.setIndex(x86::gpd(memory.indexId()));
    }
    if (memory.size() == 8 && !vector) memory.setSize(4);
    return memory;
  }
  if (operand.isImm()) {
    int64_t value = operand.as<asmjit::Imm>().value();
    if (value != int64_t{static_cast<int32_t>(value)} &&
        value != int64_t{static_cast<uint32_t>(value)})
      refuse(fmt::format("{:#x} does not fit 32 bits", static_cast<uint64_t>(value)));
    return asmjit::Imm(int64_t{static_cast<int32_t>(value)});
  }
  return operand;
}

asmjit::Error Emitter::_emit(asmjit::InstId id, const asmjit::Operand_& o0,
                             const asmjit::Operand_& o1, const asmjit::Operand_& o2,
                             const asmjit::Operand_* more) {
  if (mode() == Mode::kLong) return Assembler::_emit(id, o0, o1, o2, more);
  bool vector = false;
  for (const asmjit::Operand_* o : {&o0, &o1, &o2}) vector |= o->isReg() && x86::Reg::isVec(*o);
  return Assembler::_emit(id, narrowed(o0, vector), narrowed(o1, vector), narrowed(o2, vector),
                          more);
}

uint64_t Emitter::address() const { return placement_.code_address + offset(); }

void Emitter::nop_of(uint64_t bytes) {
  static constexpr std::array<std::array<uint8_t, 9>, 9> kNops = {{
      {0x90},
      {0x66, 0x90},
      {0x0F, 0x1F, 0x00},
      {0x0F, 0x1F, 0x40},
      {0x0F, 0x1F, 0x44},
      {0x66, 0x0F, 0x1F, 0x44},
      {0x0F, 0x1F, 0x80},
      {0x0F, 0x1F, 0x84},
      {0x66, 0x0F, 0x1F, 0x84},
  }};
  if (bytes == 0 || bytes > kNops.size())
    return refuse(fmt::format("a no-operation of {} bytes", bytes));
  embed(kNops[bytes - 1].data(), bytes);
}

void Emitter::nops_until(uint64_t wanted) {
  if (address() > wanted) return refuse(fmt::format("{:#x} lies behind the code already", wanted));
  while (address() < wanted) nop_of(std::min<uint64_t>(wanted - address(), 9));
}

// An instruction has 15 bytes at most, of which those in front of the nine are operand-size prefixes.
void Emitter::unreached_until(uint64_t wanted) {
  constexpr uint64_t kMost = 15, kPlain = 9;
  while (address() < wanted) {
    const uint64_t bytes = std::min(wanted - address(), kMost);
    for (uint64_t prefix = kPlain; prefix < bytes; ++prefix) db(0x66);
    nop_of(std::min(bytes, kPlain));
  }
}

void Emitter::mark(std::string_view name) {
  if (!marks_.emplace(std::string(name), address()).second) {
    refuse(fmt::format("the mark '{}' is set twice", name));
  }
}

void Emitter::mark(std::string_view name, uint64_t index) {
  index == 0 ? mark(name) : mark(fmt::format("{}.{}", name, index));
}

void Emitter::alias(std::string_view name, std::string_view existing) {
  aliases_.emplace_back(name, existing);
}

void Emitter::resolve_aliases() {
  for (const auto& [name, existing] : aliases_) {
    auto it = marks_.find(existing);
    if (it == marks_.end() || !marks_.emplace(name, it->second).second) {
      refuse(fmt::format("the mark '{}' cannot be another name of '{}'", name, existing));
    }
  }
  aliases_.clear();
}

void Emitter::refuse(std::string reason) {
  if (refusals_.first.empty()) refusals_.first = std::move(reason);
}

void Emitter::after_return(std::function<void()> write) {
  after_return_.push_back(std::move(write));
}

Expected<std::vector<std::byte>> Emitter::finish() {
  for (const auto& write : after_return_) write();
  after_return_.clear();
  resolve_aliases();
  asmjit::Error error = holder_.flatten();
  if (error == asmjit::kErrorOk) error = holder_.resolveUnresolvedLinks();
  if (error == asmjit::kErrorOk && holder_.hasUnresolvedLinks()) error = asmjit::kErrorInvalidLabel;
  if (error == asmjit::kErrorOk) error = holder_.relocateToBase(placement_.code_address);
  std::vector<std::byte> code(holder_.codeSize());
  if (error == asmjit::kErrorOk) error = holder_.copyFlattenedData(code.data(), code.size());
  if (error != asmjit::kErrorOk) refuse(asmjit::DebugUtils::errorAsString(error));
  if (!refusals_.first.empty()) {
    return fail(ErrorCode::kInternal, fmt::format("the assembler refused: {}", refusals_.first));
  }
  return code;
}

x86::Mem data_at(int32_t displacement, uint32_t size) {
  return x86::Mem(kData, displacement, size);
}

x86::Mem data_at(const x86::Gp& index, int32_t displacement, uint32_t size) {
  return x86::Mem(kData, index, 0, displacement, size);
}

}  // namespace skidproof
