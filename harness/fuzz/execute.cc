// The steps of a case, one after the other, each judged as it is done.
#include "harness/fuzz/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "harness/fuzz/predictor.h"
#include "harness/fuzz/registers.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/names.h"
#include "pebs/arch/reserved.h"

namespace skidproof::fuzz {

using namespace arch;

namespace {

constexpr size_t kPage = 4096;
// Room in front of the PEBS buffer and behind its maximum that must stay as it is. The buffer begins with
// a page, as one of a page at the most does where more is not safe.
constexpr size_t kFront = kPage;
constexpr size_t kBehind = 4096;
constexpr std::byte kFill{0xA5};

Violation violation_anywhere(Check check, const Clause& clause, std::string expected,
                             std::string seen) {
  return {.check = check,
          .clause = &clause,
          .step = 0,
          .expected = std::move(expected),
          .seen = std::move(seen)};
}

// The clause that says what a register takes and keeps.
const Clause& clause_of(uint32_t msr, bool absent) {
  if (absent) return msr >= IA32_A_PMC0 ? clause::M7 : clause::M10;
  if (msr >= IA32_A_PMC0 && msr < IA32_A_PMC0 + 8) return clause::M8;
  if (msr >= IA32_PMC0 && msr < IA32_PMC0 + 8) return clause::M6;
  if (msr >= IA32_PERFEVTSEL0 && msr < IA32_PERFEVTSEL0 + 8) return clause::M9;
  switch (msr) {
    case IA32_FIXED_CTR_CTRL:
      return clause::M17;
    case IA32_PERF_GLOBAL_STATUS:
      return clause::M14;
    case IA32_PERF_GLOBAL_CTRL:
      return clause::M12;
    case IA32_PERF_GLOBAL_OVF_CTRL:
      return clause::M15;
    case IA32_PEBS_ENABLE:
      return clause::M20;
    case MSR_PEBS_LD_LAT_THRESHOLD:
      return clause::M22;
    case IA32_DS_AREA:
      return clause::M23;
    case IA32_DEBUGCTL:
      return clause::M24;
    case IA32_X2APIC_LVT_PMI:
      return clause::M26;
    case IA32_PERF_CAPABILITIES:
      return clause::M5;
    default:
      return clause::M19;
  }
}

// --- Architectural PEBS: the case speaks of the DS area, and the registers say the same.

// What those registers can say: whole units, an index inside the buffer, reset values with ones above bit 31.
DebugStorePlan sayable(DebugStorePlan plan, const Microarch& m) {
  if (m.pebs_in_ds_area()) return plan;
  constexpr int64_t kUnit = pebs_index::kUnit;
  plan.maximum = std::max<int64_t>(plan.maximum, 0) / kUnit * kUnit;
  plan.index = std::clamp<int64_t>(plan.index / kUnit * kUnit, 0, plan.maximum);
  plan.threshold = (std::max<int64_t>(plan.threshold, 0) + kUnit - 1) / kUnit * kUnit;
  constexpr size_t kCounters = 8;
  plan.resets.resize(std::max(plan.resets.size(), kCounters));
  for (uint64_t& reset : plan.resets) reset |= ~cfg_c::kReload;
  return plan;
}

// Every counter records the same groups.
constexpr uint64_t kGroups = cfg_c::kAux | cfg_c::kGprs;

// One execution of one case.
class Execution {
 public:
  Execution(Machine& machine, const Case& c, Tracer& tracer)
      : machine_(machine),
        case_(c),
        tracer_(tracer),
        uarch_(*machine.identity().microarch),
        plan_(sayable(c.ds, uarch_)),
        registers_(uarch_, (machine.cpuid(0xA, 0).eax >> 8) & 0xFF),
        predictor_(registers_, plan_, case_.code) {}

  Expected<Outcome> run();

 private:
  using Finding = std::optional<Violation>;

