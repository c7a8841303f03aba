#include "pebs/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/capabilities.h"
#include "pebs/session_netburst.h"

namespace skidproof {
namespace {

using namespace arch;  // MSR names

// Room behind the buffer that the session owns, so that a record past the maximum lands in the
// fill.
constexpr size_t kSlackRecords = 4;

// Outside IA-32e mode.
constexpr uint64_t kLastAddress = UINT32_MAX;

uint64_t width_mask(unsigned width) { return minus_period(1, width); }

uint64_t fixed_control(const std::vector<FixedSetup>& fixed, const Microarch& uarch) {
  uint64_t control = 0;
  for (const FixedSetup& f : fixed) {
    uint64_t field = (f.os ? fixed_ctrl::kOs : 0) | (f.usr ? fixed_ctrl::kUsr : 0) |
                     (f.interrupt ? fixed_ctrl::kPmi : 0);
    control |= fixed_ctrl::field(f.counter, field);
    if (f.adaptive && uarch.pebs_baseline) control |= fixed_ctrl::adaptive(f.counter);
  }
  return control;
}

uint64_t pebs_enable_bits(const SessionPlan& plan, const Microarch& uarch) {
  uint64_t enable = 0;
  for (const CounterSetup& c : plan.counters) {
    if (c.pebs) enable |= bit(c.counter);
    if (c.load_latency && uarch.load_latency_enable != 0)
      enable |= bit(pebs_enable::kLoadLatencyShift + c.counter);
    if (c.precise_store) enable |= pebs_enable::kPreciseStore;
  }
  for (const FixedSetup& f : plan.fixed) {
    if (f.pebs) enable |= bit(pebs_enable::kFixedShift + f.counter);
  }
  return plan.pebs_enable.value_or(enable);
}

uint64_t branch_trace_bits(const arch::BranchTrace& bits, const BranchTraceSetup& setup) {
  return (setup.messages ? bits.messages : 0) | (setup.store ? bits.store : 0) |
         (setup.interrupt ? bits.interrupt : 0) | (setup.off_os ? bits.off_os : 0) |
         (setup.off_usr ? bits.off_usr : 0);
}

uint64_t global_control(const SessionPlan& plan) {
  uint64_t control = 0;
  for (const CounterSetup& c : plan.counters) control |= bit(c.counter);
  for (const FixedSetup& f : plan.fixed) control |= bit(status::kFixedShift + f.counter);
  return control;
}

// MSR_ARCH_LBR_CTL: at every level and of every type.
constexpr uint64_t kEveryBranch =
    lbr_ctl::kEnable | lbr_ctl::kOs | lbr_ctl::kUsr | lbr_ctl::kBranchTypes;

uint64_t data_config(const SessionPlan& plan) {
  return plan.pebs_data_cfg.value_or(adaptive::kMemory | adaptive::kGprs);
}

// --- Architectural PEBS: every counter has a register for what IA32_PEBS_ENABLE, MSR_PEBS_DATA_CFG and the reset slots say.

// Which counters of MSR_PEBS_DATA_CFG's vectors are to stand in records.
bool included(const SessionPlan& plan, unsigned position) {
  const adaptive::SnapshotVectors vectors = adaptive::snapshot_vectors(data_config(plan));
  return position < status::kFixedShift
             ? (vectors.gp >> position & 1) != 0
             : (vectors.fixed >> (position - status::kFixedShift) & 1) != 0;
}

// The groups of MSR_PEBS_DATA_CFG in the terms of IA32_PMC_GPn_CFG_C, as far as this processor has them.
uint64_t groups_of(uint64_t config, const Microarch& uarch) {
  uint64_t groups = 0;
  if (config & adaptive::kMemory) groups |= cfg_c::kAux;
  if (config & adaptive::kGprs) groups |= cfg_c::kGprs;
  if (config & adaptive::kXmm) groups |= cfg_c::kXmm;
  if (config & adaptive::kBranches) {
    groups |=
        architectural::branch_field(adaptive::branch_entries(config), uarch.last_branches.depth);
  }
  if (config & adaptive::kCounters) groups |= cfg_c::kCountersGp | cfg_c::kCountersFixed;
  if (adaptive::snapshot_vectors(config).metrics != 0) groups |= cfg_c::kMetrics;
  return groups & uint64_t{uarch.extended.pebs_groups} << cfg_c::kGroupsShift;
}

uint64_t groups_of(const SessionPlan& plan, const std::optional<uint64_t>& own, bool adaptive_bit,
                   const Microarch& uarch) {
  return adaptive_bit ? groups_of(own.value_or(data_config(plan)), uarch) : 0;
}

// Of the largest record that a counter of the plan has.
size_t architectural_record_bytes(const SessionPlan& plan, const Microarch& uarch) {
  const uint64_t config = data_config(plan);
  size_t most = 0;
  const auto look = [&](uint64_t groups) {
    size_t bytes = architectural::record_bytes(groups, uarch.last_branches.depth);
    if (architectural::has_counters(groups)) bytes += adaptive::snapshot_vectors(config).bytes();
    most = std::max(most, architectural::whole_units(bytes));
  };
  for (const CounterSetup& c : plan.counters) {
    if (c.pebs) look(groups_of(plan, c.groups, c.adaptive, uarch));
  }
  for (const FixedSetup& f : plan.fixed) {
    if (f.pebs) look(groups_of(plan, f.groups, f.adaptive, uarch));
  }
  if (most == 0) look(groups_of(config, uarch));
  return most;
}

uint32_t cfg_c_msr(unsigned position) {
  return position < status::kFixedShift
             ? IA32_PMC_GP0_CFG_C + kBankStride * position
             : IA32_PMC_FX0_CFG_C + kBankStride * (position - status::kFixedShift);
}

}  // namespace

size_t SessionPlan::record_bytes(const arch::Microarch& microarch) const {
  if (microarch.architectural_pebs()) return architectural_record_bytes(*this, microarch);
  return microarch.pebs_baseline ? adaptive::configured_bytes(data_config(*this))
                                 : microarch.record_in(mode).bytes;
}

uint64_t FixedSetup::start(unsigned width) const {
  return period != 0 ? minus_period(period, width) : initial & width_mask(width);
}

CounterSetup CounterSetup::of(unsigned counter, const arch::Event& event, uint64_t period,
                              bool pebs) {
  CounterSetup setup;
  setup.counter = counter;
  setup.select = event.select();
  setup.umask2 = event.umask2;
  setup.period = period;
  setup.pebs = pebs;
  setup.cmask = event.cmask;
  setup.metric = event.metric;
  setup.invert = event.invert;
  setup.load_latency = event.kind == arch::EventKind::kLoadLatency;
  setup.precise_store = event.kind == arch::EventKind::kPreciseStore;
  return setup;
}

uint64_t CounterSetup::select_msr() const {
  return select | (usr ? evtsel::kUsr : 0) | (os ? evtsel::kOs : 0) | (edge ? evtsel::kEdge : 0) |
         (interrupt ? evtsel::kInt : 0) | (any_thread ? evtsel::kAnyThread : 0) | evtsel::kEnable |
         (invert ? evtsel::kInvert : 0) | (uint64_t{cmask} << evtsel::kCmaskShift) |
         (equal ? evtsel::kEqual : 0) | (uint64_t{umask2} << evtsel::kUmask2Shift);
}

struct Session::State {
  Machine* machine = nullptr;
  const arch::Microarch uarch;  // the row, with what the machine reports in place of its own
  SessionPlan plan;
  Memory ds;                          // the management area, in a page of its own
  Memory buffer;                      // records, then slack
  Memory branch_buffer;               // branch records, then slack; none without plan.branches
  uint64_t debugctl = 0;              // while no branches are traced
  std::vector<MsrWrite> saved;        // in the order of saving; restored backwards
  std::optional<unsigned> auxiliary;  // IA32_PMCn of the event that load latency needs beside it
  bool closed = false;
  // Architectural PEBS. The buffer is longer than the plan's, and recording begins so far behind its base that the plan's room
  // is left: `buffer` is that room, and what lies behind.
  uint64_t pebs_base = 0;   // IA32_PEBS_BASE
  uint64_t first_byte = 0;  // from the base to the room
  uint64_t pebs_index = 0;  // IA32_PEBS_INDEX, as it was last seen or shall be
  std::vector<MsrWrite>
      configurations;  // of the counters with PEBS, without PEBS_EN where the plan has that

