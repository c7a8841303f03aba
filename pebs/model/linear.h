// The end of the linear address space: 4 GiB outside IA-32e mode, 2^64 in it. Behind it addresses begin anew at 0.
#ifndef SKIDPROOF_PEBS_MODEL_LINEAR_H_
#define SKIDPROOF_PEBS_MODEL_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "pebs/model/pmu.h"

namespace skidproof::model {

// Whether so many bytes from an address on lie on both sides of the end.
inline bool crosses_end(uint64_t address, size_t bytes, bool ia32e) {
  const uint64_t last = ia32e ? UINT64_MAX : UINT32_MAX;
  return address <= last && bytes > 1 && bytes - 1 > last - address;
}

// Writes bytes that may do so. False where one of them is not mapped.
inline bool write_linear(Bus& bus, uint64_t address, std::span<const std::byte> bytes, bool ia32e) {
  if (!crosses_end(address, bytes.size(), ia32e)) return bus.write(address, bytes);
  const size_t before = (ia32e ? UINT64_MAX : UINT32_MAX) - address + 1;
  return bus.write(0, bytes.subspan(before)) && bus.write(address, bytes.first(before));
}

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_LINEAR_H_