  Finding check_enumeration();
  Expected<void> check_buffer() const;
  Expected<void> prepare();
  Expected<void> quiesce();
  void write_ds_area();
  Expected<void> place_ds_area();
  Expected<Finding> steps();
  Expected<Finding> step(const Step& step);
  Expected<Finding> write(uint32_t msr, uint64_t value);
  Expected<Finding> run_program(const Step& step);
  RunPlan plan_of(const Step& step) const;
  Finding compare(uint32_t msr);
  Finding compare_all();
  Expected<Finding> compare_rdpmc();
  Expected<Finding> compare_one_rdpmc(const CounterRead& read, std::optional<uint64_t> expected);
  Finding check_memory(uint64_t before, uint64_t after);
  Records records(uint64_t before, uint64_t after) const;
  bool whole_records(uint64_t before, uint64_t after) const;
  void take_over(const Observation& seen);

  uint64_t field(uint32_t offset) const {
    uint64_t value = 0;
    std::memcpy(&value, ds_.host.data() + offset, uarch_.ds.field_bytes);
    return value;
  }
  void set_field(uint32_t offset, uint64_t value) {
    std::memcpy(ds_.host.data() + offset, &value, uarch_.ds.field_bytes);
    std::memcpy(ds_image_.data() + offset, &value, uarch_.ds.field_bytes);
  }
  uint64_t base() const { return buffer_.address + front_; }
  uint64_t index() const;
  Expected<void> set_index(uint64_t address);
  Expected<void> prepare_registers();
  Expected<void> enable_pebs(uint64_t enable);

  Machine& machine_;
  const Case& case_;
  Tracer& tracer_;
  const Microarch& uarch_;
  const DebugStorePlan plan_;  // the case's
  RegisterFile registers_;
  Predictor predictor_;
  Program program_;
  Memory code_, data_, ds_, buffer_;
  size_t front_ = kFront;                           // of the buffer in its block
  unsigned pages_shift_ = 0;                        // architectural PEBS: SIZE
  std::vector<std::byte> ds_image_, buffer_image_;  // what must stand there
  Tally tally_;
};

// --- Before the first step

Execution::Finding Execution::check_enumeration() {
  const Machine::CpuidResult leaf = machine_.cpuid(0xA, 0);
  const unsigned gp = leaf.eax >> 8 & 0xFF;
  const bool fewer = gp == uarch_.gp_counters;
  const bool more = gp == uarch_.gp_counters_alone && !machine_.identity().sibling_thread;
  if (!fewer && !more) {
    return violation_anywhere(Check::kAccess, clause::M1,
                              fmt::format("{} counters", uarch_.gp_counters),
                              fmt::format("CPUID.0AH reports {}", gp));
  }
  if ((leaf.edx & 0x1F) != uarch_.fixed_counters) {
    return violation_anywhere(Check::kAccess, clause::M3,
                              fmt::format("{} fixed counters", uarch_.fixed_counters),
                              fmt::format("CPUID.0AH reports {}", leaf.edx & 0x1F));
  }
  const uint64_t misc = machine_.rdmsr(IA32_MISC_ENABLE).value_or(misc_enable::kPebsUnavailable);
  if ((misc & misc_enable::kPebsUnavailable) != 0) {
    return violation_anywhere(Check::kRegisters, clause::M25,
                              "IA32_MISC_ENABLE[12] clear: PEBS is there",
                              fmt::format("{:#x}", misc));
  }
  return {};
}

// Everything off and zero, whatever this machine was used for before. What it refuses here is found when
// registers are compared.
Expected<void> Execution::quiesce() {
  SKIDPROOF_CHECK(machine_.wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
  SKIDPROOF_CHECK(enable_pebs(0));
  for (unsigned n = 0; n < registers_.gp_counters(); ++n) {
    static_cast<void>(machine_.wrmsr(IA32_PERFEVTSEL0 + n, 0));
    static_cast<void>(machine_.wrmsr(IA32_PMC0 + n, 0));
  }
  for (unsigned i = 0; i < registers_.fixed_counters(); ++i) {
    static_cast<void>(machine_.wrmsr(IA32_FIXED_CTR0 + i, 0));
  }
  for (uint32_t msr : {IA32_FIXED_CTR_CTRL, MSR_PEBS_LD_LAT_THRESHOLD, MSR_PEBS_DATA_CFG}) {
    static_cast<void>(machine_.wrmsr(msr, 0));  // where there are such
  }
  const uint64_t status = machine_.rdmsr(IA32_PERF_GLOBAL_STATUS).value_or(0);
  static_cast<void>(machine_.wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, status));
  SKIDPROOF_CHECK(machine_.wrmsr(IA32_X2APIC_LVT_PMI, kResetLvt));
  SKIDPROOF_CHECK(place_ds_area());
  if (uarch_.architectural_pebs()) SKIDPROOF_CHECK(prepare_registers());
  registers_.set(IA32_DEBUGCTL, SKIDPROOF_TRY(machine_.rdmsr(IA32_DEBUGCTL)));
  return {};
}

void Execution::write_ds_area() {
  ds_image_.assign(ds_.host.size(), std::byte{0});
  buffer_image_.assign(buffer_.host.size(), kFill);
  std::fill(ds_.host.begin(), ds_.host.end(), std::byte{0});
  std::fill(buffer_.host.begin(), buffer_.host.end(), kFill);
  const DsLayout& layout = uarch_.ds;
  auto at = [&](int64_t offset) { return base() + static_cast<uint64_t>(offset); };
  set_field(layout.pebs_base, base());
  set_field(layout.pebs_index, at(plan_.index));
  set_field(layout.pebs_maximum, at(plan_.maximum));
  set_field(layout.pebs_threshold, at(plan_.threshold));
  for (unsigned slot = 0; slot < std::min<size_t>(layout.resets, plan_.resets.size()); ++slot) {
    set_field(layout.reset + slot * layout.reset_stride, plan_.resets[slot]);
  }
}

// A case may come from a file, and from one of another microarch.
Expected<void> Execution::check_buffer() const {
  const size_t limit = uarch_.pebs_buffer_limit_bytes;
  const int64_t reach = std::max(plan_.maximum, plan_.index);
  if (limit == 0 || reach <= static_cast<int64_t>(limit)) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the case's PEBS buffer of {} bytes can hang {}, which takes {} safely",
                          reach, uarch_.title, limit),
              "make the case's `maximum` and `index` smaller");
}