  State(Machine& of, arch::Microarch facts, SessionPlan what)
      : machine(&of), uarch(facts), plan(std::move(what)) {}

  const arch::DsLayout& layout() const { return uarch.ds_in(plan.mode); }
  const arch::RecordLayout& record() const { return uarch.record_in(plan.mode); }
  uint64_t field(uint32_t offset) const {
    uint64_t value = 0;
    std::memcpy(&value, ds.host.data() + offset, layout().field_bytes);
    return value;
  }
  void set_field(uint32_t offset, uint64_t value) {
    std::memcpy(ds.host.data() + offset, &value, layout().field_bytes);
  }
  // A reset slot has 64 bits (40 of them used) even where addresses have 32.
  uint64_t slot(uint32_t offset) const {
    uint64_t value = 0;
    std::memcpy(&value, ds.host.data() + offset, sizeof value);
    return value;
  }
  void set_slot(uint32_t offset, uint64_t value) {
    std::memcpy(ds.host.data() + offset, &value, sizeof value);
  }
  size_t record_bytes() const { return plan.record_bytes(uarch); }
  size_t buffer_records() const;
  size_t maximum_bytes() const;
  size_t allocated_bytes() const { return (buffer_records() + kSlackRecords) * record_bytes(); }
  bool architectural() const { return uarch.architectural_pebs(); }
  bool samples() const { return pebs_enable_bits(plan, uarch) != 0; }
  uint64_t index_of(uint64_t word) const {
    return buffer.address - first_byte + pebs_index::write_bytes(word);
  }
  // IA32_PEBS_INDEX as it stands; where the session is closed as it stood.
  uint64_t index_word() const {
    if (closed || !samples()) return pebs_index;
    return machine->rdmsr(IA32_PEBS_INDEX).value_or(pebs_index);
  }
  // At once, and with the next run.
  void set_index_field(uint64_t mask, uint64_t field) {
    pebs_index = (index_word() & ~mask) | (field & mask);
    if (!closed && samples()) static_cast<void>(machine->wrmsr(IA32_PEBS_INDEX, pebs_index));
  }
  uint64_t from_base(uint64_t address) const { return address - buffer.address + first_byte; }
  MsrWrite& configuration(unsigned position);
  uint64_t reload(unsigned position, unsigned width) const {
    uint64_t value = 0;
    for (const MsrWrite& w : configurations) {
      if (w.msr == cfg_c_msr(position)) value = w.value;
    }
    return (value | ~cfg_c::kReload) & width_mask(width);
  }
  void set_reload(unsigned position, uint64_t value) {
    MsrWrite& w = configuration(position);
    w.value = (w.value & ~cfg_c::kReload) | (value & cfg_c::kReload);
  }
  const arch::BranchRecordLayout& branch_record() const {
    return uarch.branch_record_in(plan.mode);
  }
  size_t branch_bytes() const { return branch_record().bytes; }
  static size_t branch_maximum_bytes(const BranchTraceSetup& setup, size_t record_bytes) {
    return setup.maximum_bytes.value_or(
        setup.maximum_records.value_or(setup.records) * record_bytes + 1);
  }
  // What no index reaches: an address past the maximum.
  uint64_t beyond(uint64_t address) const {
    return plan.mode == Mode::kLong ? address : std::min(address, kLastAddress);
  }
  // What of a buffer lies below an index of its own.
  static size_t used(const Memory& memory, uint64_t base, uint64_t index) {
    size_t bytes = index >= base ? static_cast<size_t>(index - base) : 0;
    return std::min(bytes, memory.host.size());
  }
  uint64_t initial_value(const CounterSetup& c) const {
    return c.initial.value_or(minus_period(c.period, uarch.gp_width));
  }

