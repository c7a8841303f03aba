#include "pebs/model/assist.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/linear.h"

namespace skidproof::model {
namespace {

using arch::RecordLayout;

// A field of the record, as wide as the layout's fields are.
class Fields {
 public:
  Fields(std::span<std::byte> record, const RecordLayout& layout)
      : record_(record), bytes_(layout.field_bytes) {}
  void put(int16_t offset, uint64_t value) {
    if (offset != arch::kAbsent) std::memcpy(record_.data() + offset, &value, bytes_);
  }

 private:
  std::span<std::byte> record_;
  size_t bytes_;
};

}  // namespace

bool DebugStore::read_field(uint32_t offset, uint64_t& value) const {
  value = 0;
  std::span<std::byte> bytes(reinterpret_cast<std::byte*>(&value), uarch_.ds.field_bytes);
  return bus_.read(address_ + offset, bytes);
}

void DebugStore::write_field(uint32_t offset, uint64_t value) {
  bus_.write(address_ + offset,
             {reinterpret_cast<const std::byte*>(&value), uarch_.ds.field_bytes});
}

// What WR and THRESH say, in the buffer. [Linux, arch/x86/events/intel/ds.c, intel_pmu_drain_arch_pebs]
void DebugStore::load_registers() {
  const ArchPebsBehaviour& how = behaviour_.arch_pebs;
  base_ = registers_->base & arch::pebs_base::kAddress;
  maximum_ = base_ + arch::pebs_base::bytes(registers_->base) * how.size_scale;
  index_ = base_ + (arch::pebs_index::write_bytes(registers_->index) >> how.write_shift);
  threshold_ =
      base_ + (arch::pebs_index::threshold_bytes(registers_->index) >> how.threshold_shift);
}

bool DebugStore::was_full() const {
  return registers_ != nullptr && (registers_->index & arch::pebs_index::kFull) != 0 &&
         behaviour_.arch_pebs.full_stops;
}

void DebugStore::note_full() {
  if (registers_ != nullptr && full()) registers_->index |= arch::pebs_index::kFull;
}

void DebugStore::move_index() {
  if (registers_ == nullptr) return write_field(uarch_.ds.pebs_index, index_);
  const uint64_t write = (index_ - base_) << behaviour_.arch_pebs.write_shift;
  registers_->index =
      (registers_->index & ~arch::pebs_index::kWrite) | (write & arch::pebs_index::kWrite);
}

bool DebugStore::load() {
  if (registers_ != nullptr) {
    const bool enabled = (registers_->index & arch::pebs_index::kEnable) != 0;
    load_registers();
    return registers_->base != 0 && (enabled || !behaviour_.arch_pebs.index_enable_needed);
  }
  if (!read_field(uarch_.ds.pebs_base, base_) || !read_field(uarch_.ds.pebs_index, index_) ||
      !read_field(uarch_.ds.pebs_maximum, maximum_) ||
      !read_field(uarch_.ds.pebs_threshold, threshold_)) {
    return false;
  }
  if (behaviour_.latched) {
    if (!latched_.valid) latched_ = {true, base_, maximum_, threshold_};
    base_ = latched_.base;
    maximum_ = latched_.maximum;
    threshold_ = latched_.threshold;
  }
  return true;
}

bool DebugStore::fits(uint64_t index) const {
  switch (behaviour_.bounds) {
    case Bounds::kRecordMustFit:
      // A whole number of records, or that and one: the texts differ (D3).
      if (behaviour_.rough.unaligned_overrun != 0 && (maximum_ - base_) % record_bytes_ > 1) {
        return index < maximum_;
      }
      if (behaviour_.end_wraps && crosses_end(index, record_bytes_, ia32e_)) {
        return index < maximum_;
      }
      return index <= maximum_ && maximum_ - index >= record_bytes_;
    case Bounds::kIndexAtMaximum:
      return index < maximum_;
    case Bounds::kIndexEqualsMaximum:
      return index != maximum_;
    case Bounds::kIndexPastMaximum:
      return index <= maximum_;
    case Bounds::kWordToSpare:
      return index <= maximum_ && maximum_ - index >= record_bytes_ + sizeof(uint64_t);
    case Bounds::kStrictlyBelow:
      return index <= maximum_ && maximum_ - index > record_bytes_;
    case Bounds::kNone:
      return true;
  }
  return false;
}

bool DebugStore::store(const RecordData& data, const Registers& registers) {
  const RecordLayout& layout = *uarch_.record;
  std::array<std::byte, 256> bytes{};
  std::span<std::byte> record(bytes.data(), layout.bytes);
  Fields fields(record, layout);
  fields.put(layout.flags, behaviour_.flags_recorded ? registers.flags : 0);
  fields.put(layout.ip, data.ip);
  for (unsigned i = 0; i < arch::kGprs; ++i) {
    fields.put(layout.gpr[i], registers.gpr[behaviour_.gpr_source[i]]);
  }
  fields.put(layout.global_status, data.global_status);
  fields.put(layout.data_address, data.data_address);
  fields.put(layout.data_source, data.data_source);
  fields.put(layout.latency, data.latency);
  fields.put(layout.eventing_ip, data.eventing_ip);
  fields.put(layout.tx_information, data.tx_information);
  fields.put(layout.tsc, data.tsc);
  fields.put(layout.applicable_counters, data.applicable_counters);
  return store(std::span(bytes).first(record_bytes_));
}

bool DebugStore::store(std::span<const std::byte> record) {
  const uint64_t address = index_ - index_ % behaviour_.record_alignment;
  const bool stored = registers_ != nullptr ? bus_.write_physical(address, record)
                                            : write_linear(bus_, address, record, ia32e_);
  if (!stored) return false;
  previous_index_ = index_;
  if (behaviour_.index_updates) {
    size_t step = behaviour_.adaptive.index_by_size ? record.size() : uarch_.record->bytes;
    index_ += step + static_cast<uint64_t>(int64_t{behaviour_.index_step});
    move_index();
  }
  return true;
}

bool DebugStore::reached_threshold() const {
  switch (behaviour_.threshold) {
    case ThresholdTest::kAfterUpdate:
      return index_ >= threshold_;
    case ThresholdTest::kBeforeUpdate:
      return previous_index_ >= threshold_;
    case ThresholdTest::kOneEarly:
      return index_ + record_bytes_ >= threshold_;
    case ThresholdTest::kEveryRecord:
      return true;
    case ThresholdTest::kWhenFull:
      return !fits(index_);
    case ThresholdTest::kEqual:
      return index_ == threshold_;
    case ThresholdTest::kClampedToMaximum:
      return index_ >= std::min(threshold_, maximum_);
    case ThresholdTest::kFromMaximum:
      return maximum_ - index_ <= threshold_ - base_;
    case ThresholdTest::kNotFirstRecord:
      return index_ >= threshold_ && previous_index_ != base_;
    case ThresholdTest::kNever:
      return false;
  }
  return false;
}

// The reload value of a counter, above bit 31 with ones. [SDM Vol. 4 (335592-089), Table 2-2, IA32_PMC_GP0_CFG_C]
uint64_t DebugStore::reload_value(unsigned position) const {
  const uint64_t value = registers_->config[position] & arch::cfg_c::kReload;
  return loaded(behaviour_.arch_pebs.reload_extends_ones ? value | ~arch::cfg_c::kReload : value);
}

uint64_t DebugStore::reset_value(unsigned counter) const {
  if (registers_ != nullptr) {
    const unsigned other = counter + static_cast<unsigned>(behaviour_.reload_slot_offset);
    return reload_value(behaviour_.reload_single_slot ? 0 : other % uarch_.ds.resets);
  }
  const arch::DsLayout& ds = uarch_.ds;
  unsigned slot = (counter + static_cast<unsigned>(behaviour_.reload_slot_offset)) % ds.resets;
  if (behaviour_.reload_single_slot) slot = 0;
  return slot_value(ds.gp_reset(slot));
}

uint64_t DebugStore::fixed_reset_value(unsigned counter) const {
  if (registers_ != nullptr) {
    const bool first = behaviour_.adaptive.fixed_reset == FixedReset::kFirst;
    return reload_value(behaviour_.adaptive.fixed_reset == FixedReset::kGp
                            ? counter
                            : arch::status::kFixedShift + (first ? 0 : counter));
  }
  const arch::DsLayout& ds = uarch_.ds;
  switch (behaviour_.adaptive.fixed_reset) {
    case FixedReset::kGp:
      return slot_value(ds.gp_reset(counter));
    case FixedReset::kOtherFormat: {
      const arch::DsLayout& other = ds.resets == arch::kDsEightResets.resets
                                        ? arch::kDsThirtyTwoResets
                                        : arch::kDsEightResets;
      return slot_value(other.fixed_counter_reset(counter));
    }
    case FixedReset::kFirst:
      return slot_value(ds.fixed_counter_reset(0));
    case FixedReset::kOwn:
    case FixedReset::kNone:
      break;
  }
  unsigned slot =
      (counter + static_cast<unsigned>(behaviour_.reload_slot_offset)) % ds.fixed_resets;
  return slot_value(ds.fixed_counter_reset(slot));
}

// What a counter is loaded with, by a slot.
uint64_t DebugStore::slot_value(uint32_t offset) const {
  uint64_t value = 0;  // 64 bits (40 of them used) even where addresses have 32
  bus_.read(address_ + offset, std::as_writable_bytes(std::span(&value, 1)));
  return loaded(value);
}

uint64_t DebugStore::loaded(uint64_t value) const {
  if (behaviour_.reload_zero) return 0;
  if (behaviour_.reload_truncates_32) value &= 0xFFFFFFFF;
  value &= ~arch::low_bits(behaviour_.reload_low_bits_dropped);
  return value + static_cast<uint64_t>(behaviour_.reload_bias);
}

void DebugStore::wrap() {
  index_ = base_;
  move_index();
}

void DebugStore::skip() {
  index_ += uarch_.record->bytes;
  move_index();
}

}  // namespace skidproof::model