Expected<void> Execution::prepare() {
  SKIDPROOF_CHECK(check_buffer());
  // Blocks in the same order for every case, so that a machine which allocates by a rule gives the same
  // addresses again.
  code_ = SKIDPROOF_TRY(machine_.allocate({.bytes = 4 * kPage, .use = MemoryUse::kCode}));
  data_ = SKIDPROOF_TRY(machine_.allocate({.bytes = kSequenceDataBytes, .use = MemoryUse::kData}));
  ds_ = SKIDPROOF_TRY(machine_.allocate({.bytes = kPage, .use = MemoryUse::kDebugStore}));
  const size_t reach = static_cast<size_t>(std::max(plan_.maximum, plan_.index));
  size_t bytes = kFront + reach;
  if (uarch_.architectural_pebs()) {
    // The plan's room is the last part of a power of two of pages.
    while ((kPage << pages_shift_) < bytes) ++pages_shift_;
    bytes = kPage << pages_shift_;
    front_ = bytes - static_cast<size_t>(plan_.maximum);
  }
  buffer_ = SKIDPROOF_TRY(machine_.allocate({.bytes = bytes + kBehind,
                                             .use = MemoryUse::kDebugStore,
                                             .physical = uarch_.architectural_pebs()}));
  program_ = SKIDPROOF_TRY(assemble(case_.code, code_.address, data_.address));
  if (program_.code.size() > code_.host.size()) {
    return fail(ErrorCode::kInvalidArgument, "the case's code is larger than its block");
  }
  Random random(case_.data_seed);
  for (size_t i = 0; i < data_.host.size(); i += sizeof(uint64_t)) {
    const uint64_t value = random.next();
    std::memcpy(&data_.host[i], &value, sizeof value);
  }
  SKIDPROOF_CHECK(tracer_.load(program_, data_.host));
  write_ds_area();
  return quiesce();
}

