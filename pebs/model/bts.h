// The branch trace store: branch records, the index, and what the DS area says of maximum and
// threshold.
#ifndef SKIDPROOF_PEBS_MODEL_BTS_H_
#define SKIDPROOF_PEBS_MODEL_BTS_H_

#include <cstdint>

#include "base/mode.h"
#include "pebs/arch/microarch.h"
#include "pebs/model/bts_behaviour.h"
#include "pebs/model/pmu.h"

namespace skidproof::model {

// One transfer of control that took place.
struct TracedBranch {
  uint64_t from = 0;  // the branch instruction
  uint64_t to = 0;
  bool predicted = true;
};

class BranchTraceStore {
 public:
  BranchTraceStore(Bus& bus, const arch::Microarch& microarch, const BtsBehaviour& behaviour)
      : bus_(bus), uarch_(microarch), behaviour_(behaviour) {}

  struct Outcome {
    bool full = false;       // no room, and the buffer is not circular
    bool threshold = false;  // the record's interrupt is due
  };
  // Writes one record at the index of the DS area and moves the index. The fields of the area are
  // read afresh. Nothing is stored where the area or the buffer is not mapped.
  Outcome store(uint64_t ds_area, const TracedBranch& branch, bool circular);
  // What the code is whose branches are stored: DS area and record are those of its mode. (B3, B4)
  void set_mode(Mode mode);
  void reset() {
    stuck_ = false;
    records_ = 0;
  }

 private:
  struct Fields {
    uint64_t base = 0, index = 0, maximum = 0, threshold = 0;
  };

  const arch::BranchRecordLayout& layout() const;
  const arch::DsLayout& ds() const { return uarch_.ds_in(mode_); }
  bool legacy() const { return mode_ != Mode::kLong; }
  bool read_fields(uint64_t ds_area, Fields& fields) const;
  bool fits(const Fields& fields) const;
  bool write_record(uint64_t address, const TracedBranch& branch);
  bool due(const Fields& before, uint64_t index) const;

  Bus& bus_;
  const arch::Microarch& uarch_;
  const BtsBehaviour& behaviour_;
  Mode mode_ = Mode::kLong;
  bool stuck_ = false;    // was full once, and a rewound index does not help
  uint32_t records_ = 0;  // kept only for a defect
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_BTS_H_
