// Sessions against a machine that only remembers: what is written, in which order, and what is put back.
#include "pebs/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <span>

#include "kernels/kernel.h"
#include "pebs/arch/msr.h"
#include "pebs/engines/model_machine.h"

namespace skidproof {
namespace {

using namespace arch;
using ::testing::ElementsAre;
using ::testing::Field;

const Microarch& row(std::string_view name) { return **find_microarch(name); }

// Stores every MSR, refuses those of `refused`, and keeps the last plan.
class RememberingMachine : public Machine {
 public:
  explicit RememberingMachine(const Microarch* microarch) {
    identity_.name = "remembering";
    identity_.microarch = microarch;
    identity_.pmu = microarch != nullptr;
    identity_.sibling_thread = true;
  }
  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t, uint32_t) const override { return {}; }
  Expected<uint64_t> rdmsr(uint32_t msr) override { return msrs[msr]; }
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override {
    if (refused.count(msr) != 0) return fail(ErrorCode::kGeneralProtection, "refused");
    writes.push_back({msr, value});
    msrs[msr] = value;
    return {};
  }
  Expected<Memory> allocate(const MemoryRequest& request) override {
    asked_for_physical |= request.physical;
    auto bytes = std::make_shared<std::vector<std::byte>>(request.bytes);
    return Memory{
        .host = *bytes, .address = reinterpret_cast<uint64_t>(bytes->data()), .keep = bytes};
  }
  Expected<RunLog> run(const Program&, const RunPlan& plan) override {
    last_plan = plan;
    RunLog log;
    log.read.assign(plan.read.size(), 7);
    return log;
  }

  std::map<uint32_t, uint64_t> msrs;
  std::set<uint32_t> refused;
  std::vector<MsrWrite> writes;
  RunPlan last_plan;
  bool asked_for_physical = false;

 private:
  Identity identity_;
};

SessionPlan stores_on_pmc2(uint64_t period) {
  return {.counters = {CounterSetup::of(2, *row("sandy-bridge").event(0xD0, 0x82), period)},
          .buffer_records = 10,
          .threshold_records = 4};
}

TEST(Session, NeedsAPmu) {
  RememberingMachine machine(nullptr);
  auto session = Session::open(machine, stores_on_pmc2(100));
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kNotAvailable);
  EXPECT_FALSE(session.error().advice.empty());
}

TEST(Session, EnablesGlobalCtrlLastAndDisablesItFirst) {
  RememberingMachine machine(&row("sandy-bridge"));
  auto session = Session::open(machine, stores_on_pmc2(100));
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->run({}, 1));
  const RunPlan& plan = machine.last_plan;
  EXPECT_EQ(plan.enable.back(), (MsrWrite{IA32_PERF_GLOBAL_CTRL, bit(2)}));
  EXPECT_EQ(plan.enable[plan.enable.size() - 2], (MsrWrite{IA32_PEBS_ENABLE, bit(2)}));
  EXPECT_EQ(plan.disable.front(), (MsrWrite{IA32_PERF_GLOBAL_CTRL, 0}));
  // While the session programmes, nothing counts.
  for (const MsrWrite& w : machine.writes) {
    if (w.msr == IA32_PERF_GLOBAL_CTRL) {
      EXPECT_EQ(w.value, 0);
    }
  }
}

TEST(Session, WritesTheDebugStoreArea) {
  RememberingMachine machine(&row("sandy-bridge"));
  auto session = Session::open(machine, stores_on_pmc2(100));
  ASSERT_TRUE(session);
  EXPECT_EQ(machine.msrs[IA32_DS_AREA], session->ds_address());
  EXPECT_EQ(session->index(), session->base());
  EXPECT_EQ(session->maximum(), session->base() + 10 * 0xB0);
  EXPECT_EQ(session->threshold(), session->base() + 4 * 0xB0);
  EXPECT_EQ(session->reset_slot(2), 0xFFFFFFFFFF9C);
  EXPECT_EQ(session->reset_slot(1), 0);
  EXPECT_EQ(session->records().size(), 0);
  for (std::byte b : session->after_index()) ASSERT_EQ(b, Session::kFill);
}

