// The PEBS assist: bounds checks, the record, the index, and what the DS area says of reload and
// threshold.
#ifndef SKIDPROOF_PEBS_MODEL_ASSIST_H_
#define SKIDPROOF_PEBS_MODEL_ASSIST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pebs/arch/microarch.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/pmu.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

// What goes into a record besides the registers.
struct RecordData {
  uint64_t ip = 0;
  uint64_t global_status = 0;
  uint64_t data_address = 0;
  uint64_t data_source = 0;
  uint64_t latency = 0;
  uint64_t eventing_ip = 0;
  uint64_t tx_information = 0;
  uint64_t tsc = 0;
  uint64_t applicable_counters = 0;
  // Adaptive formats.
  uint64_t flags = 0;
  uint64_t retire_latency = 0;  // cycles, before it saturates
  uint64_t cache_latency = 0;
  std::array<uint8_t, arch::kGprs> gpr_source{};
};

// Counters by the positions of IA32_PERF_GLOBAL_STATUS.
inline constexpr unsigned kConfiguredCounters = 40;

// Base, maximum and threshold as a CPU keeps them that reads them once (R42).
struct LatchedBounds {
  bool valid = false;
  uint64_t base = 0, maximum = 0, threshold = 0;
};

// What architectural PEBS has in registers instead.
struct PebsRegisters {
  uint64_t base = 0, index = 0;  // IA32_PEBS_BASE, IA32_PEBS_INDEX
  std::array<uint64_t, kConfiguredCounters>
      config{};  // IA32_PMC_…_CFG_C, by the positions of the status
};

// The PEBS fields of the DS buffer management area, read afresh for each assist; of architectural PEBS those of the registers,
// as addresses in the buffer.
class DebugStore {
 public:
  DebugStore(Bus& bus, const arch::Microarch& microarch, const Behaviour& behaviour,
             uint64_t address, LatchedBounds& latched, bool ia32e = true,
             PebsRegisters* registers = nullptr)
      : bus_(bus),
        uarch_(microarch),
        behaviour_(behaviour),
        address_(address),
        latched_(latched),
        ia32e_(ia32e),
        registers_(microarch.architectural_pebs() ? registers : nullptr),
        record_bytes_(microarch.record->bytes +
                      static_cast<size_t>(int64_t{behaviour.generation.record_bytes_more})) {}

  // False when the management area is not mapped, or no register tells of a buffer: the assist then does nothing.
  bool load();
  // The bounds check of D10. Architectural PEBS has no room once the buffer was full.
  bool room() const {
    return fits(index_) && (!behaviour_.lower_bound || index_ >= base_) && !was_full();
  }
  bool full() const { return !fits(index_); }
  bool below_base() const { return index_ < base_; }
  bool above_maximum() const { return index_ > maximum_; }
  // Whether the next record will be the one to interrupt on.
  bool next_reaches_threshold() const { return index_ + record_bytes_ >= threshold_; }
  // Writes the record at the index and moves the index. False when the buffer is not mapped.
  bool store(const RecordData& data, const Registers& registers);
  bool store(std::span<const std::byte> record);
  // How large the next record is, where not all are alike.
  void expect(size_t record_bytes) { record_bytes_ = record_bytes; }
  // Whether the record just written is the one to interrupt on.
  bool reached_threshold() const;
  uint64_t reset_value(unsigned counter) const;
  uint64_t fixed_reset_value(unsigned counter) const;
  void note_full();  // a record found no room
  void wrap();       // index := base
  void skip();       // the index moves, and nothing is written

 private:
  bool fits(uint64_t index) const;
  bool was_full() const;
  void load_registers();
  uint64_t slot_value(uint32_t offset) const;
  uint64_t reload_value(unsigned position) const;
  uint64_t loaded(uint64_t value) const;
  void move_index();
  bool read_field(uint32_t offset, uint64_t& value) const;
  void write_field(uint32_t offset, uint64_t value);

  Bus& bus_;
  const arch::Microarch& uarch_;
  const Behaviour& behaviour_;
  uint64_t address_;
  LatchedBounds& latched_;
  bool ia32e_;
  PebsRegisters* registers_;  // of architectural PEBS; else null
  uint64_t base_ = 0, index_ = 0, maximum_ = 0, threshold_ = 0;
  uint64_t previous_index_ = 0;
  size_t record_bytes_;
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_ASSIST_H_
