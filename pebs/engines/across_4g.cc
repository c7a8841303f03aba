#include "pebs/engines/across_4g.h"

#include <fmt/format.h>

#include <cstring>

#include "pebs/engines/guest_memory.h"

namespace skidproof::engines {

Expected<Memory> Across4G::allocate(size_t bytes) {
  constexpr size_t kMost = 1 << 20;
  constexpr size_t kPage = GuestMemory::kPageBytes;
  if (bytes == 0 || bytes > kMost) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot place {} bytes at the end of 4 GiB: 1 to {}", bytes, kMost));
  }
  if (!block_.expired()) {
    return fail(ErrorCode::kNoMemory, "another block ends at 4 GiB", "free it first");
  }
  const size_t below = (bytes + kPage - 1) / kPage * kPage;
  auto block = std::make_shared<std::vector<std::byte>>(below + kPage);
  block_ = block;
  base_ = kEnd - below;
  Memory memory;
  memory.host = *block;
  memory.address = base_;
  memory.keep = std::move(block);
  return memory;
}

std::byte* Across4G::at(uint64_t address, size_t bytes) const {
  if (address >= kEnd) return nullptr;
  const auto block = block_.lock();
  if (block == nullptr) return nullptr;
  const uint64_t offset = (address - base_) % kEnd;
  if (offset >= block->size() || bytes > block->size() - offset) return nullptr;
  return block->data() + offset;
}

bool Across4G::read(uint64_t address, std::span<std::byte> into) {
  const std::byte* from = at(address, into.size());
  if (from == nullptr) return false;
  std::memcpy(into.data(), from, into.size());
  return true;
}

bool Across4G::write(uint64_t address, std::span<const std::byte> from) {
  std::byte* into = at(address, from.size());
  if (into == nullptr) return false;
  std::memcpy(into, from.data(), from.size());
  return true;
}

}  // namespace skidproof::engines
