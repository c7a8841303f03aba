// A session: the one way to programme a machine's PMU. Save, programme, run, drain, restore.
#ifndef SKIDPROOF_PEBS_SESSION_H_
#define SKIDPROOF_PEBS_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/expected.h"
#include "pebs/arch/event.h"
#include "pebs/machine.h"
#include "pebs/record.h"

namespace skidproof {

// One general-purpose counter.
struct CounterSetup {
  unsigned counter = 0;    // n of IA32_PMCn
  uint16_t select = 0;     // event code | umask << 8
  uint8_t umask2 = 0;      // from architectural version 6 on
  uint64_t period = 0;     // events to overflow: the counter starts at −period; 0: starts at 0
  bool pebs = false;       // PEBS_EN_PMCn
  bool interrupt = false;  // INT: a PMI of its own on overflow (leave clear with PEBS, R34)
  bool usr = true, os = true;  // privilege levels that count
  bool edge = false, any_thread = false, invert = false;
  bool equal = false;  // EQ, from architectural version 6 on
  uint8_t cmask = 0;
  bool load_latency = false;   // LL_EN_PMCn
  bool precise_store = false;  // PS_EN
  // NetBurst: what selects the event; `counter` counts in netburst::kSessionCounters.
  const arch::netburst::Metric* metric = nullptr;
  std::optional<uint64_t> initial = {};  // start value instead of −period
  std::optional<uint64_t> reset = {};    // PEBS counter reset slot instead of −period
  bool adaptive = true;                  // its Adaptive bit, where records are adaptive
  // Architectural PEBS: the groups of its own records, as MSR_PEBS_DATA_CFG says them; empty: the plan's.
  std::optional<uint64_t> groups = {};

  // Takes code, umask and the published qualifiers of an event.
  static CounterSetup of(unsigned counter, const arch::Event& event, uint64_t period,
                         bool pebs = true);
  uint64_t select_msr() const;  // IA32_PERFEVTSELn with EN set
};

// One fixed-function counter.
struct FixedSetup {
  unsigned counter = 0;
  bool usr = true, os = true;
  bool interrupt = false;
  uint64_t initial = 0;
  bool pebs = false;                    // IA32_PEBS_ENABLE[32 + i]
  uint64_t period = 0;                  // events to overflow, instead of `initial`; 0: starts there
  std::optional<uint64_t> reset = {};   // its reset slot, instead of its start value
  bool adaptive = true;                 // its Adaptive bit, where records are adaptive
  std::optional<uint64_t> groups = {};  // as CounterSetup::groups

  uint64_t start(unsigned width) const;  // the value from which it counts
};

// The branch trace store. Its threshold and maximum are in records, measured from its base, unless
// given in bytes.
struct BranchTraceSetup {
  size_t records = 1024;                         // room really allocated
  std::optional<size_t> threshold_records = {};  // empty: past the maximum (B12)
  std::optional<size_t> maximum_records = {};  // empty: records; the field says one byte more (B8)
  std::optional<size_t> maximum_bytes = {};    // overrides maximum_records
  std::optional<size_t> bytes_to_4g = {};      // as SessionPlan::bytes_to_4g
  bool interrupt = true;                       // BTINT; clear: the buffer is circular (B11)
  bool off_os = false, off_usr = false;        // keep CPL 0, CPL above 0 out (B15)
  bool messages = true, store = true;          // TR and BTS; branches need both (B1)
};

// The threshold and maximum are in records, measured from the base, unless given in bytes.
struct SessionPlan {
  static constexpr size_t kDefaultRecords = 256;

  std::vector<CounterSetup> counters;
  std::vector<FixedSetup> fixed = {};
  // Room really allocated for records; empty: kDefaultRecords, or what the microarch can take of it.
  std::optional<size_t> buffer_records = {};
  std::optional<size_t> threshold_records =
      {};  // empty: past the maximum, no threshold interrupt (R50)
  std::optional<size_t> maximum_records = {};  // empty: buffer_records
  std::optional<size_t> maximum_bytes = {};    // overrides maximum_records
  std::optional<size_t> index_bytes = {};      // start index instead of the base
  // Outside IA-32e mode: the maximum lies so many bytes below 4 GiB, where linear addresses begin
  // anew at 0; what is allocated behind it stands there. Of one buffer at a time.
  std::optional<size_t> bytes_to_4g = {};
  uint64_t load_latency_threshold = 3;  // MSR_PEBS_LD_LAT_THRESHOLD where a counter uses it
  std::optional<BranchTraceSetup> branches = {};  // empty: no branch trace store
  // The LBR stack records while the program runs, and an interrupt freezes it (IA32_DEBUGCTL[0], [11]).
  bool last_branches_until_pmi = false;
  bool freeze_on_pmi = false;      // IA32_DEBUGCTL[12]
  bool freeze_while_smm = false;   // IA32_DEBUGCTL[14]
  bool mask_interrupts = false;    // leave the LVT entry masked
  bool keep_sibling_busy = false;  // RunPlan::keep_sibling_busy
  PmiPolicy pmi = {};
  Ring ring = Ring::kKernel;
  Mode mode = Mode::kLong;  // of the programs: outside IA-32e mode the DS area is below 4 GiB
  std::optional<uint64_t> pebs_enable =
      {};  // raw IA32_PEBS_ENABLE instead of what the counters say
  // MSR_PEBS_DATA_CFG where records are adaptive; empty: the groups that make of a record what the
  // fixed formats have, memory and registers.
  std::optional<uint64_t> pebs_data_cfg = {};

