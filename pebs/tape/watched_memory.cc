#include "pebs/tape/watched_memory.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "pebs/arch/msr.h"

namespace skidproof::tape {
namespace {

constexpr size_t kComparedBytes = 4096;
// A stretch ends where so many bytes are as they were: less would cost more to say than to repeat.
constexpr size_t kGap = 32;

// The first place from `at` on where the two differ; the size where they do not.
size_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b, size_t at) {
  while (at < a.size()) {
    const size_t piece = std::min(kComparedBytes - at % kComparedBytes, a.size() - at);
    if (std::memcmp(a.data() + at, b.data() + at, piece) == 0) {
      at += piece;
      continue;
    }
    return static_cast<size_t>(std::mismatch(a.begin() + static_cast<ptrdiff_t>(at), a.end(),
                                             b.begin() + static_cast<ptrdiff_t>(at))
                                   .first -
                               a.begin());
  }
  return a.size();
}

// The end of the stretch that begins at `at`, where the two differ.
size_t end_of_stretch(std::span<const std::byte> a, std::span<const std::byte> b, size_t at) {
  size_t end = at + 1;
  for (size_t i = end; i < a.size() && i < end + kGap;) {
    uint64_t left = 0, right = 0;
    const size_t piece = std::min<size_t>(sizeof left, a.size() - i);
    std::memcpy(&left, a.data() + i, piece);
    std::memcpy(&right, b.data() + i, piece);
    i += piece;
    if (left != right) end = i;
  }
  // Back to the last byte that differs.
  while (a[end - 1] == b[end - 1]) --end;
  return end;
}

}  // namespace

Memory WatchedMemory::add(Memory memory, MemoryUse use) {
  Block block{.address = memory.address, .use = use, .host = memory.host, .known = {}};
  if (use != MemoryUse::kCode) block.known.resize(memory.host.size());
  shared_->blocks.push_back(std::move(block));
  // The block is unwatched before it is freed.
  struct Handle {
    std::shared_ptr<void> freed_last;
    std::shared_ptr<Shared> shared;
    size_t number;
    Handle(std::shared_ptr<void> keep, std::shared_ptr<Shared> blocks, size_t index)
        : freed_last(std::move(keep)), shared(std::move(blocks)), number(index) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    ~Handle() {
      Block& gone = shared->blocks[number];
      gone.host = {};
      gone.known = {};
    }
  };
  memory.keep = std::make_shared<Handle>(std::move(memory.keep), shared_, blocks() - 1);
  return memory;
}

const std::vector<Change>& WatchedMemory::look(Look where) {
  changes_.clear();
  if (where == Look::kNowhere) return changes_;
  for (size_t number = 0; number < blocks(); ++number) {
    if (where == Look::kEverywhere || block(number).use == MemoryUse::kDebugStore) compare(number);
  }
  return changes_;
}

const std::vector<Change>& WatchedMemory::look_into(size_t number) {
  changes_.clear();
  compare(number);
  return changes_;
}

void WatchedMemory::compare(size_t number) {
  Block& block = shared_->blocks[number];
  if (block.use == MemoryUse::kCode) return;
  const std::span<const std::byte> now = block.host;
  for (size_t at = first_difference(now, block.known, 0); at < now.size();) {
    const size_t end = end_of_stretch(now, block.known, at);
    std::copy(now.begin() + static_cast<ptrdiff_t>(at), now.begin() + static_cast<ptrdiff_t>(end),
              block.known.begin() + static_cast<ptrdiff_t>(at));
    changes_.push_back({.block = number,
                        .offset = at,
                        .bytes = std::span<const std::byte>(block.known).subspan(at, end - at)});
    at = first_difference(now, block.known, end);
  }
}

bool WatchedMemory::apply(const Change& change) {
  if (change.block >= blocks()) return false;
  Block& block = shared_->blocks[change.block];
  const size_t size = block.known.size();
  if (change.offset > size || change.bytes.size() > size - change.offset) return false;
  std::copy(change.bytes.begin(), change.bytes.end(), block.host.data() + change.offset);
  std::copy(change.bytes.begin(), change.bytes.end(), block.known.data() + change.offset);
  return true;
}

Look LeftRecording::around(const MsrWrite& write) const {
  LeftRecording after = *this;
  after.wrote(write);
  return std::max(now(), after.now());
}

// They stand at the same addresses on every microarch that has them. [SDM vol. 4, tables of model-specific registers]
void LeftRecording::wrote(const MsrWrite& write) {
  if (write.msr == arch::IA32_PEBS_ENABLE) pebs_enable_ = write.value;
  if (write.msr == arch::IA32_PEBS_INDEX) pebs_index_ = write.value & arch::pebs_index::kEnable;
  if (write.msr == arch::IA32_DEBUGCTL) debugctl_ = write.value;
}

void LeftRecording::ran(const RunPlan& plan) {
  for (const MsrWrite& write : plan.enable) wrote(write);
  for (const MsrWrite& write : plan.disable) wrote(write);
}

void encode_changes(Encoder& out, std::span<const Change> changes) {
  out.number(changes.size());
  for (const Change& change : changes) {
    out.number(change.block);
    out.number(change.offset);
    out.blob(change.bytes);
  }
}

std::vector<Change> decode_changes(Decoder& in) {
  std::vector<Change> changes;
  const size_t count = in.count();
  for (size_t i = 0; i < count && in.good(); ++i) {
    const auto block = static_cast<size_t>(in.number());
    const uint64_t offset = in.number();
    changes.push_back({.block = block, .offset = offset, .bytes = in.blob()});
  }
  return changes;
}

void encode_question(Encoder& out, const WatchedMemory& memory, std::span<const Change> changes) {
  const auto debug_store = [&](const Change& change) {
    return memory.block(change.block).use == MemoryUse::kDebugStore;
  };
  std::vector<Change> store;
  std::copy_if(changes.begin(), changes.end(), std::back_inserter(store), debug_store);
  encode_changes(out, store);
  for (auto at = changes.begin(); at != changes.end();) {
    if (debug_store(*at)) {
      ++at;
      continue;
    }
    const size_t block = at->block;
    Encoder all;
    for (; at != changes.end() && at->block == block; ++at) {
      all.number(at->offset);
      all.number(at->bytes.size());
      all.number(XXH64(at->bytes.data(), at->bytes.size(), 0));
    }
    out.number(block);
    out.number(XXH64(all.bytes().data(), all.bytes().size(), 0));
  }
}

}  // namespace skidproof::tape
