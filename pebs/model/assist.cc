#include "pebs/model/assist.h"

#include <cstring>
#include <span>
#include <vector>

namespace skidproof::model {
namespace {

using arch::RecordLayout;

void put(std::span<std::byte> record, int16_t offset, uint64_t value) {
  if (offset != arch::kAbsent) std::memcpy(record.data() + offset, &value, sizeof value);
}

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

bool DebugStore::load() {
  return read_field(uarch_.ds.pebs_base, base_) && read_field(uarch_.ds.pebs_index, index_) &&
         read_field(uarch_.ds.pebs_maximum, maximum_) &&
         read_field(uarch_.ds.pebs_threshold, threshold_);
}

bool DebugStore::fits(uint64_t index) const {
  switch (behaviour_.bounds) {
    case Bounds::kRecordMustFit:
      return index <= maximum_ && maximum_ - index >= record_bytes_;
    case Bounds::kIndexAtMaximum:
      return index < maximum_;
    case Bounds::kNone:
      return true;
  }
  return false;
}

bool DebugStore::store(const RecordData& data, const Registers& registers) {
  const RecordLayout& layout = *uarch_.record;
  std::array<std::byte, 256> bytes{};
  std::span<std::byte> record(bytes.data(), layout.bytes);
  put(record, layout.flags, behaviour_.flags_recorded ? registers.flags : 0);
  put(record, layout.ip, data.ip);
  for (unsigned i = 0; i < arch::kGprs; ++i) {
    put(record, layout.gpr[i], registers.gpr[behaviour_.gpr_source[i]]);
  }
  put(record, layout.global_status, data.global_status);
  put(record, layout.data_address, data.data_address);
  put(record, layout.data_source, data.data_source);
  put(record, layout.latency, data.latency);
  put(record, layout.eventing_ip, data.eventing_ip);
  put(record, layout.tx_information, data.tx_information);
  put(record, layout.tsc, data.tsc);
  put(record, layout.applicable_counters, data.applicable_counters);
  return store(record);
}

bool DebugStore::store(std::span<const std::byte> record) {
  if (!bus_.write(index_, record)) return false;
  previous_index_ = index_;
  if (behaviour_.index_updates) {
    size_t step = behaviour_.adaptive.index_by_size ? record.size() : uarch_.record->bytes;
    index_ += step + static_cast<uint64_t>(int64_t{behaviour_.index_step});
    write_field(uarch_.ds.pebs_index, index_);
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
    case ThresholdTest::kNever:
      return false;
  }
  return false;
}

uint64_t DebugStore::reset_value(unsigned counter) const {
  const arch::DsLayout& ds = uarch_.ds;
  unsigned slot = (counter + static_cast<unsigned>(behaviour_.reload_slot_offset)) % ds.resets;
  return slot_value(ds.gp_reset(slot));
}

uint64_t DebugStore::fixed_reset_value(unsigned counter) const {
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
  uint64_t value = 0;
  read_field(offset, value);
  if (behaviour_.reload_zero) return 0;
  if (behaviour_.reload_truncates_32) value &= 0xFFFFFFFF;
  return value + static_cast<uint64_t>(behaviour_.reload_bias);
}

void DebugStore::wrap() {
  index_ = base_;
  write_field(uarch_.ds.pebs_index, index_);
}

}  // namespace skidproof::model