  Expected<void> check_buffer() const;
  Expected<void> choose_auxiliary();
  Expected<void> save(uint32_t msr);
  Expected<void> set(uint32_t msr, uint64_t value);
  Expected<Memory> allocate_store(size_t bytes) const;
  Expected<Memory> allocate_to_4g(size_t bytes) const;
  Expected<void> allocate();
  Expected<void> allocate_architectural();
  void write_ds_area();
  void write_pebs_registers(uint64_t maximum);
  Expected<void> choose_configurations();
  Expected<void> programme_architectural();
  Expected<void> allow_in_records();
  void write_branch_fields(const BranchTraceSetup& setup);
  Expected<void> programme();
  Expected<void> programme_last_branches();
  Expected<void> programme_auxiliary();
  Expected<void> programme_netburst();
  Expected<uint64_t> lvt_entry() const;
  void switch_on_and_off(RunPlan& run, std::optional<uint64_t> clear) const;
  void switch_on_branches(RunPlan& run) const;
  void switch_off_branches(RunPlan& run) const;
  std::vector<MsrWrite> counter_writes() const;
  Expected<SessionRun> run(const Program& program, uint64_t iterations, bool restart,
                           std::vector<DisturbanceAt> disturbances = {});
};

// How many records a buffer of the limit holds, at most the default.
size_t Session::State::buffer_records() const {
  if (plan.buffer_records) return *plan.buffer_records;
  const size_t limit = uarch.pebs_buffer_limit_bytes;
  return limit == 0 ? SessionPlan::kDefaultRecords
                    : std::min(SessionPlan::kDefaultRecords, limit / record_bytes());
}

size_t Session::State::maximum_bytes() const {
  return plan.maximum_bytes.value_or(plan.maximum_records.value_or(buffer_records()) *
                                     record_bytes());
}

Expected<void> Session::State::check_buffer() const {
  const size_t limit = uarch.pebs_buffer_limit_bytes;
  if (limit == 0 || maximum_bytes() <= limit) return {};
  return fail(ErrorCode::kNotAvailable,
              fmt::format("a PEBS buffer of {} bytes can hang {}, which takes {} safely",
                          maximum_bytes(), uarch.title, limit),
              fmt::format("ask for {} records of {} bytes at most", limit / record_bytes(),
                          record_bytes()));
}

// The lowest counter that counts the auxiliary event and that the plan does not use.
Expected<void> Session::State::choose_auxiliary() {
  const bool samples = std::any_of(plan.counters.begin(), plan.counters.end(),
                                   [](const CounterSetup& c) { return c.load_latency; });
  if (!samples || uarch.load_latency_auxiliary == 0) return {};
  unsigned free = uarch.load_latency_auxiliary_counters;
  for (const CounterSetup& c : plan.counters) free &= ~(1U << c.counter);
  if (free == 0) {
    return fail(ErrorCode::kNotAvailable,
                fmt::format("load latency on {} needs event {:#06x} on a counter of its own, and "
                            "the plan uses all that count it",
                            uarch.title, uarch.load_latency_auxiliary),
                "leave one of them free");
  }
  auxiliary = static_cast<unsigned>(__builtin_ctz(free));
  return {};
}

Expected<void> Session::State::programme_auxiliary() {
  const uint32_t n = *auxiliary;
  SKIDPROOF_CHECK(set(IA32_PERFEVTSEL0 + n, 0));
  SKIDPROOF_CHECK(set(IA32_PMC0 + n, 0));
  CounterSetup event;
  event.counter = n;
  event.select = uarch.load_latency_auxiliary;
  return set(IA32_PERFEVTSEL0 + n, event.select_msr());
}

Expected<void> Session::State::save(uint32_t msr) {
  for (const MsrWrite& s : saved) {
    if (s.msr == msr) return {};
  }
  saved.push_back({msr, SKIDPROOF_TRY(machine->rdmsr(msr))});
  return {};
}

Expected<void> Session::State::set(uint32_t msr, uint64_t value) {
  SKIDPROOF_CHECK(save(msr));
  return machine->wrmsr(msr, value);
}

Expected<Memory> Session::State::allocate_store(size_t bytes) const {
  MemoryRequest request{.bytes = bytes, .use = MemoryUse::kDebugStore};
  request.below_4g = plan.mode != Mode::kLong;
  return machine->allocate(request);
}

// The last `bytes` bytes below 4 GiB, and what stands behind them at 0.
Expected<Memory> Session::State::allocate_to_4g(size_t bytes) const {
  if (plan.mode == Mode::kLong) {
    return fail(ErrorCode::kInvalidArgument,
                "in IA-32e mode the linear address space does not end at 4 GiB",
                "ask for a buffer there in Mode::kProtected32");
  }
  MemoryRequest request{.bytes = bytes, .use = MemoryUse::kDebugStore};
  request.across_4g = true;
  Memory memory = SKIDPROOF_TRY(machine->allocate(request));
  const uint64_t base = kLastAddress + 1 - bytes;
  memory.host = memory.host.subspan(base - memory.address);
  memory.address = base;
  return memory;
}

// A buffer of 4096 << SIZE bytes that ends where the plan's does, and slack behind it.
Expected<void> Session::State::allocate_architectural() {
  if (plan.bytes_to_4g) {
    return fail(
        ErrorCode::kNotAvailable,
        "the buffer of architectural PEBS stands at a physical address, and ends at no linear one",
        "leave bytes_to_4g out");
  }
  if (!samples()) {
    buffer = SKIDPROOF_TRY(allocate_store(allocated_bytes()));
    return {};
  }
  const size_t room = architectural::whole_units(maximum_bytes());
  unsigned size = 0;
  while ((size_t{1} << (pebs_base::kPageShift + size)) < room) ++size;
  const size_t bytes = size_t{1} << (pebs_base::kPageShift + size);
  const MemoryRequest request{.bytes = bytes + kSlackRecords * record_bytes(),
                              .use = MemoryUse::kDebugStore,
                              .physical = true};
  buffer = SKIDPROOF_TRY(machine->allocate(request));
  pebs_base = buffer.physical | size;
  first_byte = bytes - room;
  buffer.host = buffer.host.subspan(first_byte);
  buffer.address += first_byte;
  return {};
}

MsrWrite& Session::State::configuration(unsigned position) {
  const uint32_t msr = cfg_c_msr(position);
  for (MsrWrite& w : configurations) {
    if (w.msr == msr) return w;
  }
  configurations.push_back({msr, 0});
  return configurations.back();
}

// What the counters of the plan have in their registers while they record. The value that a counter is loaded with has 32 bits
// there, and ones above them.
Expected<void> Session::State::choose_configurations() {
  const uint64_t enable = pebs_enable_bits(plan, uarch);
  const auto choose = [&](unsigned position, const std::optional<uint64_t>& asked, uint64_t value,
                          unsigned width, uint64_t groups) -> Expected<void> {
    if (((enable >> position) & 1) == 0) return {};
    const uint64_t low = value & cfg_c::kReload;
    if (asked && ((low | ~cfg_c::kReload) & width_mask(width)) != (value & width_mask(width))) {
      return fail(ErrorCode::kNotAvailable,
                  fmt::format("architectural PEBS loads a counter with 32 bits and ones above "
                              "them, which {:#x} is not",
                              value),
                  "ask for a reset value that has ones in bits 32 and up");
    }
    configuration(position).value = low | groups | cfg_c::kEnable;
    return {};
  };
  for (const CounterSetup& c : plan.counters) {
    if (c.counter >= status::kFixedShift) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("there is no general-purpose counter {}", c.counter),
                  "CPUID.23H.01H lists those that there are");
    }
    SKIDPROOF_CHECK(choose(c.counter, c.reset, c.reset.value_or(initial_value(c)), uarch.gp_width,
                           groups_of(plan, c.groups, c.adaptive, uarch)));
  }
  for (const FixedSetup& f : plan.fixed) {
    SKIDPROOF_CHECK(choose(status::kFixedShift + f.counter, f.reset,
                           f.reset.value_or(f.start(uarch.fixed_width)), uarch.fixed_width,
                           groups_of(plan, f.groups, f.adaptive, uarch)));
  }
  return {};
}