  // Bytes of a record with all that the plan selects, by the row's format: the unit of the sizes
  // above.
  size_t record_bytes(const arch::Microarch& microarch) const;
};

// What a run left behind, read after GLOBAL_CTRL was cleared.
struct SessionRun {
  RunLog log;
  uint64_t global_status = 0;      // NetBurst: bit n: the OVF flag of counter n
  std::vector<uint64_t> counters;  // in the order of SessionPlan::counters
  std::vector<uint64_t> fixed;
};

// An entry of the LBR stack.
struct LastBranch {
  uint64_t from = 0, to = 0;
};

// Where PEBS is architectural the session says the same by IA32_PEBS_BASE, IA32_PEBS_INDEX and the counters' CFG_C: what the DS
// area's fields say below as addresses, it reads out of them and writes into them. Its buffer has a power of two of pages, of
// which the plan's room is the last part. What that form does not have (another base or maximum in the middle, a maximum that no
// unit of 16 bytes ends at, reset values beyond 32 bits, 32-bit code) a plan cannot ask for: Microarch::pebs_in_ds_area().
//
// The DS area is zeroed but for the fields of the plan; the buffer and the room behind it are
// filled with kFill, so that a write outside the records shows.
class Session {
 public:
  static constexpr std::byte kFill{0xA5};

  // Saves every MSR that the plan changes, sets up the DS area, and programmes the counters with
  // GLOBAL_CTRL off. Record format and DS layout are those that the machine reports; the row's
  // only where it reports none. Where load latency needs an auxiliary event, that counts on a
  // counter which the plan leaves free. Errors: kNotAvailable without a PMU, for a buffer that is
  // not safe on this microarch, where no counter is free for the auxiliary event, and for what architectural PEBS cannot
  // say or the machine has no physical memory for; kUnsupported
  // for a record format that no table describes; kInvalidArgument for a buffer that is to end at 4
  // GiB in IA-32e mode; kGeneralProtection, naming the MSR and value.
  static Expected<Session> open(Machine& machine, const SessionPlan& plan);

  Session(Session&&) noexcept;
  Session& operator=(Session&&) = delete;
  ~Session();  // restores; close() says whether that worked

  // Restarts counters and enables in the documented order, GLOBAL_CTRL last (R39); disables
  // GLOBAL_CTRL first. Of the status it clears what is set, and writes no other bit. Records accumulate in the buffers over runs until they are rewound.
  Expected<SessionRun> run(const Program& program, uint64_t iterations,
                           std::vector<DisturbanceAt> disturbances = {});
  // The same without re-writing counters, selects or the DS area: recording goes on where it stood.
  Expected<SessionRun> resume(const Program& program, uint64_t iterations);

  // The records between base and index, in place.
  Records records() const;
  // What lies between index and the end of the allocated room: all kFill on a conforming machine.
  std::span<const std::byte> after_index() const;
  // Index := base (R49), and the fill restored.
  void rewind();

  // The same of the branch trace store: a circular buffer shows the records since it last began
  // anew, and behind the index older ones. All are empty without SessionPlan::branches.
  BranchRecords branch_records() const;
  std::span<const std::byte> after_branch_index() const;
  void rewind_branches();

  // The LBR stack as it stands, newest first, with addresses as the record of a branch has them; empty where the
  // row has none.
  Expected<std::vector<LastBranch>> last_branches() const;

  // DS area fields, as the machine left them.
  uint64_t base() const;
  uint64_t index() const;
  uint64_t maximum() const;
  uint64_t threshold() const;
  uint64_t reset_slot(unsigned counter) const;
  uint64_t fixed_reset_slot(unsigned counter) const;
  void set_base(uint64_t address);
  void set_index(uint64_t address);
  void set_threshold(uint64_t address);
  void set_maximum(uint64_t address);
  void set_reset_slot(unsigned counter, uint64_t value);
  void set_fixed_reset_slot(unsigned counter, uint64_t value);
  size_t record_bytes() const;  // of the plan, in the machine's format
  uint64_t branch_base() const;
  uint64_t branch_index() const;
  uint64_t branch_maximum() const;
  uint64_t branch_threshold() const;
  void set_branch_index(uint64_t address);
  uint64_t ds_address() const;
  std::span<const std::byte> ds_bytes() const;

  // Restores every saved MSR and frees nothing yet. Idempotent.
  Expected<void> close();

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// −period at the counter's width: the value from which `period` events reach 0.
constexpr uint64_t minus_period(uint64_t period, unsigned width) {
  return (uint64_t{0} - period) & (width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1);
}

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_SESSION_H_
