// Guest memory: the linear address space that programs on the model machine and its PMU see.
#ifndef SKIDPROOF_PEBS_ENGINES_GUEST_MEMORY_H_
#define SKIDPROOF_PEBS_ENGINES_GUEST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/expected.h"
#include "pebs/machine.h"
#include "pebs/model/pmu.h"

namespace skidproof::engines {

// One arena of host memory that stands at a fixed guest address, handed out in blocks of whole pages.
// Blocks are placed first-fit from the bottom, so that a program of allocations yields the same
// addresses in every run. Not thread-safe. Handles may outlive the GuestMemory; their bytes do too.
class GuestMemory : public model::Bus {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kHugePageBytes = 2 << 20;
  enum PageBits : uint8_t { kMapped = 1, kWritable = 2, kCode = 4 };
  // The bottom of Linux's direct map without KASLR: what a kernel-mode program would see.
  static constexpr uint64_t kBase = 0xffff'8880'0000'0000;
  static constexpr uint64_t kBytes = uint64_t{2} << 30;
  // The core model tells lines apart by address bits 36:6: all of an arena lies in one aligned window.
  static constexpr uint64_t kWindow = uint64_t{128} << 30;
  static constexpr uint64_t kAbovePhysical = ~uint64_t{0} << 52;

  // Reserves (does not commit) `bytes` of host memory, rounded up to 2 MiB, to stand at guest address
  // `base` (2 MiB-aligned). kNoMemory when the host refuses the mapping; kInvalidArgument.
  static Expected<std::unique_ptr<GuestMemory>> create(uint64_t base = kBase,
                                                       uint64_t bytes = kBytes);
  ~GuestMemory() override;

  // A zeroed block of whole pages with at least one unmapped guard page on both sides; at a multiple of
  // 2 MiB when huge pages are asked for. kInvalidArgument for 0 bytes, kNoMemory when the arena is full.
  Expected<Memory> allocate(size_t bytes, MemoryUse use, bool huge);
  // The same at an address, a multiple of kPageBytes, with guard pages or without. kInvalidArgument where
  // something stands already, or outside the arena.
  Expected<Memory> allocate_at(uint64_t address, size_t bytes, MemoryUse use);

  // model::Bus: false when a byte of the range is not mapped; nothing is transferred then.
  bool read(uint64_t address, std::span<std::byte> into) override;
  bool write(uint64_t address, std::span<const std::byte> from) override;
  bool write_physical(uint64_t address, std::span<const std::byte> from) override {
    return write(linear_of(address), from);
  }

  // Where a block stands in physical memory: at its linear address, of the upper half without the bits that no physical
  // address has.
  static constexpr uint64_t physical_of(uint64_t linear) { return linear & ~kAbovePhysical; }
  static constexpr uint64_t linear_of(uint64_t physical) {
    return physical >> 47 == 0 ? physical : physical | kAbovePhysical;
  }

  // Is every byte of [address, address + bytes) in an allocated page? In one that programs may write
  // (code pages may not be written: the engine caches what it decoded)? In a code page?
  bool mapped(uint64_t address, uint64_t bytes) const { return all(address, bytes, kMapped); }
  bool writable(uint64_t address, uint64_t bytes) const { return all(address, bytes, kWritable); }
  bool executable(uint64_t address, uint64_t bytes) const { return all(address, bytes, kCode); }

  // What the pages of a short range are, for the engine's accesses: at least kMapped and kWritable.
  [[gnu::always_inline]] unsigned rights(uint64_t address, unsigned bytes) const {
    uint64_t offset = address - base_;
    if (offset < bytes_ && (offset % kPageBytes) + bytes <= kPageBytes) [[likely]] {
      return pages_[offset / kPageBytes];
    }
    return rights_across_pages(address, bytes);
  }
  // The same, out of line and for any range.
  unsigned rights_across_pages(uint64_t address, unsigned bytes) const;

  // Where the guest's bytes stand: host address minus guest address, modulo 2^64. Valid for mapped pages.
  uint64_t host_delta() const { return host_delta_; }
  std::byte* host(uint64_t address) const {
    return reinterpret_cast<std::byte*>(address + host_delta_);
  }
  uint64_t base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  // Changes whenever a block is freed or allocated: cached translations and decoded code are stale.
  uint64_t generation() const { return *generation_; }

 private:
  struct Arena;

  explicit GuestMemory(std::shared_ptr<Arena> arena);
  Memory take(uint64_t offset, size_t bytes, MemoryUse use);
  bool all(uint64_t address, uint64_t bytes, uint8_t bit) const {
    uint64_t offset = address - base_;
    if (offset >= bytes_ || bytes > bytes_ - offset) return false;
    uint64_t last = bytes == 0 ? offset : offset + bytes - 1;
    for (uint64_t page = offset / kPageBytes; page <= last / kPageBytes; ++page) {
      if (!(pages_[page] & bit)) return false;
    }
    return true;
  }

  std::shared_ptr<Arena> arena_;
  const uint8_t* pages_ = nullptr;  // PageBits of each page of the arena
  const uint64_t* generation_ = nullptr;
  uint64_t base_ = 0, bytes_ = 0, host_delta_ = 0;
};

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_GUEST_MEMORY_H_
