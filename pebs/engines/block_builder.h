// Decodes basic blocks out of guest memory into operations.
#ifndef SKIDPROOF_PEBS_ENGINES_BLOCK_BUILDER_H_
#define SKIDPROOF_PEBS_ENGINES_BLOCK_BUILDER_H_

#include <cstdint>
#include <memory>

#include "base/expected.h"
#include "pebs/engines/interpreter.h"
#include "pebs/engines/operation.h"

namespace skidproof::engines {

class BlockBuilder {
 public:
  BlockBuilder(const GuestMemory& memory, const model::CoreBehaviour& behaviour,
               Accounting accounting, Mode mode)
      : memory_(memory),
        behaviour_(behaviour),
        modelled_(accounting == Accounting::kCore),
        mode_(mode) {}

  // The block that starts at `ip`: up to the next branch, the next instruction that cannot be executed,
  // or kMaximumInstructions. kExecution where there is no code, kUnsupported where its first
  // instruction is not known.
  Expected<std::unique_ptr<Block>> build(uint64_t ip) const;

  // What a fault of the instruction at `ip` means.
  Error explain(Fault fault, uint64_t ip, uint64_t data_address) const;

  // Short enough that a budget seldom ends inside one, long enough that blocks cost little.
  static constexpr size_t kMaximumInstructions = 64;

 private:
  Expected<model::Decoded> decode(uint64_t ip) const;

  const GuestMemory& memory_;
  model::CoreBehaviour behaviour_;
  bool modelled_;
  Mode mode_;
};

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_BLOCK_BUILDER_H_