Expected<void> Session::State::programme_architectural() {
  if (!samples()) return {};
  SKIDPROOF_CHECK(set(IA32_PEBS_BASE, pebs_base));
  SKIDPROOF_CHECK(set(IA32_PEBS_INDEX, pebs_index));
  for (const MsrWrite& w : configurations) SKIDPROOF_CHECK(set(w.msr, 0));
  return {};
}

// Counters that records shall have beside their own: whatever else their registers say stays. [Intel SDM Vol. 1 of 2026,
// "CPUID.23H.04H", ALLOW_IN_RECORD]
Expected<void> Session::State::allow_in_records() {
  for (unsigned position = 0; position < 64; ++position) {
    if (!included(plan, position)) continue;
    const uint32_t msr = cfg_c_msr(position);
    bool own = false;
    for (MsrWrite& w : configurations) {
      if (w.msr != msr) continue;
      w.value |= cfg_c::kAllow;
      own = true;
    }
    if (own) continue;
    SKIDPROOF_CHECK(save(msr));
    const uint64_t other = SKIDPROOF_TRY(machine->rdmsr(msr));
    SKIDPROOF_CHECK(machine->wrmsr(msr, other | cfg_c::kAllow));
  }
  return {};
}

Expected<void> Session::State::allocate() {
  ds = SKIDPROOF_TRY(allocate_store(4096));
  if (architectural()) {
    SKIDPROOF_CHECK(allocate_architectural());
    SKIDPROOF_CHECK(choose_configurations());
  } else {
    buffer = SKIDPROOF_TRY(plan.bytes_to_4g ? allocate_to_4g(maximum_bytes() + *plan.bytes_to_4g)
                                            : allocate_store(allocated_bytes()));
  }
  if (!plan.branches) return {};
  const BranchTraceSetup& setup = *plan.branches;
  branch_buffer = SKIDPROOF_TRY(
      setup.bytes_to_4g
          ? allocate_to_4g(branch_maximum_bytes(setup, branch_bytes()) + *setup.bytes_to_4g)
          : allocate_store((setup.records + kSlackRecords) * branch_bytes()));
  return {};
}