Expected<void> Execution::prepare_registers() {
  const uint64_t threshold = front_ + static_cast<uint64_t>(plan_.threshold);
  SKIDPROOF_CHECK(machine_.wrmsr(IA32_PEBS_BASE, buffer_.physical | pages_shift_));
  SKIDPROOF_CHECK(machine_.wrmsr(IA32_PEBS_INDEX,
                                 pebs_index::kEnable | pebs_index::threshold_field(threshold)));
  return set_index(base() + static_cast<uint64_t>(plan_.index));
}

uint64_t Execution::index() const {
  if (uarch_.pebs_in_ds_area()) return field(uarch_.ds.pebs_index);
  return buffer_.address + pebs_index::write_bytes(machine_.rdmsr(IA32_PEBS_INDEX).value_or(0));
}

Expected<void> Execution::set_index(uint64_t address) {
  if (uarch_.pebs_in_ds_area()) {
    set_field(uarch_.ds.pebs_index, address);
    return {};
  }
  const uint64_t word = SKIDPROOF_TRY(machine_.rdmsr(IA32_PEBS_INDEX));
  return machine_.wrmsr(IA32_PEBS_INDEX, (word & ~(pebs_index::kWrite | pebs_index::kFull)) |
                                             (address - buffer_.address));
}

// What IA32_PEBS_ENABLE says, or would say.
Expected<void> Execution::enable_pebs(uint64_t enable) {
  if (uarch_.pebs_in_ds_area()) return machine_.wrmsr(IA32_PEBS_ENABLE, enable);
  const auto each = [&](uint64_t counters, uint32_t first, unsigned shift,
                        size_t resets_from) -> Expected<void> {
    for (uint64_t rest = counters; rest != 0; rest &= rest - 1) {
      const auto n = static_cast<unsigned>(std::countr_zero(rest));
      const size_t slot = resets_from + n;
      const uint64_t reset = slot < plan_.resets.size() ? plan_.resets[slot] : 0;
      const bool on = ((enable >> (shift + n)) & 1) != 0;
      SKIDPROOF_CHECK(machine_.wrmsr(
          first + kBankStride * n, (reset & cfg_c::kReload) | (on ? kGroups | cfg_c::kEnable : 0)));
    }
    return {};
  };
  SKIDPROOF_CHECK(each(uarch_.extended.pebs_gp, IA32_PMC_GP0_CFG_C, 0, 0));
  return each(uarch_.extended.pebs_fixed, IA32_PMC_FX0_CFG_C, pebs_enable::kFixedShift,
              plan_.resets.size());
}

// --- Steps

Execution::Finding Execution::compare(uint32_t msr) {
  const std::optional<uint64_t> expected = registers_.read(msr);
  const Expected<uint64_t> read = machine_.rdmsr(msr);
  if (expected.has_value() != read.has_value()) {
    return violation_anywhere(
        Check::kAccess, clause_of(msr, !expected.has_value()),
        fmt::format("RDMSR of {} {}", msr_name(msr), expected ? "to answer" : "to raise #GP"),
        expected ? "it raised #GP" : fmt::format("it gave {:#x}", *read));
  }
  if (!expected || *expected == *read) return {};
  return violation_anywhere(Check::kRegisters, clause_of(msr, false),
                            fmt::format("{} to hold {:#x}", msr_name(msr), *expected),
                            fmt::format("{:#x}", *read));
}

Execution::Finding Execution::compare_all() {
  for (uint32_t msr : registers_.watched()) {
    if (Finding found = compare(msr)) return found;
  }
  return {};
}

// M32: RDPMC reads the same counters at full width; another index, or CPL 3 without CR4.PCE, is a #GP.
Expected<Execution::Finding> Execution::compare_one_rdpmc(const CounterRead& read,
                                                          std::optional<uint64_t> expected) {
  const Expected<uint64_t> got = machine_.rdpmc(read);
  if (!got && got.error().code == ErrorCode::kNotAvailable) return Finding{};
  if (!got && got.error().code != ErrorCode::kGeneralProtection) {
    return tl::make_unexpected(got.error());
  }
  if (got.has_value() == expected.has_value() && (!got || *got == *expected)) return Finding{};
  return Finding(violation_anywhere(
      Check::kAccess, clause::M32,
      fmt::format("RDPMC of {:#x} at CPL {}{} {}", read.index, read.ring == Ring::kUser ? 3 : 0,
                  read.cr4_pce ? "" : " with CR4.PCE clear",
                  expected ? fmt::format("to give {:#x}", *expected) : "to raise #GP"),
      got ? fmt::format("it gave {:#x}", *got) : "it raised #GP"));
}

