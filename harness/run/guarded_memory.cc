// mmap, mprotect and madvise behind allocate_guarded().
#include "harness/run/guarded_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "harness/run/control_groups.h"

namespace skidproof {
namespace {

// Linux 6.1's synchronous collapse into huge pages; absent from Debian 12's glibc headers.
constexpr int kMadviseCollapse = 25;

constexpr size_t kAskedFrom = size_t{1} << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// A whole reservation; unmapped with the last handle to the block inside.
struct Mapping {
  void* base = MAP_FAILED;
  size_t bytes = 0;

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (base != MAP_FAILED) munmap(base, bytes);
  }
};

Error memory_error(const char* what, size_t bytes) {
  const int reason = errno;
  if (reason == EACCES || reason == EPERM) {
    return {
        ErrorCode::kPermission,
        fmt::format("cannot {} {} bytes: {}", what, bytes, std::strerror(reason)),
        "a security policy (SELinux execmem, a sandbox) forbids executable data; allow it for this "
        "program"};
  }
  return {ErrorCode::kNoMemory,
          fmt::format("cannot {} {} bytes: {}", what, bytes, std::strerror(reason)),
          "free memory, raise `ulimit -v`, or ask for smaller sizes"};
}

// Asks for, or forbids, huge pages; then makes every page present, so that no run meets a page
// fault and no read shares the kernel's zero page. In one call where Linux has it (5.14 on): under some hypervisors a fault
// for each page takes eight times as long.
void populate(std::byte* begin, size_t bytes, bool huge) {
  madvise(begin, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (size_t offset = 0; offset < bytes; offset += kSmallPage) {
    *reinterpret_cast<volatile std::byte*>(begin + offset) = std::byte{0};
  }
}

bool backed_by_huge_pages(std::byte* begin, size_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(begin);
  if (huge_page_bytes(address) >= bytes) return true;
  // The first touch found no free huge page: compaction may make some.
  madvise(begin, bytes, kMadviseCollapse);
  return huge_page_bytes(address) >= bytes;
}

}  // namespace

Expected<Memory> allocate_guarded(const MemoryRequest& request) {
  if (request.bytes == 0 || request.bytes > (size_t{1} << 46)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a block of {} bytes has no meaning", request.bytes),
                "ask for 1 byte to 64 TiB");
  }
  const size_t unit = request.huge_pages ? kHugePage : kSmallPage;
  const size_t bytes = round_up(request.bytes, unit);
  // Every page will be touched: past what there is, Linux would end some process to make room. Small blocks are many, and
  // asking takes longer than making one.
  const size_t available = bytes < kAskedFrom ? 0 : available_memory();
  if (available != 0 && bytes > available) {
    return fail(ErrorCode::kNoMemory,
                fmt::format("a block of {} bytes is more than the {} available", bytes, available),
                "free memory, or ask for smaller sizes");
  }
  auto mapping = std::make_shared<Mapping>();
  mapping->bytes = bytes + unit + 2 * kSmallPage;
  mapping->base = mmap(nullptr, mapping->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping->base == MAP_FAILED) {
    return tl::make_unexpected(memory_error("reserve", mapping->bytes));
  }
  const uint64_t first = reinterpret_cast<uint64_t>(mapping->base) + kSmallPage;
  auto* begin = reinterpret_cast<std::byte*>(round_up(first, unit));
  const int access =
      PROT_READ | PROT_WRITE | (request.use == MemoryUse::kCode ? PROT_EXEC : PROT_NONE);
  if (mprotect(begin, bytes, access) != 0) {
    return tl::make_unexpected(memory_error("open", bytes));
  }
  populate(begin, bytes, request.huge_pages);
  Memory memory;
  memory.host = {begin, request.bytes};
  memory.address = reinterpret_cast<uint64_t>(begin);
  memory.huge_pages = request.huge_pages && backed_by_huge_pages(begin, bytes);
  memory.keep = std::move(mapping);
  return memory;
}

size_t huge_page_bytes(uint64_t address) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    uint64_t begin = 0, end = 0;
    // A mapping's head line is "begin-end flags …"; its fields are "Name: value kB".
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2) {
      inside = begin <= address && address < end;
      continue;
    }
    size_t kibibytes = 0;
    if (inside && std::sscanf(line.c_str(), "AnonHugePages: %zu kB", &kibibytes) == 1) {
      return kibibytes * 1024;
    }
  }
  return 0;
}

size_t available_memory() {
  static const ControlGroups groups = ControlGroups::of_this_process();
  std::ifstream meminfo("/proc/meminfo");
  std::string line;
  size_t bytes = 0;
  while (bytes == 0 && std::getline(meminfo, line)) {
    size_t kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %zu kB", &kibibytes) == 1)
      bytes = kibibytes * 1024;
  }
  const auto left = groups.memory_left();
  if (!left) return bytes;
  // 0 would say that nothing is known.
  const size_t allowed = std::max<size_t>(*left, 1);
  return bytes == 0 ? allowed : std::min(bytes, allowed);
}

}  // namespace skidproof
