// Follows instructions that something else executes: feeds the core model with them and fills Retired, as the
// interpreter does for those that it executes itself.
#ifndef SKIDPROOF_PEBS_ENGINES_OBSERVER_H_
#define SKIDPROOF_PEBS_ENGINES_OBSERVER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mode.h"
#include "pebs/model/core.h"
#include "pebs/model/core_behaviour.h"
#include "pebs/model/decode.h"
#include "pebs/model/retired.h"

namespace skidproof::engines {

// Where code is read from.
class CodeMemory {
 public:
  virtual ~CodeMemory() = default;
  // The bytes from a linear address on; returns how many there are, at most into.size().
  virtual size_t code(uint64_t address, std::span<std::byte> into) = 0;
};

// One data access that was seen.
struct SeenAccess {
  uint64_t address = 0;
  uint32_t bytes = 0;
  bool load = false, store = false;  // both: read, modified and written
};

// One instruction that was executed.
struct Executed {
  uint64_t ip = 0;
  uint64_t next_ip = 0;
  bool taken = false;       // of a conditional branch
  bool writes_pmu = false;  // a WRMSR of a register of the PMU
  // How often a REP-prefixed one did its work. Its accesses are those of the first time.
  uint64_t repetitions = 1;
  std::span<const SeenAccess> accesses;  // in program order
};

// What an instruction costs depends on its neighbours in the basic block, so blocks are found here as the
// interpreter finds them: one begins where a branch leads to, and is followed to its end. An interrupt leaves
// a block, and the return from it comes back into the middle.
class Observer {
 public:
  // All must outlive the observer.
  Observer(model::Core& core, const model::CoreBehaviour& behaviour, CodeMemory& memory);

  // Long: 64-bit code. Real: code that is not decoded at all.
  void set_mode(Mode mode);
  // Code may have changed, or other code stand at the same addresses: what is known of a block is compared
  // with its bytes before it is used again.
  void suspect_code() { ++generation_; }
  // Back to the beginning, with the core, and from now on as this behaviour has it.
  void reset(const model::CoreBehaviour& behaviour);

  // One instruction in a stretch of several: adds what it does whatever the data to `counts`, and its time
  // to `clock`. The stretch begins at core.clock(), and ends with core.settle().
  void follow(const Executed& executed, arch::SignalCounts& counts, uint64_t& clock);
  // One instruction by itself; `after` are the registers after it. Fills everything but `vectors`.
  void retire(const Executed& executed, const model::Registers& after, model::Retired& retired);

  // The most instructions of a block, here and in the interpreter.
  static constexpr size_t kLongestBlock = 64;

 private:
  // What the interpreter would have decoded together.
  struct Block {
    uint64_t ip = 0;
    uint64_t checked = 0;  // the generation in which its bytes were read
    std::vector<std::byte> bytes;
    std::vector<model::InstructionFacts> facts;
    bool ends_in_return_from_interrupt = false;
  };
  // A place in a block; none: the next instruction begins one.
  struct Cursor {
    Block* block = nullptr;
    size_t index = 0;
    uint64_t ip() const { return block->facts[index].address; }
  };

  const model::InstructionFacts& locate(const Executed& executed);
  Block* enter(uint64_t ip);
  std::unique_ptr<Block> decode(uint64_t ip);
  bool is_fresh(Block& block);
  const model::InstructionFacts& undescribed(const Executed& executed);
  void apply(const model::InstructionFacts& facts, const Executed& executed,
             arch::SignalCounts& counts, uint64_t& clock);
  uint64_t reach(const model::InstructionFacts& facts, const Executed& executed, uint64_t now);
  uint64_t branch(const model::InstructionFacts& facts, const Executed& executed);
  void move_on();
  void forget();
  void resume(uint64_t ip);

  model::Core& core_;
  model::CoreBehaviour behaviour_;
  CodeMemory& memory_;
  Mode mode_ = Mode::kLong;
  std::unordered_map<uint64_t, std::unique_ptr<Block>> blocks_;
  uint64_t generation_ = 0;
  Cursor cursor_;
  bool returned_ = false;            // the last instruction returned from an interrupt
  std::vector<Cursor> interrupted_;  // the innermost is the last
  model::InstructionFacts unknown_;  // of an instruction that cannot be decoded
};

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_OBSERVER_H_