TEST(Session, WithoutAThresholdNoIndexReachesIt) {
  RememberingMachine machine(&row("sandy-bridge"));
  SessionPlan plan = stores_on_pmc2(100);
  plan.threshold_records.reset();
  auto session = Session::open(machine, plan);
  ASSERT_TRUE(session);
  EXPECT_GT(session->threshold(), session->maximum());
}

TEST(Session, TakesTheAliasThatCarriesTheValue) {
  RememberingMachine machine(&row("sandy-bridge"));
  for (auto [initial, msr] :
       {std::pair{uint64_t{0xFFFFFFFFFF9C}, IA32_PMC0}, std::pair{uint64_t{0x7FFFFFFF}, IA32_PMC0},
        std::pair{uint64_t{0x80000000}, IA32_A_PMC0},
        std::pair{uint64_t{0x800000000000}, IA32_A_PMC0}}) {
    SessionPlan plan = stores_on_pmc2(1);
    plan.counters[0].initial = initial;
    auto session = Session::open(machine, plan);
    ASSERT_TRUE(session && session->run({}, 1));
    EXPECT_THAT(machine.last_plan.enable, ::testing::Contains(MsrWrite{msr + 2, initial}));
  }
}

TEST(Session, RestoresEveryMsrThatItChanged) {
  RememberingMachine machine(&row("sandy-bridge"));
  for (uint32_t msr :
       {IA32_PERFEVTSEL0 + 2, IA32_A_PMC0 + 2, IA32_PMC0 + 2, IA32_FIXED_CTR_CTRL, IA32_DEBUGCTL,
        IA32_DS_AREA, IA32_PEBS_ENABLE, IA32_X2APIC_LVT_PMI, IA32_PERF_GLOBAL_CTRL}) {
    machine.msrs[msr] = 0x1000 + msr;
  }
  auto before = machine.msrs;
  {
    auto session = Session::open(machine, stores_on_pmc2(100));
    ASSERT_TRUE(session);
  }
  before[IA32_A_PMC0 + 2] = before[IA32_PMC0 + 2];  // one counter, restored at full width
  before.emplace(IA32_PERF_GLOBAL_STATUS, 0);       // only read
  before.emplace(IA32_MISC_ENABLE, 0);              // likewise
  EXPECT_EQ(machine.msrs, before);
}

TEST(Session, ARefusedWriteIsAnErrorAndLeavesNoTrace) {
  RememberingMachine machine(&row("sandy-bridge"));
  machine.msrs[IA32_DS_AREA] = 0x1234;
  machine.refused = {IA32_PERFEVTSEL0 + 2};
  auto session = Session::open(machine, stores_on_pmc2(100));
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kGeneralProtection);
  EXPECT_EQ(machine.msrs[IA32_DS_AREA], 0x1234);
}

// Which bits of OVF_CTRL exist differs from part to part; one that does not is #GP in every test.
TEST(Session, ClearsOfTheStatusWhatIsSetAndNothingElse) {
  RememberingMachine machine(&row("skylake"));
  auto session = Session::open(machine, stores_on_pmc2(100));
  ASSERT_TRUE(session);
  for (uint64_t left : {uint64_t{0}, bit(2), status::kOvfBuffer | status::kAsci | bit(33)}) {
    machine.msrs[IA32_PERF_GLOBAL_STATUS] = left;
    ASSERT_TRUE(session->run({}, 1));
    EXPECT_THAT(machine.last_plan.enable,
                ::testing::Contains(MsrWrite{IA32_PERF_GLOBAL_OVF_CTRL, left}));
    ASSERT_TRUE(session->resume({}, 1));
    EXPECT_THAT(
        machine.last_plan.enable,
        ::testing::Not(::testing::Contains(Field(&MsrWrite::msr, IA32_PERF_GLOBAL_OVF_CTRL))));
  }
  ASSERT_TRUE(session->close());
  EXPECT_EQ(machine.msrs[IA32_PERF_GLOBAL_OVF_CTRL], status::kOvfBuffer | status::kAsci | bit(33));
}

