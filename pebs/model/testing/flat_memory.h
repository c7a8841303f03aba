// Linear memory for tests of the PMU alone.
#ifndef SKIDPROOF_PEBS_MODEL_TESTING_FLAT_MEMORY_H_
#define SKIDPROOF_PEBS_MODEL_TESTING_FLAT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "pebs/model/pmu.h"

namespace skidproof::model {

// A flat 64 KiB of linear memory from an address on: management area first, buffer at kBuffer where that is kBase.
class FlatMemory : public Bus {
 public:
  static constexpr uint64_t kBase = 0xffff'8880'0001'0000;
  static constexpr uint64_t kBuffer = kBase + 0x1000;

  FlatMemory() = default;
  explicit FlatMemory(uint64_t base) : base_(base) {}

  bool read(uint64_t address, std::span<std::byte> into) override {
    if (!inside(address, into.size())) return false;
    std::memcpy(into.data(), bytes_.data() + (address - base_), into.size());
    return true;
  }
  bool write(uint64_t address, std::span<const std::byte> from) override {
    if (!inside(address, from.size())) return false;
    std::memcpy(bytes_.data() + (address - base_), from.data(), from.size());
    return true;
  }
  uint64_t word(uint64_t address) {
    uint64_t value = 0;
    read(address, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  uint64_t field(uint32_t offset) { return word(base_ + offset); }
  void set_field(uint32_t offset, uint64_t value) {
    write(base_ + offset, std::as_bytes(std::span(&value, 1)));
  }
  // An empty PEBS buffer at kBuffer, so many bytes long, that interrupts from so many on.
  void lay_out_pebs(const arch::DsLayout& ds, uint64_t bytes, uint64_t threshold) {
    set_field(ds.pebs_base, kBuffer);
    set_field(ds.pebs_index, kBuffer);
    set_field(ds.pebs_maximum, kBuffer + bytes);
    set_field(ds.pebs_threshold, kBuffer + threshold);
  }
  const std::byte* at(uint64_t address) const { return bytes_.data() + (address - base_); }

 private:
  bool inside(uint64_t address, size_t bytes) const {
    return address >= base_ && address - base_ <= bytes_.size() &&
           bytes <= bytes_.size() - (address - base_);
  }
  uint64_t base_ = kBase;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64 << 10);
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_TESTING_FLAT_MEMORY_H_