Expected<Execution::Finding> Execution::compare_rdpmc() {
  constexpr uint32_t kFixed = uint32_t{1} << 30;
  const unsigned gp = registers_.gp_counters();
  const unsigned fixed = registers_.fixed_counters();
  Finding found;
  for (unsigned n = 0; n < gp && !found; ++n) {
    found = SKIDPROOF_TRY(compare_one_rdpmc({.index = n}, registers_.at(IA32_PMC0 + n)));
  }
  // Leaf 23H may list counters that leaf 0AH does not.
  const unsigned absent = std::max(gp, static_cast<unsigned>(std::bit_width(uarch_.extended.gp)));
  if (!found) found = SKIDPROOF_TRY(compare_one_rdpmc({.index = absent}, std::nullopt));
  for (unsigned i = 0; i < fixed && !found; ++i) {
    found = SKIDPROOF_TRY(compare_one_rdpmc({.index = kFixed + i, .ring = Ring::kUser},
                                            registers_.at(IA32_FIXED_CTR0 + i)));
  }
  if (!found) {
    found = SKIDPROOF_TRY(
        compare_one_rdpmc({.index = 0, .ring = Ring::kUser, .cr4_pce = false}, std::nullopt));
  }
  return found;
}

Expected<Execution::Finding> Execution::write(uint32_t msr, uint64_t value) {
  const bool accepts = registers_.accepts(msr, value);
  const bool elsewhere = msr == IA32_PEBS_ENABLE && uarch_.architectural_pebs();
  if (elsewhere && !accepts) return Finding{};  // no register says that
  const Expected<void> written = elsewhere ? enable_pebs(value) : machine_.wrmsr(msr, value);
  if (!written && written.error().code != ErrorCode::kGeneralProtection) {
    return tl::make_unexpected(written.error());
  }
  ++tally_.writes;
  tally_.refused += !accepts;
  if (written.has_value() != accepts) {
    return violation_anywhere(Check::kAccess, clause_of(msr, !registers_.read(msr).has_value()),
                              fmt::format("WRMSR of {:#x} to {} {}", value, msr_name(msr),
                                          accepts ? "to be taken" : "to raise #GP"),
                              accepts ? "it raised #GP" : "it was taken");
  }
  if (accepts) {
    registers_.write(msr, value);
    predictor_.wrote(msr);
  }
  if (elsewhere) return Finding{};
  // A refused write changes nothing; compare_all() looks at the other registers.
  Finding found = compare(msr == IA32_PERF_GLOBAL_OVF_CTRL ? IA32_PERF_GLOBAL_STATUS : msr);
  if (!found && accepts && msr == IA32_DS_AREA) SKIDPROOF_CHECK(place_ds_area());
  return found;
}

// An address that was written to see whether it is taken is none of memory that the case owns.
Expected<void> Execution::place_ds_area() {
  SKIDPROOF_CHECK(machine_.wrmsr(IA32_DS_AREA, ds_.address));
  registers_.write(IA32_DS_AREA, ds_.address);
  return {};
}

RunPlan Execution::plan_of(const Step& step) const {
  RunPlan plan;
  plan.iterations = step.iterations;
  plan.enable = {{IA32_PERF_GLOBAL_CTRL, step.value}};
  plan.disable = {{IA32_PERF_GLOBAL_CTRL, 0}};
  plan.read.push_back(IA32_PERF_GLOBAL_STATUS);
  for (unsigned n = 0; n < registers_.gp_counters(); ++n) plan.read.push_back(IA32_PMC0 + n);
  for (unsigned i = 0; i < registers_.fixed_counters(); ++i) {
    plan.read.push_back(IA32_FIXED_CTR0 + i);
  }
  plan.pmi = {.unmask = step.unmask, .clear_status = step.clear_status};
  plan.ring = step.user ? Ring::kUser : Ring::kKernel;
  if (uarch_.architectural_pebs()) {
    plan.pebs_buffer_address = buffer_.address;
    return plan;
  }
  plan.pebs_index_address = ds_.address + uarch_.ds.pebs_index;
  plan.pebs_base_address = ds_.address + uarch_.ds.pebs_base;
  return plan;
}

