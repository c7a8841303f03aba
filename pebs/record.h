// PEBS and branch records in place: views over the buffers by a layout table, no copies.
#ifndef SKIDPROOF_PEBS_RECORD_H_
#define SKIDPROOF_PEBS_RECORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/ds_area.h"
#include "pebs/arch/record_layout.h"

namespace skidproof {

// One branch of an adaptive record, the newest first.
struct BranchEntry {
  uint64_t from = 0, to = 0, info = 0;
};

// One record. Valid as long as the buffer that it views. A field that the record lacks reads 0; ask
// has().
class Record {
 public:
  // `layout` is that of this very record: of an adaptive format, what arch::layout_of says. `parts` says where its groups
  // stand, of an architectural one.
  Record(const std::byte* data, const arch::RecordLayout* layout,
         const arch::architectural::Parts& parts = {})
      : data_(data), layout_(layout), parts_(parts) {}

  // Whether the record has a field: has(&arch::RecordLayout::tsc).
  bool has(int16_t arch::RecordLayout::*field) const { return layout_->*field >= 0; }

  uint64_t flags() const { return field(layout_->flags); }
  uint64_t ip() const { return field(layout_->ip); }  // the instruction after the sampled one (R5)
  uint64_t gpr(arch::Gpr reg) const { return field(layout_->gpr[static_cast<size_t>(reg)]); }
  uint64_t global_status() const {
    return field(layout_->global_status);
  }  // before the assist (R16)
  uint64_t data_address() const { return field(layout_->data_address); }
  uint64_t data_source() const { return field(layout_->data_source); }
  // Of the instruction, in core cycles.
  uint64_t latency() const { return field(layout_->latency) & layout_->latency_mask; }
  // Of the access to the caches, in core cycles (format 5).
  uint64_t cache_latency() const {
    if (layout_->cache_latency_shift == 0) return 0;
    return (field(layout_->latency) >> layout_->cache_latency_shift) & 0xFFFF;
  }
  uint64_t eventing_ip() const { return field(layout_->eventing_ip); }  // the sampled one (R8)
  uint64_t tx_information() const { return field(layout_->tx_information); }
  uint64_t tsc() const { return field(layout_->tsc); }
  // The counters that the record applies to: bit n for IA32_PMCn, 32 + i for fixed counter i.
  uint64_t applicable_counters() const { return field(layout_->applicable_counters); }
  uint64_t header() const { return field(layout_->header); }
  // The groups of an architectural record, in the positions of IA32_PMC_GPn_CFG_C; of all its fragments.
  uint64_t groups() const { return parts_.groups; }
  // Cycles since the retirement before, FFFFH and more as FFFFH (R63); 0 also where the record says that it has none.
  uint64_t retire_latency() const {
    if (layout_->architectural) {
      const uint64_t told = field(layout_->retire);
      return (told & arch::architectural::kRetireValid) != 0 ? told & 0xFFFF : 0;
    }
    return layout_->retire_latency ? (header() >> arch::adaptive::kRetireLatencyShift) & 0xFFFF : 0;
  }
  // XMMn as two quadwords, low one first.
  std::array<uint64_t, 2> xmm(unsigned n) const {
    if (layout_->xmm < 0) return {};
    const size_t at = place(layout_->xmm) + size_t{16} * n;
    return {word(at), word(at + 8)};
  }
  unsigned branches() const {
    if (layout_->architectural) return parts_.entries;
    return layout_->lbr < 0 ? 0 : arch::adaptive::branch_entries(header());
  }
  // The i-th of branches().
  BranchEntry branch(unsigned i) const {
    if (i >= branches()) return {};
    const size_t at = place(layout_->lbr) + size_t{i} * arch::adaptive::kBranchEntryBytes;
    return {word(at), word(at + 8), word(at + 16)};
  }

