// Memory for programs: page-aligned blocks between guard pages, with huge pages where asked.
#ifndef SKIDPROOF_HARNESS_RUN_GUARDED_MEMORY_H_
#define SKIDPROOF_HARNESS_RUN_GUARDED_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/expected.h"
#include "pebs/machine.h"

namespace skidproof {

inline constexpr size_t kSmallPage = 4096;
inline constexpr size_t kHugePage = size_t{2} << 20;

// Maps a zeroed block, every page of it present, with an inaccessible page on both sides; code
// blocks are executable as well. The address is our own pointer. A request for huge pages aligns
// the block to 2 MiB and rounds it up to that; Memory::huge_pages then says whether the kernel
// really backed all of it so (/proc/self/smaps, AnonHugePages), which it need not. A request for
// small pages forbids huge ones. Errors: kInvalidArgument (no bytes), kNoMemory, kPermission (a
// policy forbids executable data).
Expected<Memory> allocate_guarded(const MemoryRequest& request);

// Bytes of the mapping that holds `address` which huge pages back: AnonHugePages of its entry in
// /proc/self/smaps. 0 where that cannot be read.
size_t huge_page_bytes(uint64_t address);

// Memory that the system could give without swapping, in bytes: MemAvailable of /proc/meminfo, or what control groups
// leave to this process (control_groups.h), where that is less; 0 when unknown.
size_t available_memory();

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_GUARDED_MEMORY_H_