void Session::State::write_ds_area() {
  const arch::DsLayout& layout = this->layout();
  std::fill(ds.host.begin(), ds.host.end(), std::byte{0});
  std::fill(buffer.host.begin(), buffer.host.end(), kFill);
  uint64_t size = record_bytes();
  uint64_t maximum = buffer.address + maximum_bytes();
  if (plan.branches) write_branch_fields(*plan.branches);
  if (architectural()) return write_pebs_registers(maximum);
  // Without a threshold the field points past the maximum, which no index reaches (R50).
  uint64_t threshold = plan.threshold_records ? buffer.address + *plan.threshold_records * size
                                              : beyond(maximum + allocated_bytes());
  set_field(layout.pebs_base, buffer.address);
  set_field(layout.pebs_index, buffer.address + plan.index_bytes.value_or(0));
  set_field(layout.pebs_maximum, maximum);
  set_field(layout.pebs_threshold, threshold);
  for (const CounterSetup& c : plan.counters) {
    if (c.counter >= layout.resets) continue;
    set_slot(layout.gp_reset(c.counter), c.reset.value_or(initial_value(c)));
  }
  for (const FixedSetup& f : plan.fixed) {
    if (f.counter >= layout.fixed_resets) continue;
    set_slot(layout.fixed_counter_reset(f.counter), f.reset.value_or(f.start(uarch.fixed_width)));
  }
}

// Without a threshold THRESH points past the buffer, where WR does not come.
void Session::State::write_pebs_registers(uint64_t maximum) {
  const uint64_t threshold = plan.threshold_records
                                 ? buffer.address + *plan.threshold_records * record_bytes()
                                 : maximum + kSlackRecords * record_bytes();
  pebs_index = pebs_index::kEnable | pebs_index::threshold_field(from_base(threshold)) |
               ((first_byte + plan.index_bytes.value_or(0)) & pebs_index::kWrite);
}

void Session::State::write_branch_fields(const BranchTraceSetup& setup) {
  const arch::DsLayout& layout = this->layout();
  std::fill(branch_buffer.host.begin(), branch_buffer.host.end(), kFill);
  uint64_t base = branch_buffer.address;
  uint64_t size = branch_bytes();
  uint64_t maximum = base + branch_maximum_bytes(setup, size);
  // Past the maximum by a whole record, where no index comes (B12).
  uint64_t past = beyond(base + ((maximum - base) / size + 2) * size);
  set_field(layout.bts_base, base);
  set_field(layout.bts_index, base);
  set_field(layout.bts_maximum, maximum);
  set_field(layout.bts_threshold,
            setup.threshold_records ? base + *setup.threshold_records * size : past);
}

std::vector<MsrWrite> Session::State::counter_writes() const {
  std::vector<MsrWrite> writes;
  for (const CounterSetup& c : plan.counters) {
    uint64_t value = initial_value(c) & width_mask(uarch.gp_width);
    // A legacy write sign-extends bit 31; values that it cannot carry need the full-width alias
    // (R38).
    uint64_t extended = static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)});
    bool legacy = (extended & width_mask(uarch.gp_width)) == value;
    const uint32_t msr = counter_msr(uarch, c.counter);
    const bool alias = msr == IA32_PMC0 + c.counter && !legacy && uarch.full_width_writes;
    writes.push_back({alias ? IA32_A_PMC0 + c.counter : msr, value});
  }
  for (const FixedSetup& f : plan.fixed) {
    writes.push_back({fixed_counter_msr(uarch, f.counter), f.start(uarch.fixed_width)});
  }
  return writes;
}

// NetBurst, or what else has no event selects.
Expected<void> Session::State::programme_netburst() {
  for (uint32_t msr : netburst_registers(plan)) SKIDPROOF_CHECK(save(msr));
  for (const MsrWrite& w : netburst_stop(plan)) SKIDPROOF_CHECK(set(w.msr, w.value));
  debugctl = SKIDPROOF_TRY(machine->rdmsr(IA32_DEBUGCTL)) & ~uarch.branch_trace.all();
  SKIDPROOF_CHECK(set(IA32_DEBUGCTL, debugctl));
  SKIDPROOF_CHECK(set(IA32_DS_AREA, ds.address));
  const uint64_t lvt_value = SKIDPROOF_TRY(lvt_entry());
  SKIDPROOF_CHECK(set(IA32_X2APIC_LVT_PMI, lvt_value));
  for (const MsrWrite& w : netburst_select(plan)) SKIDPROOF_CHECK(set(w.msr, w.value));
  return {};
}

Expected<uint64_t> Session::State::lvt_entry() const {
  const uint64_t vector = SKIDPROOF_TRY(machine->rdmsr(IA32_X2APIC_LVT_PMI)) & lvt::kVector;
  return vector | lvt::kNmi | (plan.mask_interrupts ? lvt::kMasked : 0);
}

Expected<void> Session::State::programme_last_branches() {
  debugctl |= debugctl::kFreezeLbrsOnPmi;
  if (const uint32_t filters = uarch.last_branches.filters; filters != 0) {
    SKIDPROOF_CHECK(set(filters, 0));
  }
  if (!uarch.architectural_lbr()) return {};
  return set(MSR_ARCH_LBR_CTL, kEveryBranch);
}