  // The group of counters; nothing where the record has none, or one whose vectors are not what its size says.
  std::optional<arch::adaptive::SnapshotVectors> snapshot() const {
    namespace adaptive = arch::adaptive;
    if (layout_->architectural) {
      if (!parts_.has(arch::architectural::kCounterGroup)) return {};
      return parts_.counters;
    }
    if (!layout_->snapshot || (header() & adaptive::kSnapshot) == 0) return {};
    const size_t at = snapshot_offset(), size = adaptive::size_field(header());
    const bool sound = at == adaptive::record_bytes(header());
    if (!sound || size < at + adaptive::kSnapshotHeaderBytes) return {};
    const uint64_t counters = word(at), rest = word(at + 8);
    const adaptive::SnapshotVectors vectors{.gp = static_cast<uint32_t>(counters),
                                            .fixed = static_cast<uint32_t>(counters >> 32),
                                            .metrics = static_cast<uint32_t>(rest)};
    if (at + vectors.bytes() != size) return {};
    return vectors;
  }
  // The i-th value of the group: of the general-purpose counters in the vector, then of the fixed ones, then the base of the
  // metrics, and the metrics. 0 behind the last.
  uint64_t snapshot_value(unsigned i) const {
    const auto vectors = snapshot();
    if (!vectors || i >= vectors->values()) return 0;
    return word(snapshot_offset() + arch::adaptive::kSnapshotHeaderBytes + size_t{8} * i);
  }

  const arch::RecordLayout& layout() const { return *layout_; }
  std::span<const std::byte> bytes() const {
    if (layout_->architectural) return {data_, parts_.bytes != 0 ? parts_.bytes : layout_->bytes};
    const auto vectors = snapshot();
    return {data_, snapshot_offset() + (vectors ? vectors->bytes() : 0)};
  }

 private:
  // Where a field stands: the groups of an architectural record may be further apart than in the table.
  size_t place(int16_t offset) const {
    const auto at = static_cast<size_t>(offset);
    if (parts_.bytes == 0) return at;
    for (size_t group = parts_.starts.size(); group-- > 0;) {
      const size_t start = layout_->starts[group];
      if (start != 0 && at >= start) return at - start + parts_.starts[group];
    }
    return at;
  }
  size_t snapshot_offset() const {
    if (layout_->architectural) return parts_.starts[arch::architectural::kCounterGroup];
    return layout_->bytes + size_t{branches()} * arch::adaptive::kBranchEntryBytes;
  }
  uint64_t word(size_t offset) const {
    uint64_t value;
    std::memcpy(&value, data_ + offset, sizeof value);
    return value;
  }
  uint64_t field(int16_t offset) const {
    if (offset < 0) return 0;
    if (layout_->field_bytes == sizeof(uint32_t)) {
      uint32_t value;
      std::memcpy(&value, data_ + offset, sizeof value);
      return value;
    }
    return word(place(offset));
  }

  const std::byte* data_;
  const arch::RecordLayout* layout_;
  arch::architectural::Parts parts_;
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

// The whole records of a buffer, in the order they were written. Records of an adaptive format are
// walked by the size that each of them states; a size that cannot be ends the walk. Of architectural ones a record is all its
// fragments; what begins with a fragment that has no basic group is passed over.
class Records {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Record;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Record;

    Iterator() = default;
    Iterator(const std::byte* at, const std::byte* end, const arch::RecordLayout* layout)
        : at_(layout->architectural ? next_architectural(at, end) : at),
          end_(end),
          layout_(layout) {}
    Record operator*() const { return record_at(at_, end_, layout_); }
    Iterator& operator++() {
      if (layout_->architectural) {
        const size_t bytes = arch::architectural::parts_of({at_, end_}).bytes;
        at_ = next_architectural(at_ + bytes, end_);
      } else {
        at_ += size_at(at_, layout_);
      }
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
    const std::byte* end_ = nullptr;
    const arch::RecordLayout* layout_ = nullptr;
  };

