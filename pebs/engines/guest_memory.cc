#include "pebs/engines/guest_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/zeroed_memory.h"

namespace skidproof::engines {

// Address space of the host's, and of each of its pages what programs may do there: at first nothing, and all zeros.
struct HostMapping {
  HostMapping(void* at, uint64_t size)
      : host(static_cast<std::byte*>(at)), bytes(size), pages(size / GuestMemory::kPageBytes) {}
  HostMapping(const HostMapping&) = delete;
  HostMapping& operator=(const HostMapping&) = delete;
  ~HostMapping() { munmap(host, bytes); }

  std::byte* host;
  uint64_t bytes;
  ZeroedMemory<uint8_t> pages;  // PageBits
};

namespace {

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// From here on the host's own huge pages are worth what clearing them costs.
constexpr uint64_t kLarge = uint64_t{4} << 20;
// Up to here a freed block is cleared where it stands: to give its pages back and be given new ones takes longer, most
// of all where threads share the address space and each has to be told.
constexpr uint64_t kClearedInPlace = uint64_t{2} << 20;

// Mappings that are as new again wait here for the next machine, as many as there may be machines at once.
class SpareMappings {
 public:
  // nullptr where none has that size.
  std::unique_ptr<HostMapping> take(uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.empty() || spare_.back()->bytes != bytes) return nullptr;
    auto mapping = std::move(spare_.back());
    spare_.pop_back();
    return mapping;
  }
  void give(std::unique_ptr<HostMapping> mapping) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!spare_.empty() && spare_.back()->bytes != mapping->bytes) return;
    if (spare_.size() < most_) spare_.push_back(std::move(mapping));
  }
  void release() {
    std::lock_guard<std::mutex> lock(mutex_);
    spare_.clear();
  }

 private:
  std::mutex mutex_;
  const size_t most_ = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::unique_ptr<HostMapping>> spare_;  // all of one size
};
SpareMappings& spare_mappings() {
  static auto* const spare =
      new SpareMappings;  // a handle may be given back behind the end of main
  return *spare;
}

// nullptr where the host refuses.
std::unique_ptr<HostMapping> map(uint64_t bytes) {
  if (auto spare = spare_mappings().take(bytes)) return spare;
  void* host = MAP_FAILED;
  for (int again = 0; host == MAP_FAILED && again < 2; ++again) {
    if (again == 1) spare_mappings().release();
    host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
  }
  return host == MAP_FAILED ? nullptr : std::make_unique<HostMapping>(host, bytes);
}

}  // namespace

// Shared with every handle, so that a Memory may outlive the GuestMemory that made it.
struct GuestMemory::Arena {
  Arena(std::unique_ptr<HostMapping> of, uint64_t address)
      : mapping(std::move(of)), host(mapping->host), base(address), bytes(mapping->bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::unique_ptr<HostMapping> mapping;
  std::byte* host;
  uint64_t base, bytes;
  uint64_t generation = 0;
  std::map<uint64_t, uint64_t> taken;  // offset of a block → its bytes, in whole pages

  // Behind the last block's end.
  ~Arena() { spare_mappings().give(std::move(mapping)); }

  // The lowest offset where `size` bytes fit with a free page before and after; `bytes` when none.
  uint64_t find(uint64_t size, uint64_t alignment) const {
    uint64_t candidate = round_up(kPageBytes, alignment);
    for (const auto& [offset, length] : taken) {
      if (candidate + size + kPageBytes <= offset) return candidate;
      candidate = round_up(offset + length + kPageBytes, alignment);
    }
    return candidate + size + kPageBytes <= bytes ? candidate : bytes;
  }

  void mark(uint64_t offset, uint64_t size, uint8_t bits) {
    std::fill_n(&mapping->pages[offset / kPageBytes], size / kPageBytes, bits);
    ++generation;
  }

  void free(uint64_t offset) {
    auto block = taken.find(offset);
    mark(offset, block->second, 0);
    // The next owner of these pages must find zeros; the host gets the memory of a large block back.
    if (block->second <= kClearedInPlace ||
        madvise(host + offset, block->second, MADV_DONTNEED) != 0) {
      std::memset(host + offset, 0, block->second);
    }
    if (block->second >= kLarge) madvise(host + offset, block->second, MADV_NOHUGEPAGE);
    taken.erase(block);
  }
};

GuestMemory::GuestMemory(std::shared_ptr<Arena> arena)
    : arena_(std::move(arena)),
      pages_(&arena_->mapping->pages[0]),
      generation_(&arena_->generation),
      base_(arena_->base),
      bytes_(arena_->bytes),
      host_delta_(reinterpret_cast<uint64_t>(arena_->host) - arena_->base) {}

GuestMemory::~GuestMemory() = default;

Expected<std::unique_ptr<GuestMemory>> GuestMemory::create(uint64_t base, uint64_t bytes) {
  bool sensible = bytes > 0 && bytes < kWindow && base % kHugePageBytes == 0;
  bytes = sensible ? round_up(bytes, kHugePageBytes) : bytes;
  if (!sensible || base % kWindow + bytes >= kWindow) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "guest memory of {} bytes at {:#x}: the base must be a multiple of 2 MiB, and the "
            "block inside a window of 128 GiB",
            bytes, base));
  }
  auto mapping = map(bytes);
  if (mapping == nullptr) {
    return fail(ErrorCode::kNoMemory,
                fmt::format("cannot reserve {} MiB of address space for guest memory: {}",
                            bytes >> 20, std::strerror(errno)),
                "raise the limit of virtual memory (ulimit -v) or close other programs");
  }
  auto arena = std::make_shared<Arena>(std::move(mapping), base);
  return std::unique_ptr<GuestMemory>(new GuestMemory(std::move(arena)));
}

