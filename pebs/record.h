// PEBS and branch records in place: views over the buffers by a layout table, no copies.
#ifndef SKIDPROOF_PEBS_RECORD_H_
#define SKIDPROOF_PEBS_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>

#include "pebs/arch/ds_area.h"
#include "pebs/arch/record_layout.h"

namespace skidproof {

// One record. Valid as long as the buffer that it views. A field that the format lacks reads 0; ask
// has().
class Record {
 public:
  Record(const std::byte* data, const arch::RecordLayout* layout) : data_(data), layout_(layout) {}

  uint64_t flags() const { return field(layout_->flags); }
  uint64_t ip() const { return field(layout_->ip); }  // the instruction after the sampled one (R5)
  uint64_t gpr(arch::Gpr reg) const { return field(layout_->gpr[static_cast<size_t>(reg)]); }
  uint64_t global_status() const {
    return field(layout_->global_status);
  }  // before the assist (R16)
  uint64_t data_address() const { return field(layout_->data_address); }
  uint64_t data_source() const { return field(layout_->data_source); }
  uint64_t latency() const { return field(layout_->latency); }
  uint64_t eventing_ip() const { return field(layout_->eventing_ip); }

  const arch::RecordLayout& layout() const { return *layout_; }
  std::span<const std::byte> bytes() const { return {data_, layout_->bytes}; }

 private:
  uint64_t field(int16_t offset) const {
    if (offset < 0) return 0;
    uint64_t value;
    std::memcpy(&value, data_ + offset, sizeof value);
    return value;
  }

  const std::byte* data_;
  const arch::RecordLayout* layout_;
};

// One record of the branch trace store. Valid as long as the buffer that it views.
class BranchRecord {
 public:
  BranchRecord(const std::byte* data, const arch::BranchRecordLayout* layout)
      : data_(data), layout_(layout) {}

  uint64_t from() const { return field(layout_->from); }  // the branch instruction
  uint64_t to() const { return field(layout_->to); }
  uint64_t flags() const { return field(layout_->flags); }
  bool predicted() const { return (flags() & arch::kBranchPredicted) != 0; }

 private:
  uint64_t field(uint32_t offset) const {
    uint64_t value = 0;
    std::memcpy(&value, data_ + offset, layout_->field_bytes);
    return value;
  }

  const std::byte* data_;
  const arch::BranchRecordLayout* layout_;
};

// The whole records of a buffer, in the order in which they stand.
template <typename RecordType, typename Layout>
class RecordRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = RecordType;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = RecordType;

    Iterator() = default;
    Iterator(const std::byte* at, const Layout* layout) : at_(at), layout_(layout) {}
    RecordType operator*() const { return {at_, layout_}; }
    Iterator& operator++() {
      at_ += layout_->bytes;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const std::byte* at_ = nullptr;
    const Layout* layout_ = nullptr;
  };

  // A trailing part of a record is not a record: see remainder_bytes().
  RecordRange(std::span<const std::byte> bytes, const Layout* layout)
      : bytes_(bytes), layout_(layout) {}

  size_t size() const { return bytes_.size() / layout_->bytes; }
  bool empty() const { return size() == 0; }
  size_t remainder_bytes() const { return bytes_.size() % layout_->bytes; }
  RecordType operator[](size_t i) const { return {bytes_.data() + i * layout_->bytes, layout_}; }
  RecordType front() const { return (*this)[0]; }
  RecordType back() const { return (*this)[size() - 1]; }
  Iterator begin() const { return {bytes_.data(), layout_}; }
  Iterator end() const { return {bytes_.data() + size() * layout_->bytes, layout_}; }

 private:
  std::span<const std::byte> bytes_;
  const Layout* layout_;
};

using Records = RecordRange<Record, arch::RecordLayout>;
using BranchRecords = RecordRange<BranchRecord, arch::BranchRecordLayout>;

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_RECORD_H_