Expected<void> Session::State::programme() {
  if (!uarch.architectural_perfmon()) return programme_netburst();
  SKIDPROOF_CHECK(set(IA32_PERF_GLOBAL_CTRL, 0));
  if (architectural()) {
    SKIDPROOF_CHECK(programme_architectural());
  } else {
    SKIDPROOF_CHECK(set(IA32_PEBS_ENABLE, 0));
  }
  SKIDPROOF_CHECK(set(IA32_DS_AREA, ds.address));
  debugctl = SKIDPROOF_TRY(machine->rdmsr(IA32_DEBUGCTL));
  debugctl &= ~(debugctl::kFreezePerfmonOnPmi | debugctl::kFreezeLbrsOnPmi |
                debugctl::kFreezeWhileSmm | uarch.branch_trace.all());
  bool branches = uarch.pebs_baseline && (data_config(plan) & adaptive::kBranches) != 0;
  for (const MsrWrite& w : configurations) branches |= (w.value & cfg_c::kBranches) != 0;
  if (branches) {
    // Without them the branch group holds nothing.
    if (uarch.architectural_lbr()) {
      SKIDPROOF_CHECK(set(MSR_ARCH_LBR_CTL, kEveryBranch));
    } else {
      debugctl |= debugctl::kLbr;
    }
  }
  if (plan.last_branches_until_pmi) SKIDPROOF_CHECK(programme_last_branches());
  if (plan.freeze_on_pmi) debugctl |= debugctl::kFreezePerfmonOnPmi;
  if (plan.freeze_while_smm) debugctl |= debugctl::kFreezeWhileSmm;
  SKIDPROOF_CHECK(set(IA32_DEBUGCTL, debugctl));
  const uint64_t lvt_value = SKIDPROOF_TRY(lvt_entry());
  SKIDPROOF_CHECK(set(IA32_X2APIC_LVT_PMI, lvt_value));
  bool load_latency = false;
  for (const CounterSetup& c : plan.counters) {
    SKIDPROOF_CHECK(set(select_msr(uarch, c.counter), 0));
    SKIDPROOF_CHECK(save(counter_msr(uarch, c.counter)));
    load_latency |= c.load_latency;
  }
  for (const FixedSetup& f : plan.fixed) SKIDPROOF_CHECK(save(fixed_counter_msr(uarch, f.counter)));
  if (load_latency) SKIDPROOF_CHECK(set(MSR_PEBS_LD_LAT_THRESHOLD, plan.load_latency_threshold));
  if (auxiliary) SKIDPROOF_CHECK(programme_auxiliary());
  SKIDPROOF_CHECK(set(IA32_FIXED_CTR_CTRL, fixed_control(plan.fixed, uarch)));
  if (uarch.pebs_baseline) SKIDPROOF_CHECK(set(MSR_PEBS_DATA_CFG, data_config(plan)));
  for (const CounterSetup& c : plan.counters) {
    const uint64_t adaptive_bit = c.adaptive && uarch.pebs_baseline ? evtsel::kAdaptive : 0;
    SKIDPROOF_CHECK(set(select_msr(uarch, c.counter), c.select_msr() | adaptive_bit));
  }
  return {};
}

// They are traced while anything is counted: from before the first counter runs to behind the last.
void Session::State::switch_on_branches(RunPlan& run) const {
  uint64_t recording = 0;
  if (plan.branches) {
    run.bts_index_address = ds.address + layout().bts_index;
    run.bts_base_address = ds.address + layout().bts_base;
    recording = branch_trace_bits(uarch.branch_trace, *plan.branches);
  }
  if (plan.last_branches_until_pmi && !uarch.architectural_lbr()) recording |= debugctl::kLbr;
  if (recording != 0) run.enable.push_back({IA32_DEBUGCTL, debugctl | recording});
}
void Session::State::switch_off_branches(RunPlan& run) const {
  const bool last = plan.last_branches_until_pmi && !uarch.architectural_lbr();
  if (plan.branches || last) run.disable.push_back({IA32_DEBUGCTL, debugctl});
}

// `clear`: the status to clear where the run begins anew.
void Session::State::switch_on_and_off(RunPlan& run, std::optional<uint64_t> clear) const {
  if (!uarch.architectural_perfmon()) {
    std::vector<uint64_t> values;
    for (const CounterSetup& c : plan.counters) values.push_back(initial_value(c));
    switch_on_branches(run);
    netburst_run(plan, values, clear.has_value(), run);
    switch_off_branches(run);
    return;
  }
  if (clear) {
    // Clearing PEBS_ENABLE forgets a PEBS that an earlier run left armed; status is cleared when
    // counters are reloaded to continue sampling, as the manual asks. [SDM 18.9.1]
    if (architectural()) {
      for (const MsrWrite& w : configurations) run.enable.push_back({w.msr, 0});
    } else {
      run.enable = {{IA32_PEBS_ENABLE, 0}};
    }
    run.enable.push_back({IA32_PERF_GLOBAL_OVF_CTRL, *clear});
    for (const MsrWrite& write : counter_writes()) run.enable.push_back(write);
  }
  if (architectural()) {
    if (samples()) run.enable.push_back({IA32_PEBS_INDEX, pebs_index});
    run.enable.insert(run.enable.end(), configurations.begin(), configurations.end());
  } else {
    run.enable.push_back({IA32_PEBS_ENABLE, pebs_enable_bits(plan, uarch)});
  }
  run.disable = {{IA32_PERF_GLOBAL_CTRL, 0}};
  switch_on_branches(run);
  switch_off_branches(run);
  // PEBS_ENABLE stays for resume(); close() clears it (R39: GLOBAL_CTRL first).
  const uint64_t beside = auxiliary ? bit(*auxiliary) : 0;
  run.enable.push_back({IA32_PERF_GLOBAL_CTRL, global_control(plan) | beside});
  run.read.push_back(IA32_PERF_GLOBAL_STATUS);
  for (const CounterSetup& c : plan.counters) run.read.push_back(counter_msr(uarch, c.counter));
  for (const FixedSetup& f : plan.fixed) run.read.push_back(fixed_counter_msr(uarch, f.counter));
  if (architectural() && samples()) run.read.push_back(IA32_PEBS_INDEX);
}

