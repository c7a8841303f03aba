// asmjit's assembler, which refuses instead of skipping.
#include "kernels/jit/emitter.h"

#include <fmt/format.h>

namespace skidproof {

// asmjit reports a bad instruction here and then goes on without it; finish() must not.
void Emitter::Refusals::handleError(asmjit::Error, const char* message, asmjit::BaseEmitter*) {
  if (first.empty()) first = message;
}

Emitter::Emitter(const Placement& placement) : placement_(placement) {
  holder_.init(asmjit::Environment(asmjit::Arch::kX64), placement.code_address);
  holder_.setErrorHandler(&refusals_);
  holder_.attach(this);
  addDiagnosticOptions(asmjit::DiagnosticOptions::kValidateAssembler);
  addEncodingOptions(asmjit::EncodingOptions::kOptimizedAlign);  // few long no-operations
}

// The holder is a member and so goes before the base class that is attached to it.
Emitter::~Emitter() { holder_.detach(this); }

uint64_t Emitter::address() const { return placement_.code_address + offset(); }

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
