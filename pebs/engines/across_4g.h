// Memory on both sides of the end of the linear address space outside IA-32e mode: the last pages below 4 GiB, and
// the one at 0, where addresses of 32 bits go on.
#ifndef SKIDPROOF_PEBS_ENGINES_ACROSS_4G_H_
#define SKIDPROOF_PEBS_ENGINES_ACROSS_4G_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/expected.h"
#include "pebs/machine.h"
#include "pebs/model/pmu.h"

namespace skidproof::engines {

// One block at a time, which is one piece to the host. Not thread-safe. The handle may outlive the object.
class Across4G : public model::Bus {
 public:
  static constexpr uint64_t kEnd = uint64_t{1} << 32;

  // Zeroed: so many bytes below 4 GiB, in whole pages, and the page at 0. kInvalidArgument for no bytes or more
  // than 1 MiB, kNoMemory while the last block is in use.
  Expected<Memory> allocate(size_t bytes);
  // Whether a block stands at this linear address.
  bool holds(uint64_t address) const { return at(address, 1) != nullptr; }

  // model::Bus: false where a byte of the range is in no block. A range may begin below 4 GiB and end above it: what
  // lies there stands at 0.
  bool read(uint64_t address, std::span<std::byte> into) override;
  bool write(uint64_t address, std::span<const std::byte> from) override;

 private:
  std::byte* at(uint64_t address, size_t bytes) const;

  std::weak_ptr<std::vector<std::byte>> block_;
  uint64_t base_ = 0;
};

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_ACROSS_4G_H_