Expected<SessionRun> Session::State::run(const Program& program, uint64_t iterations, bool restart,
                                         std::vector<DisturbanceAt> disturbances) {
  RunPlan run;
  run.disturbances = std::move(disturbances);
  run.iterations = iterations;
  run.pmi = plan.pmi;
  run.ring = plan.ring;
  run.mode = plan.mode;
  run.keep_sibling_busy = plan.keep_sibling_busy;
  run.pebs_field_bytes = layout().field_bytes;
  if (architectural()) {
    run.pmi.rewind_index = false;
    if (samples()) run.pebs_buffer_address = buffer.address - first_byte;
    for (const MsrWrite& w : configurations) SKIDPROOF_CHECK(save(w.msr));
    if (samples() && plan.pmi.rewind_index) {
      const uint64_t rewound =
          (pebs_index & ~(pebs_index::kWrite | pebs_index::kFull)) | first_byte;
      run.pmi.acknowledge.push_back({IA32_PEBS_INDEX, rewound});
    }
    pebs_index = index_word();
    SKIDPROOF_CHECK(allow_in_records());
  } else {
    run.pebs_index_address = ds.address + layout().pebs_index;
    run.pebs_base_address = ds.address + layout().pebs_base;
  }
  std::optional<uint64_t> clear;
  if (restart) {
    // Which bits can be written differs from part to part; those that are set can be.
    clear =
        uarch.architectural_perfmon() ? SKIDPROOF_TRY(machine->rdmsr(IA32_PERF_GLOBAL_STATUS)) : 0;
  }
  switch_on_and_off(run, clear);

  SessionRun result;
  result.log = SKIDPROOF_TRY(machine->run(program, run));
  const std::vector<uint64_t>& read = result.log.read;
  if (read.size() != run.read.size()) {
    return fail(ErrorCode::kInternal,
                fmt::format("{} returned {} MSR values instead of {}", machine->identity().name,
                            read.size(), run.read.size()));
  }
  if (!uarch.architectural_perfmon()) {
    netburst_results(plan, read, result);
    return result;
  }
  result.global_status = read[0];
  auto counters = read.begin() + 1;
  auto fixed = counters + static_cast<ptrdiff_t>(plan.counters.size());
  result.counters.assign(counters, fixed);
  result.fixed.assign(fixed, fixed + static_cast<ptrdiff_t>(plan.fixed.size()));
  if (architectural() && samples()) pebs_index = read.back();
  return result;
}

Expected<Session> Session::open(Machine& machine, const SessionPlan& plan) {
  const Identity& who = machine.identity();
  if (!who.pmu || who.microarch == nullptr) {
    return fail(ErrorCode::kNotAvailable,
                fmt::format("the machine {} has no PMU that can be programmed", who.name),
                "use a machine with a PMU, for example --machine model:sandy-bridge; `skidproof "
                "doctor` says why");
  }
  const Capabilities reported = SKIDPROOF_TRY(read_capabilities(machine));
  auto state = std::make_unique<State>(
      machine, SKIDPROOF_TRY(as_enumerated(*who.microarch, reported)), plan);
  SKIDPROOF_CHECK(state->check_buffer());
  SKIDPROOF_CHECK(state->choose_auxiliary());
  SKIDPROOF_CHECK(state->allocate());
  state->write_ds_area();
  Session session(std::move(state));  // from here on the destructor restores
  SKIDPROOF_CHECK(session.state_->programme());
  return session;
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session::~Session() {
  if (state_) static_cast<void>(close());
}

Expected<void> Session::close() {
  if (state_->closed) return {};
  if (state_->architectural()) state_->pebs_index = state_->index_word();
  state_->closed = true;
  Machine& machine = *state_->machine;
  if (!state_->uarch.architectural_perfmon()) {
    Expected<void> outcome;
    for (const MsrWrite& w : netburst_stop(state_->plan)) {
      auto done = machine.wrmsr(w.msr, w.value);
      if (outcome && !done) outcome = std::move(done);
    }
    for (auto it = state_->saved.rbegin(); it != state_->saved.rend(); ++it) {
      auto done = machine.wrmsr(it->msr, it->value);
      if (outcome && !done) outcome = std::move(done);
    }
    return outcome;
  }
  // Counters stop before anything else moves; the status bits that the session raised are cleared,
  // so that the next owner does not find them.
  Expected<void> first = machine.wrmsr(IA32_PERF_GLOBAL_CTRL, 0);
  auto keep_first = [&first](Expected<void> result) {
    if (first && !result) first = std::move(result);
  };
  if (auto left = machine.rdmsr(IA32_PERF_GLOBAL_STATUS); left && *left != 0) {
    keep_first(machine.wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, *left));
  }
  for (auto it = state_->saved.rbegin(); it != state_->saved.rend(); ++it) {
    if (it->msr >= IA32_PMC0 && it->msr < IA32_PMC0 + 8 && state_->uarch.full_width_writes) {
      keep_first(machine.wrmsr(it->msr - IA32_PMC0 + IA32_A_PMC0, it->value));
    } else {
      keep_first(machine.wrmsr(it->msr, it->value));
    }
  }
  return first;
}

Expected<SessionRun> Session::run(const Program& program, uint64_t iterations,
                                  std::vector<DisturbanceAt> disturbances) {
  return state_->run(program, iterations, true, std::move(disturbances));
}
Expected<SessionRun> Session::resume(const Program& program, uint64_t iterations) {
  return state_->run(program, iterations, false);
}