// The records between two indices, which lie inside the buffer.
Records Execution::records(uint64_t before, uint64_t after) const {
  const auto first = static_cast<size_t>(after == before ? 0 : before - buffer_.address);
  return {
      std::span<const std::byte>(buffer_.host).subspan(first, static_cast<size_t>(after - before)),
      uarch_.record};
}

// Of a fixed layout, or of the size that each of them states and that its groups have.
bool Execution::whole_records(uint64_t before, uint64_t after) const {
  const Records all = records(before, after);
  if (all.remainder_bytes() != 0) return false;
  if (!uarch_.record->adaptive() || uarch_.architectural_pebs()) return true;
  return std::all_of(all.begin(), all.end(), [](const Record& record) {
    return record.bytes().size() == adaptive::size_field(record.header());
  });
}

// No byte changed but the index and the new records.
Execution::Finding Execution::check_memory(uint64_t before, uint64_t after) {
  const uint64_t moved = after - before;
  const uint64_t maximum = base() + static_cast<uint64_t>(plan_.maximum);
  const bool sane = moved == 0 || (after > before && before >= base() && after <= maximum);
  if (!sane || !whole_records(before, after)) {
    return violation_anywhere(Check::kIndex, sane ? clause::D2 : clause::R48,
                              "the PEBS index to move by whole records up to the maximum",
                              fmt::format("it moved by {} bytes from {} with the maximum at {}",
                                          static_cast<int64_t>(moved),
                                          static_cast<int64_t>(before - base()), plan_.maximum));
  }
  if (uarch_.pebs_in_ds_area()) {
    std::memcpy(ds_image_.data() + uarch_.ds.pebs_index, &after, uarch_.ds.field_bytes);
  }
  for (size_t i = 0; i < ds_image_.size(); ++i) {
    if (ds_image_[i] == ds_.host[i]) continue;
    return violation_anywhere(Check::kMemory, clause::D2,
                              "no field of the DS area but the index to change",
                              fmt::format("the byte at {:X}H did", i));
  }
  const size_t first = moved == 0 ? 0 : before - buffer_.address;
  std::copy_n(buffer_.host.begin() + static_cast<ptrdiff_t>(first), moved,
              buffer_image_.begin() + static_cast<ptrdiff_t>(first));
  if (std::memcmp(buffer_image_.data(), buffer_.host.data(), buffer_image_.size()) == 0) return {};
  const auto differ =
      std::mismatch(buffer_image_.begin(), buffer_image_.end(), buffer_.host.begin()).first;
  const auto where = differ - buffer_image_.begin() - static_cast<ptrdiff_t>(front_);
  return violation_anywhere(
      Check::kMemory, where >= plan_.maximum ? clause::R48 : clause::D2,
      "no byte outside the new records to change",
      fmt::format("the byte at {} of the buffer did; the maximum is {}", where, plan_.maximum));
}

void Execution::take_over(const Observation& seen) {
  registers_.set(IA32_PERF_GLOBAL_STATUS, seen.status);
  for (unsigned n = 0; n < seen.counters.size(); ++n) {
    registers_.set(IA32_PMC0 + n, seen.counters[n]);
  }
  for (unsigned i = 0; i < seen.fixed.size(); ++i) {
    registers_.set(IA32_FIXED_CTR0 + i, seen.fixed[i]);
  }
  registers_.set(IA32_X2APIC_LVT_PMI, seen.lvt);
  registers_.set(IA32_PERF_GLOBAL_CTRL, 0);
}