  // A trailing part of a record is not a record: see remainder_bytes().
  Records(std::span<const std::byte> bytes, const arch::RecordLayout* layout)
      : bytes_(bytes), layout_(layout) {
    if (layout->architectural) {
      walk_architectural();
      return;
    }
    if (!layout->adaptive()) {
      size_ = bytes.size() / layout->bytes;
      whole_ = size_ * layout->bytes;
      return;
    }
    while (whole_ + arch::adaptive::kBasicBytes <= bytes.size()) {
      const size_t size = size_at(bytes.data() + whole_, layout);
      if (size < arch::adaptive::kBasicBytes || size > bytes.size() - whole_) break;
      whole_ += size;
      ++size_;
    }
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t remainder_bytes() const { return bytes_.size() - whole_; }
  // In constant time for a fixed layout, in linear time for an adaptive one.
  Record operator[](size_t i) const {
    if (!layout_->adaptive()) return {bytes_.data() + i * layout_->bytes, layout_};
    Iterator at = begin();
    while (i-- > 0) ++at;
    return *at;
  }
  Record front() const { return (*this)[0]; }
  Record back() const { return (*this)[size() - 1]; }
  Iterator begin() const { return {bytes_.data(), bytes_.data() + whole_, layout_}; }
  Iterator end() const { return {bytes_.data() + whole_, bytes_.data() + whole_, layout_}; }

 private:
  void walk_architectural() {
    namespace architectural = arch::architectural;
    for (;;) {
      const std::span<const std::byte> rest = bytes_.subspan(whole_);
      size_t bytes = architectural::parts_of(rest).bytes;
      if (bytes != 0) {
        ++size_;
      } else {
        bytes = orphan_bytes(rest);
      }
      if (bytes == 0) return;
      whole_ += bytes;
    }
  }
  // Of a fragment that begins no record, or 0.
  static size_t orphan_bytes(std::span<const std::byte> rest) {
    const size_t bytes = arch::architectural::fragment_bytes(rest);
    const bool begins = bytes != 0 && (header_at(rest.data()) & arch::architectural::kBasic) != 0;
    return begins ? 0 : bytes;
  }
  static const std::byte* next_architectural(const std::byte* at, const std::byte* end) {
    while (at != end) {
      const size_t orphan = orphan_bytes({at, end});
      if (orphan == 0) return at;
      at += orphan;
    }
    return at;
  }
  static uint64_t header_at(const std::byte* at) {
    uint64_t header;
    std::memcpy(&header, at, sizeof header);
    return header;
  }
  static size_t size_at(const std::byte* at, const arch::RecordLayout* layout) {
    return layout->adaptive() ? arch::adaptive::size_field(header_at(at)) : layout->bytes;
  }
  static Record record_at(const std::byte* at, const std::byte* end,
                          const arch::RecordLayout* layout) {
    if (layout->architectural) {
      const arch::architectural::Parts parts = arch::architectural::parts_of({at, end});
      return {at, arch::layout_of(*layout, parts), parts};
    }
    return {at, layout->adaptive() ? arch::layout_of(*layout, header_at(at)) : layout};
  }

  std::span<const std::byte> bytes_;
  const arch::RecordLayout* layout_;
  size_t size_ = 0;
  size_t whole_ = 0;  // bytes of whole records
};

// The whole records of a branch trace store, in the order in which they stand.
class BranchRecords {
 public:
  BranchRecords(std::span<const std::byte> bytes, const arch::BranchRecordLayout* layout)
      : bytes_(bytes), layout_(layout) {}

  size_t size() const { return bytes_.size() / layout_->bytes; }
  bool empty() const { return size() == 0; }
  size_t remainder_bytes() const { return bytes_.size() % layout_->bytes; }
  BranchRecord operator[](size_t i) const { return {bytes_.data() + i * layout_->bytes, layout_}; }

 private:
  std::span<const std::byte> bytes_;
  const arch::BranchRecordLayout* layout_;
};

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_RECORD_H_