// A Core 2 hangs with more than a page. [Linux 6.12 ds.c]
TEST(Session, KeepsTheBufferInsideWhatTheMicroarchTakes) {
  RememberingMachine machine(&row("core2"));
  SessionPlan plan;
  plan.counters = {CounterSetup::of(0, *row("core2").event(0xC0, 0x00), 100)};
  auto session = Session::open(machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(session->maximum() - session->base(), 28u * 0x90);
  ASSERT_TRUE(session->close());
  plan.buffer_records = 29;
  const auto refused = Session::open(machine, plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotAvailable);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("4176 bytes can hang Core 2"));
  EXPECT_THAT(refused.error().advice, ::testing::HasSubstr("28 records"));
  plan.maximum_records = 28;  // what lies behind the maximum the processor does not know of
  EXPECT_TRUE(Session::open(machine, plan));
  RememberingMachine other(&row("nehalem"));
  plan.maximum_records.reset();
  EXPECT_TRUE(Session::open(other, plan));
}

// LD_BLOCKS.STORE_FORWARD beside load latency, on a counter that the plan leaves free.
TEST(Session, CountsTheAuxiliaryEventOfLoadLatency) {
  const Microarch& m = row("sapphire-rapids");
  const Event& latency = *m.event(0xCD, 0x01);
  RememberingMachine machine(&m);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(1, latency, 100)};
  {
    auto session = Session::open(machine, plan);
    ASSERT_TRUE(session) << session.error().text();
    EXPECT_EQ(machine.msrs[IA32_PERFEVTSEL0] & 0xFFFF, 0x8203u);
    EXPECT_NE(machine.msrs[IA32_PERFEVTSEL0] & evtsel::kEnable, 0u);
    ASSERT_TRUE(session->run({}, 1));
    EXPECT_EQ(machine.last_plan.enable.back(), (MsrWrite{IA32_PERF_GLOBAL_CTRL, bit(0) | bit(1)}));
    EXPECT_THAT(machine.last_plan.enable, ::testing::Contains(MsrWrite{IA32_PEBS_ENABLE, bit(1)}));
  }
  EXPECT_EQ(machine.msrs[IA32_PERFEVTSEL0], 0u) << "restored";
  for (unsigned n : {0U, 2U, 3U}) {
    plan.counters.push_back(CounterSetup::of(n, *m.event(0xC4, 0x00), 100, false));
  }
  const auto none_free = Session::open(machine, plan);
  ASSERT_FALSE(none_free);
  EXPECT_EQ(none_free.error().code, ErrorCode::kNotAvailable);
  // Nobody else needs one.
  RememberingMachine lake(&row("ice-lake"));
  plan.counters = {CounterSetup::of(1, *row("ice-lake").event(0xCD, 0x01), 100)};
  ASSERT_TRUE(Session::open(lake, plan));
  EXPECT_EQ(lake.msrs.count(IA32_PERFEVTSEL0), 0u);
}

// Plays one row and calls itself another.
class Misnamed final : public Machine {
 public:
  Misnamed(std::unique_ptr<Machine> machine, const Microarch& name)
      : machine_(std::move(machine)), identity_(machine_->identity()) {
    identity_.microarch = &name;
  }
  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override {
    return machine_->cpuid(leaf, subleaf);
  }
  Expected<uint64_t> rdmsr(uint32_t msr) override { return machine_->rdmsr(msr); }
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override {
    return machine_->wrmsr(msr, value);
  }
  Expected<Memory> allocate(const MemoryRequest& request) override {
    return machine_->allocate(request);
  }
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    return machine_->run(program, plan);
  }

 private:
  const std::unique_ptr<Machine> machine_;
  Identity identity_;
};