Expected<std::vector<LastBranch>> Session::last_branches() const {
  const arch::LastBranches& stack = state_->uarch.last_branches;
  std::vector<LastBranch> found;
  if (stack.depth == 0) return found;
  Machine& machine = *state_->machine;
  // From LBR_FMT 3 on the upper bits of from can be flags. [SDM 17.4.8.1 "LBR Stack and Intel 64 Processors"]
  const auto address = [&](uint64_t value) {
    const unsigned above = 64 - arch::linear_address_bits(state_->uarch);
    return static_cast<uint64_t>(static_cast<int64_t>(value << above) >> above);
  };
  const uint64_t top = stack.tos == 0 ? 0 : SKIDPROOF_TRY(machine.rdmsr(stack.tos)) % stack.depth;
  for (unsigned i = 0; i < stack.depth; ++i) {
    const unsigned entry = stack.entry(static_cast<unsigned>(top), i);
    const uint64_t from = SKIDPROOF_TRY(machine.rdmsr(stack.from + entry));
    const uint64_t to = SKIDPROOF_TRY(machine.rdmsr(stack.to + entry));
    found.push_back({.from = address(from), .to = address(to)});
  }
  return found;
}

Records Session::records() const {
  const Memory& buffer = state_->buffer;
  return {buffer.host.first(State::used(buffer, base(), index())), &state_->record()};
}

std::span<const std::byte> Session::after_index() const {
  const Memory& buffer = state_->buffer;
  return buffer.host.subspan(State::used(buffer, base(), index()));
}

void Session::rewind() {
  set_index(base());
  std::fill(state_->buffer.host.begin(), state_->buffer.host.end(), kFill);
}

BranchRecords Session::branch_records() const {
  const Memory& buffer = state_->branch_buffer;
  return {buffer.host.first(State::used(buffer, branch_base(), branch_index())),
          &state_->branch_record()};
}

std::span<const std::byte> Session::after_branch_index() const {
  const Memory& buffer = state_->branch_buffer;
  return buffer.host.subspan(State::used(buffer, branch_base(), branch_index()));
}

void Session::rewind_branches() {
  set_branch_index(branch_base());
  std::fill(state_->branch_buffer.host.begin(), state_->branch_buffer.host.end(), kFill);
}

uint64_t Session::branch_base() const { return state_->field(state_->layout().bts_base); }
uint64_t Session::branch_index() const { return state_->field(state_->layout().bts_index); }
uint64_t Session::branch_maximum() const { return state_->field(state_->layout().bts_maximum); }
uint64_t Session::branch_threshold() const { return state_->field(state_->layout().bts_threshold); }
void Session::set_branch_index(uint64_t address) {
  state_->set_field(state_->layout().bts_index, address);
}

uint64_t Session::base() const {
  return state_->architectural() ? state_->buffer.address
                                 : state_->field(state_->layout().pebs_base);
}
uint64_t Session::index() const {
  return state_->architectural() ? state_->index_of(state_->index_word())
                                 : state_->field(state_->layout().pebs_index);
}
uint64_t Session::maximum() const {
  return state_->architectural()
             ? state_->buffer.address - state_->first_byte + pebs_base::bytes(state_->pebs_base)
             : state_->field(state_->layout().pebs_maximum);
}
uint64_t Session::threshold() const {
  return state_->architectural() ? state_->buffer.address - state_->first_byte +
                                       pebs_index::threshold_bytes(state_->pebs_index)
                                 : state_->field(state_->layout().pebs_threshold);
}
uint64_t Session::reset_slot(unsigned counter) const {
  if (state_->architectural()) {
    return state_->reload(counter, state_->uarch.gp_width);
  }
  return state_->slot(state_->layout().gp_reset(counter));
}
uint64_t Session::fixed_reset_slot(unsigned counter) const {
  if (state_->architectural()) {
    return state_->reload(status::kFixedShift + counter, state_->uarch.fixed_width);
  }
  return state_->slot(state_->layout().fixed_counter_reset(counter));
}
size_t Session::record_bytes() const { return state_->record_bytes(); }
void Session::set_base(uint64_t address) { state_->set_field(state_->layout().pebs_base, address); }
void Session::set_index(uint64_t address) {
  if (state_->architectural()) {
    return state_->set_index_field(pebs_index::kWrite | pebs_index::kFull,
                                   state_->from_base(address));
  }
  state_->set_field(state_->layout().pebs_index, address);
}
void Session::set_threshold(uint64_t address) {
  if (state_->architectural()) {
    return state_->set_index_field(pebs_index::kThreshold,
                                   pebs_index::threshold_field(state_->from_base(address)));
  }
  state_->set_field(state_->layout().pebs_threshold, address);
}
void Session::set_maximum(uint64_t address) {
  state_->set_field(state_->layout().pebs_maximum, address);
}
void Session::set_reset_slot(unsigned counter, uint64_t value) {
  if (state_->architectural()) return state_->set_reload(counter, value);
  state_->set_slot(state_->layout().gp_reset(counter), value);
}
void Session::set_fixed_reset_slot(unsigned counter, uint64_t value) {
  if (state_->architectural()) return state_->set_reload(status::kFixedShift + counter, value);
  state_->set_slot(state_->layout().fixed_counter_reset(counter), value);
}
uint64_t Session::ds_address() const { return state_->ds.address; }
std::span<const std::byte> Session::ds_bytes() const {
  return state_->ds.host.first(arch::kDsAllocation);
}

}  // namespace skidproof