Expected<Memory> GuestMemory::allocate(size_t bytes, MemoryUse use, bool huge) {
  if (bytes == 0)
    return fail(ErrorCode::kInvalidArgument, "cannot allocate 0 bytes of guest memory");
  uint64_t size = bytes > bytes_ ? bytes_ + 1 : round_up(bytes, kPageBytes);
  uint64_t offset = arena_->find(size, huge ? kHugePageBytes : kPageBytes);
  if (offset >= bytes_) {
    return fail(ErrorCode::kNoMemory,
                fmt::format("guest memory has no room for {} bytes: {} MiB in all, {} blocks taken",
                            bytes, bytes_ >> 20, arena_->taken.size()),
                "ask for less, or free blocks that are no longer used");
  }
  Memory memory = take(offset, bytes, use);
  memory.huge_pages = huge;
  return memory;
}

Expected<Memory> GuestMemory::allocate_at(uint64_t address, size_t bytes, MemoryUse use) {
  const uint64_t offset = address - base_;
  const bool inside = bytes > 0 && offset < bytes_ && bytes <= bytes_ - offset;
  bool vacant = inside && address % kPageBytes == 0;
  for (uint64_t page = offset; vacant && page < offset + bytes; page += kPageBytes) {
    vacant = !mapped(base_ + page, 1);
  }
  if (!vacant) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("guest memory [{:#x}, {:#x}) has no room for {} bytes at {:#x}", base_,
                            base_ + bytes_, bytes, address));
  }
  return take(offset, bytes, use);
}

// Marks the pages; nothing stands there.
Memory GuestMemory::take(uint64_t offset, size_t bytes, MemoryUse use) {
  const uint64_t size = round_up(bytes, kPageBytes);
  arena_->taken.emplace(offset, size);
  // A wish: without them a chase through it takes longer, no more.
  if (size >= kLarge) madvise(arena_->host + offset, size, MADV_HUGEPAGE);
  arena_->mark(offset, size,
               use == MemoryUse::kCode ? uint8_t{kMapped | kCode} : uint8_t{kMapped | kWritable});
  Memory memory;
  memory.host = {arena_->host + offset, bytes};
  memory.address = base_ + offset;
  memory.keep = std::shared_ptr<void>(arena_->host + offset,
                                      [arena = arena_, offset](void*) { arena->free(offset); });
  return memory;
}

bool GuestMemory::read(uint64_t address, std::span<std::byte> into) {
  if (!mapped(address, into.size())) return false;
  std::memcpy(into.data(), host(address), into.size());
  return true;
}

bool GuestMemory::write(uint64_t address, std::span<const std::byte> from) {
  if (!mapped(address, from.size())) return false;
  std::memcpy(host(address), from.data(), from.size());
  return true;
}

unsigned GuestMemory::rights_across_pages(uint64_t address, unsigned bytes) const {
  return unsigned{mapped(address, bytes)} * kMapped |
         unsigned{writable(address, bytes)} * kWritable;
}

}  // namespace skidproof::engines
