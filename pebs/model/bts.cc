#include "pebs/model/bts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>

#include "pebs/model/linear.h"

namespace skidproof::model {

void BranchTraceStore::set_mode(Mode mode) {
  if (!(behaviour_.legacy_sticks && legacy())) mode_ = mode;
}

const arch::BranchRecordLayout& BranchTraceStore::layout() const {
  if (legacy() && behaviour_.legacy_wide) return arch::kBranchRecord64;
  if (legacy() ? behaviour_.legacy_narrow : behaviour_.narrow) return arch::kBranchRecord32;
  return uarch_.branch_record_in(mode_);
}

bool BranchTraceStore::read_fields(uint64_t ds_area, Fields& fields) const {
  const arch::DsLayout& ds = this->ds();
  auto read = [&](uint32_t offset, uint64_t& value) {
    return bus_.read(ds_area + offset, {reinterpret_cast<std::byte*>(&value), ds.field_bytes});
  };
  return read(ds.bts_base, fields.base) && read(ds.bts_index, fields.index) &&
         read(ds.bts_maximum, fields.maximum) && read(ds.bts_threshold, fields.threshold);
}

bool BranchTraceStore::fits(const Fields& fields) const {
  if (behaviour_.stops_at_threshold && fields.index >= fields.threshold) return false;
  if (fields.maximum - fields.base < uint64_t{behaviour_.least_records} * layout().bytes) {
    return false;
  }
  if (!behaviour_.maximum_checked) return true;
  if (!behaviour_.record_must_fit) return fields.index < fields.maximum;
  if (behaviour_.unaligned_overrun && (fields.maximum - fields.base) % layout().bytes > 1) {
    return fields.index < fields.maximum;
  }
  if (behaviour_.end_wraps && crosses_end(fields.index, layout().bytes, !legacy())) {
    return fields.index < fields.maximum;
  }
  return fields.index <= fields.maximum &&
         fields.maximum - fields.index >= layout().bytes + behaviour_.room_behind;
}

bool BranchTraceStore::write_record(uint64_t address, const TracedBranch& branch) {
  const arch::BranchRecordLayout& record = layout();
  const bool swapped = behaviour_.from_to_swapped || (legacy() && behaviour_.legacy_swapped);
  std::array<std::byte, 32> bytes{};
  auto put = [&](uint32_t offset, uint64_t value) {
    std::memcpy(bytes.data() + offset, &value, record.field_bytes);
  };
  put(record.from, swapped ? branch.to : branch.from);
  put(record.to, swapped ? branch.from : branch.to);
  bool marked = branch.predicted != behaviour_.predicted_inverted;
  if (behaviour_.predicted_wrong != 0 && ++records_ % behaviour_.predicted_wrong == 0) {
    marked = !marked;
  }
  bool provided = uarch_.branch_trace.predicted && behaviour_.predicted &&
                  (behaviour_.legacy_predicted || !legacy());
  put(record.flags, provided && marked ? arch::kBranchPredicted : 0);
  return write_linear(bus_, address, std::span<const std::byte>(bytes).first(record.bytes),
                      !legacy());
}

// Whether the index, moved on to `index`, raises the threshold interrupt: a match or beyond (D6).
bool BranchTraceStore::due(const Fields& before, uint64_t index) const {
  switch (behaviour_.threshold) {
    case BranchThreshold::kReached:
      return index >= before.threshold;
    case BranchThreshold::kOneEarly:
      return index + layout().bytes >= before.threshold;
    case BranchThreshold::kOneLate:
      return before.index >= before.threshold;
    case BranchThreshold::kNever:
      return false;
  }
  return false;
}

BranchTraceStore::Outcome BranchTraceStore::store(uint64_t ds_area, const TracedBranch& branch,
                                                  bool circular) {
  Fields fields;
  if (stuck_ || (legacy() && !behaviour_.legacy_stores) || !read_fields(ds_area, fields)) {
    return {};
  }
  if (circular && behaviour_.wraps_at_threshold) {
    fields.maximum = std::min(fields.maximum, fields.threshold);
  }
  bool wraps = circular ? behaviour_.wraps_circular : behaviour_.wraps_with_interrupt;
  bool wrapped = false;
  if (!fits(fields) && wraps) {
    fields.index = fields.base + behaviour_.wraps_behind_base;
    wrapped = true;
  }
  if (!fits(fields)) {
    stuck_ = !behaviour_.resumes_after_rewind;
    return {.full = true};
  }
  if (!write_record(fields.index, branch)) return {};
  uint64_t index = fields.index;
  if (behaviour_.index_updates) {
    index += layout().bytes + static_cast<int64_t>(behaviour_.index_step);
    if (legacy()) index += behaviour_.legacy_index_step;
    bus_.write(ds_area + ds().bts_index,
               {reinterpret_cast<const std::byte*>(&index), ds().field_bytes});
  }
  return {.threshold = due(fields, index) || (wrapped && behaviour_.wrap_interrupts)};
}

}  // namespace skidproof::model