Expected<Execution::Finding> Execution::run_program(const Step& step) {
  if (Finding found = compare_all()) return found;
  if (!registers_.accepts(IA32_PERF_GLOBAL_CTRL, step.value)) {
    return fail(ErrorCode::kInvalidArgument, "a run's GLOBAL_CTRL has reserved bits",
                "write it as a step of its own");
  }
  const uint64_t before = index();
  Expected<RunLog> log = machine_.run(program_, plan_of(step));
  if (!log && log.error().code == ErrorCode::kGeneralProtection) {
    return violation_anywhere(Check::kAccess, clause::M12, "the run's registers to be taken",
                              log.error().message);
  }
  if (!log) return tl::make_unexpected(log.error());
  const Trace* trace = SKIDPROOF_TRY(tracer_.run(step.iterations));
  ++tally_.runs;
  tally_.instructions += trace->retired.size();
  tally_.interrupts += log->pmis.size();

  const uint64_t after = index();
  if (Finding found = check_memory(before, after)) return found;
  Observation seen{.records = records(before, after),
                   .status = log->read[0],
                   .counters = {},
                   .fixed = {},
                   .pmis = log->pmis,
                   .lvt = SKIDPROOF_TRY(machine_.rdmsr(IA32_X2APIC_LVT_PMI)),
                   .index = static_cast<int64_t>(after - base())};
  const auto counters = log->read.begin() + 1;
  const auto fixed = counters + static_cast<ptrdiff_t>(registers_.gp_counters());
  seen.counters.assign(counters, fixed);
  seen.fixed.assign(fixed, log->read.end());
  tally_.records += seen.records.size();
  Finding found = predictor_.judge(step, *trace, seen, base());
  tally_.exact_records += predictor_.exact_records();
  tally_.exact_runs += predictor_.exact();
  take_over(seen);
  return found;
}

Expected<Execution::Finding> Execution::step(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kWrite:
      return write(step.msr, step.value);
    case Step::Kind::kRewind:
      SKIDPROOF_CHECK(set_index(base()));
      predictor_.rewound();
      return Finding{};
    case Step::Kind::kRun:
      return run_program(step);
  }
  return Finding{};
}

Expected<Execution::Finding> Execution::steps() {
  if (Finding found = check_enumeration()) return found;
  for (size_t i = 0; i < case_.steps.size(); ++i) {
    Finding found = SKIDPROOF_TRY(step(case_.steps[i]));
    if (!found) continue;
    found->step = i;
    return found;
  }
  Finding found = compare_all();
  if (!found) found = SKIDPROOF_TRY(compare_rdpmc());
  if (found) found->step = case_.steps.empty() ? 0 : case_.steps.size() - 1;
  return found;
}

Expected<Outcome> Execution::run() {
  SKIDPROOF_CHECK(prepare());
  ++tally_.cases;
  Outcome outcome;
  outcome.violation = SKIDPROOF_TRY(steps());
  outcome.tally = tally_;
  SKIDPROOF_CHECK(machine_.wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
  SKIDPROOF_CHECK(enable_pebs(0));
  return outcome;
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  cases += other.cases;
  runs += other.runs;
  exact_runs += other.exact_runs;
  instructions += other.instructions;
  records += other.records;
  exact_records += other.exact_records;
  writes += other.writes;
  refused += other.refused;
  interrupts += other.interrupts;
  return *this;
}

Expected<std::unique_ptr<Executor>> Executor::create(const Microarch& microarch) {
  auto tracer = SKIDPROOF_TRY(Tracer::create(microarch));
  return std::unique_ptr<Executor>(new Executor(microarch, std::move(tracer)));
}

Expected<Program> Executor::program_of(const Case& c, uint64_t code_address) {
  return assemble(c.code, code_address, code_address + 0x10000);
}

Expected<Outcome> Executor::run(Machine& machine, const Case& c) {
  const Identity& who = machine.identity();
  if (!who.pmu || who.microarch != &microarch_) {
    return fail(ErrorCode::kNotAvailable, fmt::format("{} has no PMU to be fuzzed", who.name),
                "use a machine with a PMU, for example --machine model:sandy-bridge");
  }
  return Execution(machine, c, *tracer_).run();
}

}  // namespace skidproof::fuzz