// Redwood Cove's three differences from Golden Cove, on a machine whose row says Golden Cove: the
// processor is asked, and its fixed counters' reset values stand at 140H.
TEST(Session, TakesTheFormatThatTheMachineReports) {
  Microarch redwood = row("sapphire-rapids");
  redwood.record = &kRecordFormat5;
  redwood.ds = kDsThirtyTwoResets;
  redwood.pebs_timing_info = true;
  Misnamed machine(engines::make_model_machine(redwood, {}).value(), row("sapphire-rapids"));
  const Kernel& kernel = **find_kernel("sparse_event");
  Params params = Params::parse(kernel.parameters, "event=store").value();
  Memory code = machine.allocate({.bytes = 65536, .use = MemoryUse::kCode}).value();
  Memory data = machine.allocate({.bytes = 4096}).value();
  Program program = generate(kernel, params, {code.address, data.address, 1}).value();
  SessionPlan plan;
  plan.buffer_records = 100;
  plan.fixed = {{.counter = 0, .pebs = true, .period = 300}};
  auto session = Session::open(machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  const std::span<const std::byte> ds = session->ds_bytes();
  uint64_t at_140 = 0, at_80 = 0;
  std::memcpy(&at_140, ds.data() + 0x140, sizeof at_140);
  std::memcpy(&at_80, ds.data() + 0x80, sizeof at_80);
  EXPECT_EQ(at_140, minus_period(300, 48));
  EXPECT_EQ(at_80, 0u);
  auto run = session->run(program, 2000);
  ASSERT_TRUE(run) << run.error().text();
  ASSERT_GT(session->records().size(), 50u) << "reloaded from its own slot";
  uint64_t retire = 0;
  for (Record r : session->records()) retire += r.retire_latency();
  EXPECT_GT(retire, 0u);
}

// On the model: the whole way from a kernel to records.
TEST(Session, DrainsRecordsInPlace) {
  auto machine = engines::make_model_machine(row("sandy-bridge"), {});
  ASSERT_TRUE(machine) << machine.error().text();
  const Kernel& kernel = **find_kernel("sparse_event");
  Params params = Params::parse(kernel.parameters, "event=store").value();
  Memory code = (*machine)->allocate({.bytes = 65536, .use = MemoryUse::kCode}).value();
  Memory data = (*machine)->allocate({.bytes = 4096}).value();
  Program program = generate(kernel, params, {code.address, data.address, 1}).value();
  SessionPlan plan = stores_on_pmc2(9);
  plan.buffer_records = 200;
  plan.threshold_records = 50;
  auto session = Session::open(**machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  auto run = session->run(program, 1000);
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(session->records().size(), 100);  // each takes nine events and the one that triggers
  for (Record r : session->records()) EXPECT_EQ(r.ip(), program.mark("after"));
  EXPECT_EQ(run->counters[0], session->reset_slot(2));
  EXPECT_FALSE(run->log.pmis.empty());
  uint64_t at_threshold = session->base() + 50 * 0xB0;
  EXPECT_GE(run->log.pmis.front().pebs_index, at_threshold);
  session->rewind();
  EXPECT_TRUE(session->records().empty());
}

// The LBR stack records around the program alone, and is read in order.
TEST(Session, RecordsTheLastBranchesUntilAnInterrupt) {
  RememberingMachine machine(&row("sandy-bridge"));
  SessionPlan plan = stores_on_pmc2(100);
  plan.last_branches_until_pmi = true;
  machine.msrs[MSR_LBR_SELECT] = 0x1FF;
  {
    auto session = Session::open(machine, plan);
    ASSERT_TRUE(session) << session.error().text();
    EXPECT_EQ(machine.msrs[MSR_LBR_SELECT], 0u) << "every branch";
    EXPECT_EQ(machine.msrs[IA32_DEBUGCTL], debugctl::kFreezeLbrsOnPmi) << "none yet";
    ASSERT_TRUE(session->run({}, 1));
    const auto& enable = machine.last_plan.enable;
    const MsrWrite on{IA32_DEBUGCTL, debugctl::kFreezeLbrsOnPmi | debugctl::kLbr};
    ASSERT_GE(enable.size(), 2u);
    EXPECT_EQ(enable[enable.size() - 2], on) << "right before GLOBAL_CTRL";
    const MsrWrite off{IA32_DEBUGCTL, debugctl::kFreezeLbrsOnPmi};
    EXPECT_EQ(machine.last_plan.disable.back(), off);

    machine.msrs[MSR_LASTBRANCH_TOS] = 1;
    for (uint32_t i = 0; i < 16; ++i) {
      machine.msrs[0x680 + i] = bit(63) | (0x7000 + i);  // mispredicted
      machine.msrs[0x6C0 + i] = 0xFFFF'8000'0000'0000 + i;
    }
    const std::vector<LastBranch> last = session->last_branches().value();
    ASSERT_EQ(last.size(), 16u);
    EXPECT_EQ(last[0].from, 0x7001u);
    EXPECT_EQ(last[1].from, 0x7000u);
    EXPECT_EQ(last[2].from, 0x700Fu);
    EXPECT_EQ(last[15].from, 0x7002u);
    EXPECT_EQ(last[0].to, 0xFFFF'8000'0000'0001u);
  }
  EXPECT_EQ(machine.msrs[MSR_LBR_SELECT], 0x1FFu);
  EXPECT_EQ(machine.msrs[IA32_DEBUGCTL], 0u);
}

TEST(Session, RecordsArchitecturalLastBranchesByTheirOwnRegister) {
  RememberingMachine machine(&row("sapphire-rapids"));
  SessionPlan plan;
  plan.last_branches_until_pmi = true;
  plan.fixed = {{.counter = 0, .interrupt = true, .period = 100}};
  auto session = Session::open(machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(machine.msrs[MSR_ARCH_LBR_CTL] & lbr_ctl::kEnable, lbr_ctl::kEnable);
  EXPECT_EQ(machine.msrs[IA32_DEBUGCTL], debugctl::kFreezeLbrsOnPmi);
  machine.msrs[0x1500] = 0x1234;
  EXPECT_EQ(session->last_branches().value().front().from, 0x1234u);
  ASSERT_TRUE(session->close());
  EXPECT_EQ(machine.msrs[MSR_ARCH_LBR_CTL], 0u);
}

// 32-bit code: what the DS area holds lies below 4 GiB, and a program of another mode is refused.
TEST(Session, SamplesPrograms32BitWide) {
  auto machine = engines::make_model_machine(row("sandy-bridge"), {});
  ASSERT_TRUE(machine) << machine.error().text();
  const Kernel& kernel = **find_kernel("sparse_event");
  Params params = Params::parse(kernel.parameters, "event=store").value();
  MemoryRequest request{.bytes = 65536, .use = MemoryUse::kCode, .below_4g = true};
  Memory code = (*machine)->allocate(request).value();
  Memory data = (*machine)->allocate({.bytes = 4096, .below_4g = true}).value();
  Placement placement{code.address, data.address, 1, Mode::kProtected32};
  Program program = generate(kernel, params, placement).value();
  SessionPlan plan = stores_on_pmc2(9);
  plan.mode = Mode::kProtected32;
  plan.buffer_records = 200;
  auto session = Session::open(**machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  auto run = session->run(program, 1000);
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_EQ(session->records().size(), 100);
  EXPECT_LT(session->maximum(), uint64_t{1} << 32);
  for (Record r : session->records()) EXPECT_EQ(r.gpr(Gpr::kRsi), data.address);

  plan.mode = Mode::kLong;
  auto other = Session::open(**machine, plan);
  ASSERT_TRUE(other) << other.error().text();
  EXPECT_EQ(other->run(program, 1).error().code, ErrorCode::kInvalidArgument);
}

// The last record's end is eight bytes below 4 GiB, the maximum a byte behind it; behind that stands the page at 0.
TEST(Session, PlacesABufferAtTheEndOf4GiB) {
  constexpr uint64_t kEnd = uint64_t{1} << 32;
  auto machine = engines::make_model_machine(row("netburst"), {});
  ASSERT_TRUE(machine);
  SessionPlan plan;
  plan.buffer_records = 4;
  plan.maximum_bytes = 4 * 40 + 1;
  plan.bytes_to_4g = 7;
  EXPECT_EQ(Session::open(**machine, plan).error().code, ErrorCode::kInvalidArgument)
      << "IA-32e mode goes on at 4 GiB";
  plan.mode = Mode::kProtected32;
  {
    auto session = Session::open(**machine, plan);
    ASSERT_TRUE(session) << session.error().text();
    EXPECT_EQ(session->maximum(), kEnd - 7);
    EXPECT_EQ(session->base(), kEnd - 8 - 4 * 40);
    EXPECT_EQ(session->index(), session->base());
    EXPECT_EQ(session->threshold(), kEnd - 1);
    EXPECT_EQ(session->after_index().size(), 4u * 40 + 8 + 4096);
  }
  plan.bytes_to_4g = {};
  plan.branches = BranchTraceSetup{.records = 4, .bytes_to_4g = 7};
  auto session = Session::open(**machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(session->branch_maximum(), kEnd - 7) << "four records and one byte";
  EXPECT_EQ(session->branch_base(), kEnd - 8 - 4 * 12);
  EXPECT_EQ(session->branch_threshold(), kEnd - 1);
  EXPECT_EQ(session->after_branch_index().size(), 4u * 12 + 8 + 4096);
  EXPECT_EQ(Session::open(**machine, plan).error().code, ErrorCode::kNoMemory)
      << "one buffer at a time";
  EXPECT_EQ((*machine)->allocate({.bytes = 64, .across_4g = true}).error().code,
            ErrorCode::kInvalidArgument)
      << "no program reaches it";
}

// --- Architectural PEBS

const Microarch& darkmont() { return row("clearwater-forest"); }

TEST(Session, SaysInRegistersWhatTheDsAreaHasElsewhere) {
  auto machine = engines::make_model_machine(darkmont(), {});
  ASSERT_TRUE(machine);
  Machine& m = **machine;
  SessionPlan plan;
  plan.counters = {CounterSetup::of(3, *darkmont().event("BR_INST_RETIRED.COND"), 100)};
  plan.fixed = {{.counter = 0, .pebs = true, .period = 5000, .groups = 0}};
  plan.buffer_records = 20;
  plan.threshold_records = 5;
  plan.index_bytes = 2 * 288;
  const uint64_t before = *m.rdmsr(IA32_PEBS_BASE);
  auto session = Session::open(m, plan);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(session->record_bytes(), 288u) << "header, basic, AUX, registers";
  const uint64_t base = *m.rdmsr(IA32_PEBS_BASE), index = *m.rdmsr(IA32_PEBS_INDEX);
  EXPECT_EQ(base & pebs_base::kSize, 1u) << "5760 bytes in 8192";
  const uint64_t front = 8192 - 20 * 288;
  EXPECT_EQ(pebs_index::write_bytes(index), front + 2 * 288);
  EXPECT_EQ(pebs_index::threshold_bytes(index), front + 5 * 288);
  EXPECT_NE(index & pebs_index::kEnable, 0u);
  EXPECT_EQ(session->index() - session->base(), 2u * 288);
  EXPECT_EQ(session->threshold() - session->base(), 5u * 288);
  EXPECT_EQ(session->maximum() - session->base(), 20u * 288);
  EXPECT_EQ(session->reset_slot(3), minus_period(100, 48));
  EXPECT_EQ(session->fixed_reset_slot(0), minus_period(5000, 48));
  EXPECT_EQ(*m.rdmsr(IA32_PMC_GP0_CFG_C + 4 * 3), 0u) << "until it runs";
  session->set_index(session->base());
  session->set_threshold(session->base() + 288);
  EXPECT_EQ(pebs_index::write_bytes(*m.rdmsr(IA32_PEBS_INDEX)), front);
  EXPECT_EQ(pebs_index::threshold_bytes(*m.rdmsr(IA32_PEBS_INDEX)), front + 288);
  session->set_reset_slot(3, minus_period(77, 48));
  EXPECT_EQ(session->reset_slot(3), minus_period(77, 48));
  ASSERT_TRUE(session->close());
  EXPECT_EQ(*m.rdmsr(IA32_PEBS_BASE), before);
  EXPECT_EQ(*m.rdmsr(IA32_PEBS_INDEX), 0u);
}

TEST(Session, ArchitecturalPebsIsSwitchedByCounter) {
  RememberingMachine machine(&darkmont());
  SessionPlan plan;
  CounterSetup one = CounterSetup::of(2, *darkmont().event("BR_INST_RETIRED.COND"), 100);
  one.groups = adaptive::kGprs | adaptive::kXmm;
  plan.counters = {one};
  // It says nothing of itself: the row's form.
  auto session = Session::open(machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  const uint32_t config = IA32_PMC_GP0_CFG_C + 4 * 2;
  ASSERT_TRUE(session->run({}, 1));
  const std::vector<MsrWrite>& enable = machine.last_plan.enable;
  EXPECT_EQ(enable.front(), (MsrWrite{config, 0})) << "an earlier PEBS is forgotten";
  EXPECT_THAT(enable,
              testing::Contains(MsrWrite{config, ((uint64_t{0} - 100) & cfg_c::kReload) |
                                                     cfg_c::kGprs | cfg_c::kXmm | cfg_c::kEnable}));
  for (const MsrWrite& w : machine.writes) {
    EXPECT_NE(w.msr, IA32_PEBS_ENABLE);
    EXPECT_NE(w.msr, MSR_PEBS_DATA_CFG);
  }
}

TEST(Session, OfArchitecturalPebsTheLimits) {
  auto machine = engines::make_model_machine(darkmont(), {});
  ASSERT_TRUE(machine);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(2, *darkmont().event("BR_INST_RETIRED.COND"), 100)};
  plan.counters[0].reset = minus_period(uint64_t{1} << 40, 48);
  EXPECT_EQ(Session::open(**machine, plan).error().code, ErrorCode::kNotAvailable);
  plan.counters[0].reset = minus_period(uint64_t{1} << 31, 48);
  EXPECT_TRUE(Session::open(**machine, plan));
  plan.counters[0].counter = 12;
  EXPECT_EQ(Session::open(**machine, plan).error().code, ErrorCode::kGeneralProtection);
  plan.counters[0].counter = 40;
  EXPECT_EQ(Session::open(**machine, plan).error().code, ErrorCode::kInvalidArgument);
}

// What counts alone needs no buffer, and no machine that has physical memory.
TEST(Session, CountingNeedsNoPhysicalMemory) {
  RememberingMachine machine(&darkmont());
  SessionPlan plan;
  plan.counters = {CounterSetup::of(2, *darkmont().event("BR_INST_RETIRED.COND"), 100, false)};
  auto session = Session::open(machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_FALSE(machine.asked_for_physical);
  for (const MsrWrite& w : machine.writes) EXPECT_NE(w.msr, IA32_PEBS_BASE);
  plan.counters[0].pebs = true;
  ASSERT_TRUE(Session::open(machine, plan));
  EXPECT_TRUE(machine.asked_for_physical);
}

// NetBurst: ESCR, CCCR and counter instead of selects; all of it put back.
TEST(Session, ProgrammesNetBurstAndRestoresIt) {
  RememberingMachine machine(&row("netburst"));
  machine.msrs = {{0x310, 0x11}, {0x370, 0x30000}, {0x3CC, 0x22}, {0x3BC, 0x33},
                  {0x3F1, 0x44}, {0x3F2, 0x1},     {0x600, 0x55}, {0x834, 0x10000}};
  const auto before = machine.msrs;
  SessionPlan plan;
  plan.counters = {CounterSetup::of(0, *row("netburst").event("memory_loads"), 40)};
  auto session = Session::open(machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(machine.msrs[0x3BC], uint64_t{2} << 25 | 2 << 9 | 1 << 4 | 3 << 2)
      << "uop_type, TAGLOADS";
  ASSERT_TRUE(session->run({}, 1));
  EXPECT_THAT(machine.last_plan.enable,
              ElementsAre(MsrWrite{0x3F1, 0}, MsrWrite{0x310, minus_period(40, 40)},
                          MsrWrite{0x370, 0x30000 | 1 << 12 | 5 << 13}, MsrWrite{0x3F1, 1 << 25},
                          MsrWrite{0x3CC, uint64_t{8} << 25 | 1 << 9 | 3 << 2}));
  EXPECT_THAT(machine.last_plan.disable, ElementsAre(MsrWrite{0x3CC, 0}));
  ASSERT_TRUE(session->close());
  for (const auto& [msr, value] : before) EXPECT_EQ(machine.msrs[msr], value) << std::hex << msr;
}

// The same order as elsewhere: branches are traced from before counting begins to behind its end.
TEST(Session, TracesBranchesOnNetBurstByItsOwnBits) {
  constexpr uint64_t kLbr = 1, kTrBtsBtint = 7 << 2, kFilters = 3 << 5;
  RememberingMachine machine(&row("netburst"));
  machine.msrs[0x1D9] = kLbr | 1 << 3;
  SessionPlan plan;
  plan.counters = {CounterSetup::of(0, *row("netburst").event("memory_loads"), 40)};
  plan.branches =
      BranchTraceSetup{.records = 8, .threshold_records = 4, .off_os = true, .off_usr = true};
  auto session = Session::open(machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  EXPECT_EQ(machine.msrs[0x1D9], kLbr);
  ASSERT_TRUE(session->run({}, 1));
  EXPECT_EQ(machine.last_plan.enable.front(), (MsrWrite{0x1D9, kLbr | kTrBtsBtint | kFilters}));
  EXPECT_EQ(machine.last_plan.disable.back(), (MsrWrite{0x1D9, kLbr}));
  EXPECT_EQ(session->branch_threshold() - session->branch_base(), 4u * 24);
  ASSERT_TRUE(session->close());
  EXPECT_EQ(machine.msrs[0x1D9], kLbr | 1 << 3);
}

TEST(Session, TracesBranchesOf32BitCodeOnNetBurstInItsLayout) {
  auto machine = engines::make_model_machine(row("netburst"), {});
  ASSERT_TRUE(machine);
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.branches = BranchTraceSetup{.records = 8, .threshold_records = 4};
  plan.mode = Mode::kProtected32;
  auto session = Session::open(**machine, plan);
  ASSERT_TRUE(session) << session.error().text();
  const std::span<const std::byte> ds = session->ds_bytes();
  uint32_t fields[4] = {};
  std::memcpy(fields, ds.data(), sizeof fields);
  EXPECT_EQ(fields[0], session->branch_base());
  EXPECT_EQ(fields[1], fields[0]);
  EXPECT_EQ(fields[2], fields[0] + 8 * 12 + 1);
  EXPECT_EQ(fields[3], fields[0] + 4 * 12);
}

}  // namespace
}  // namespace skidproof
