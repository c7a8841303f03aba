// A machine's blocks of memory, and what changed in them since somebody looked.
#ifndef SKIDPROOF_PEBS_TAPE_WATCHED_MEMORY_H_
#define SKIDPROOF_PEBS_TAPE_WATCHED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pebs/machine.h"
#include "pebs/tape/bytes.h"

namespace skidproof::tape {

// A stretch of a block that is not what it was.
struct Change {
  size_t block = 0;  // in the order of allocation
  uint64_t offset = 0;
  std::span<const std::byte> bytes;  // now
};

// Where a call may have changed something.
enum class Look : uint8_t { kNowhere, kDebugStore, kEverywhere };

// Keeps a copy of each block but code, whose bytes come with the program that is run there. Blocks
// leave when their last handle does.
class WatchedMemory {
 public:
  struct Block {
    uint64_t address = 0;
    MemoryUse use = MemoryUse::kData;
    std::span<std::byte> host;     // empty: given back
    std::vector<std::byte> known;  // its content when somebody last looked
  };

  // A fresh block joins, as if it were zero. The handle to hand out instead of the one given.
  Memory add(Memory memory, MemoryUse use);

  // What changed since the last look, in the order of blocks and offsets; known from now on. Valid until
  // the next look. Stretches that are close together are one.
  const std::vector<Change>& look(Look where);
  const std::vector<Change>& look_into(size_t number);  // this block only
  // Makes a change in the block and in what is known of it; false where there is no such place.
  bool apply(const Change& change);

  const Block& block(size_t number) const { return shared_->blocks[number]; }
  size_t blocks() const { return shared_->blocks.size(); }

 private:
  struct Shared {  // with the handles, which may outlive this
    std::vector<Block> blocks;
  };
  void compare(size_t number);

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<Change> changes_;
};

// Whether the machine may write to the debug store between runs: while the test has left PEBS or branch
// traces on.
class LeftRecording {
 public:
  // Of a write that is to be done or is in a plan: where to look around it.
  Look around(const MsrWrite& write) const;
  void wrote(const MsrWrite& write);
  void ran(const RunPlan& plan);
  Look now() const {
    const bool recording = (pebs_enable_ | pebs_index_ | debugctl_) != 0;
    return recording ? Look::kDebugStore : Look::kNowhere;
  }

 private:
  uint64_t pebs_enable_ = 0, pebs_index_ = 0, debugctl_ = 0;
};

// As an answer's changes stand on a tape: all their bytes.
void encode_changes(Encoder& out, std::span<const Change> changes);
std::vector<Change> decode_changes(Decoder& in);
// As a question's do: the bytes for the debug store, a sum for each data block.
void encode_question(Encoder& out, const WatchedMemory& memory, std::span<const Change> changes);

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_WATCHED_MEMORY_H_
