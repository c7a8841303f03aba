// The lab's processor beside the model machine: the interpreter plays the emulated CPU, and the same programs under
// the same PMU programme leave the same records, byte for byte.
#include "pebs/engines/lab_processor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "kernels/kernel.h"
#include "pebs/arch/reserved.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/engines/interpreter.h"
#include "pebs/engines/model_machine.h"
#include "pebs/engines/retired_accesses.h"
#include "pebs/engines/testing/random_code.h"
#include "pebs/session.h"

namespace skidproof::lab {
namespace {

using namespace arch;
using engines::GuestMemory;
using engines::Interpreter;

constexpr uint64_t kStackBytes = 64
                                 << 10;  // as the model machine's, so that addresses are the same

// An emulated CPU: registers are the interpreter's, memory is guest memory.
class TestHost final : public Host {
 public:
  explicit TestHost(GuestMemory& memory) : memory_(memory) {}
  void execute_with(Interpreter& interpreter) { interpreter_ = &interpreter; }

  bool read(uint64_t address, std::span<std::byte> into) override {
    return memory_.read(address, into);
  }
  bool write(uint64_t address, std::span<const std::byte> from) override {
    return memory_.write(address, from);
  }
  bool write_physical(uint64_t address, std::span<const std::byte> from) override {
    return memory_.write_physical(address, from);
  }
  size_t code(uint64_t address, std::span<std::byte> into) override {
    size_t readable = 0;
    while (readable < into.size() && memory_.mapped(address + readable, 1)) ++readable;
    if (readable > 0) std::memcpy(into.data(), memory_.host(address), readable);
    return readable;
  }
  void registers(model::Registers& into) override { into = interpreter_->registers(); }
  void vectors(model::VectorRegisters& into) override { into = interpreter_->vectors(); }
  uint64_t tsc() override { return tsc_; }
  uint64_t set_tsc(uint64_t value) override { return tsc_ = std::max(value, elsewhere_); }
  // Another CPU of the machine is that far.
  void tsc_elsewhere(uint64_t value) { elsewhere_ = value; }
  uint32_t lvt() override { return lvt_; }
  void set_lvt(uint32_t value) override { lvt_ = value; }
  void interrupt(uint32_t entry) override { ++interrupts, last_entry_ = entry; }
  void hold_interrupts() override { ++held; }

  uint64_t interrupts = 0, held = 0;

 private:
  GuestMemory& memory_;
  Interpreter* interpreter_ = nullptr;
  uint64_t tsc_ = 0, elsewhere_ = 0;
  uint32_t lvt_ = kResetLvt, last_entry_ = 0;
};

// The interpreter as the emulated CPU of a lab: it has a core of its own, whose counts nobody asks for.
class LabMachine final : public Machine {
 public:
  // Enumerates as `model` does.
  LabMachine(const Machine& model, const Configuration& configuration)
      : model_(model),
        identity_(model.identity()),
        memory_(GuestMemory::create().value()),
        stack_(memory_->allocate(kStackBytes, MemoryUse::kData, false).value()),
        host_(*memory_),
        executing_(*configuration.microarch, 99),
        interpreter_(*memory_, executing_, *configuration.microarch),
        processor_(configuration, 0, host_) {
    host_.execute_with(interpreter_);
  }

  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override {
    return model_.cpuid(leaf, subleaf);
  }
  Expected<uint64_t> rdmsr(uint32_t msr) override {
    if (msr == IA32_X2APIC_LVT_PMI) return uint64_t{host_.lvt()};
    uint64_t value = 0;
    if (processor_.rdmsr(msr, value) != Answer::kDone)
      return fail(ErrorCode::kGeneralProtection, "#GP");
    return value;
  }
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override {
    if (msr == IA32_X2APIC_LVT_PMI) {
      host_.set_lvt(static_cast<uint32_t>(value & kWritableLvt));
      return {};
    }
    if (processor_.wrmsr(msr, value) != Answer::kDone)
      return fail(ErrorCode::kGeneralProtection, "#GP");
    return {};
  }
  Expected<Memory> allocate(const MemoryRequest& request) override {
    Memory memory =
        SKIDPROOF_TRY(memory_->allocate(request.bytes, request.use, request.huge_pages));
    if (request.physical) memory.physical = GuestMemory::physical_of(memory.address);
    return memory;
  }
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    SKIDPROOF_CHECK(interpreter_.load(program));
    processor_.code_changed();
    for (const MsrWrite& write : plan.enable) SKIDPROOF_CHECK(wrmsr(write.msr, write.value));
    interpreter_.call(program.entry, plan.iterations, program.data_address,
                      stack_.address + stack_.host.size());
    RunLog log;
    const bool user = plan.ring == Ring::kUser;
    while (!interpreter_.finished()) {
      SKIDPROOF_CHECK(execute(user));
      if (std::exchange(host_.interrupts, 0) > 0) handle(plan, log);
    }
    for (const MsrWrite& write : plan.disable) SKIDPROOF_CHECK(wrmsr(write.msr, write.value));
    // The code behind the program, in which an interrupt arrives that was still on its way.
    for (uint64_t n = 0; n < 100 && processor_.watching(); ++n) {
      processor_.before(0x1000 + n, false);
      processor_.after(0x1001 + n, false);
      if (std::exchange(host_.interrupts, 0) > 0) ++late_interrupts_;
    }
    for (uint32_t msr : plan.read) log.read.push_back(SKIDPROOF_TRY(rdmsr(msr)));
    return log;
  }

  uint64_t held() const { return host_.held; }
  // Interrupts that came when the program had returned: the model machine has their handler run before the
  // counters are disabled, an emulated CPU after it.
  uint64_t late_interrupts() const { return late_interrupts_; }

 private:
  Expected<void> execute(bool user) {
    const uint64_t ip = interpreter_.registers().ip;
    const uint64_t count = interpreter_.registers().gpr[static_cast<size_t>(Gpr::kRcx)];
    const bool watching = processor_.watching();
    if (watching) processor_.before(ip, user);
    model::Retired r;
    SKIDPROOF_CHECK(interpreter_.step(r));
    if (!watching) return {};
    const model::Decoded d =
        SKIDPROOF_TRY(model::decode({memory_->host(ip), r.length}, ip, Mode::kLong));
    const bool repeats = (d.instruction.attributes & ZYDIS_ATTRIB_HAS_REP) != 0;
    if (!repeats || count > 0) tell_accesses(d.facts, r);
    for (uint64_t n = 0; repeats && n < count; ++n) processor_.repetition();
    if (r.counts[index(Signal::kConditionalTaken)] != 0) processor_.branch_taken();
    processor_.after(r.after->ip, repeats);
    return {};
  }
  void tell_accesses(const model::InstructionFacts& f, const model::Retired& r) {
    const uint32_t load = f.explicit_load ? f.address_of.bytes : 8;
    const uint32_t store = f.explicit_store ? f.address_of.bytes : 8;
    const bool modifies = r.load.valid && r.store.valid && r.load.address == r.store.address;
    if (r.load.valid) tell(r.load.address, load, true, modifies);
    if (r.store.valid && !modifies) tell(r.store.address, store, false, true);
    if (f.flushes) tell(engines::address_of(f, *r.after), 1, true, false);
  }
  // As an emulator does it: page by page.
  void tell(uint64_t address, uint32_t bytes, bool load, bool store) {
    const uint32_t room = static_cast<uint32_t>(4096 - address % 4096);
    processor_.access(address, std::min(bytes, room), load, store);
    if (bytes > room) processor_.access(address + room, bytes - room, load, store);
  }
  // What the model machine's handler does, as far as these tests ask for it.
  void handle(const RunPlan& plan, RunLog& log) {
    Pmi pmi;
    pmi.ip = interpreter_.registers().ip;
    pmi.global_status = rdmsr(plan.pmi.status_msr).value_or(0);
    log.pmis.push_back(pmi);
    if (plan.pmi.clear_status) {
      const uint64_t sampling = 0xFF | uint64_t{identity_.microarch->pebs_fixed_counters}
                                           << pebs_enable::kFixedShift;
      const auto read = [this](uint32_t msr) { return rdmsr(msr).value_or(0); };
      const uint64_t pebs = sampling_counters(*identity_.microarch, read) & sampling;
      static_cast<void>(wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, pmi.global_status & ~pebs));
    }
    if (plan.pmi.rewind_index) {
      std::array<std::byte, 8> base{};
      memory_->read(plan.pebs_base_address, base);
      memory_->write(plan.pebs_index_address, base);
    }
    if (plan.pmi.restore_global_ctrl) {
      for (const MsrWrite& write : plan.enable) {
        if (write.msr == IA32_PERF_GLOBAL_CTRL) static_cast<void>(wrmsr(write.msr, write.value));
      }
    }
    for (const MsrWrite& write : plan.pmi.acknowledge) {
      static_cast<void>(wrmsr(write.msr, write.value));
    }
    if (plan.pmi.unmask) host_.set_lvt(host_.lvt() & ~static_cast<uint32_t>(lvt::kMasked));
  }

  const Machine& model_;
  const Identity identity_;
  std::unique_ptr<GuestMemory> memory_;
  Memory stack_;
  TestHost host_;
  model::Core executing_;
  Interpreter interpreter_;
  Processor processor_;
  uint64_t late_interrupts_ = 0;
};

// A case: one program and what samples it.
struct Case {
  Memory code, data;
  Program program;
  uint64_t iterations = 1;
  SessionPlan plan;
};

// What a case leaves behind.
struct LabOutcome {
  std::vector<std::byte> records;  // and the DS area
  bool sampled = false;
  std::vector<uint64_t> counters, fixed;
  uint64_t status = 0;
  std::vector<uint64_t> interrupted_at;
  std::string error;
};

Case make_case(Machine& machine, uint64_t seed, Random& random) {
  const Microarch& row = *machine.identity().microarch;
  Memory code = machine.allocate({.bytes = 1 << 20, .use = MemoryUse::kCode}).value();
  Memory data = machine.allocate({.bytes = 64 << 10, .use = MemoryUse::kData}).value();
  Case c;
  c.program = engines::testing::RandomCode(seed, code.address, data.address + (16 << 10), true)
                  .generate(800);
  c.code = std::move(code);
  c.data = std::move(data);
  std::vector<const Event*> precise;
  for (const Event& event : row.events) {
    if (event.precise() && event.kind != EventKind::kLoadLatency) precise.push_back(&event);
  }
  const unsigned usable = static_cast<unsigned>(std::popcount(row.pebs_counters));
  const unsigned counters = 1 + static_cast<unsigned>(random.below(std::min(usable, 3u)));
  for (unsigned n = 0; n < counters; ++n) {
    const Event& event = *precise[random.below(precise.size())];
    CounterSetup setup = CounterSetup::of(n, event, 3 + random.below(60));
    c.plan.counters.push_back(setup);
  }
  c.plan.buffer_records =
      row.pebs_buffer_limit_bytes == 0 ? 64 : row.pebs_buffer_limit_bytes / row.record->bytes;
  if (random.chance(1, 2)) c.plan.threshold_records = 4 + random.below(20);
  c.plan.freeze_on_pmi = random.chance(1, 4);
  c.plan.pmi.restore_global_ctrl = c.plan.freeze_on_pmi;
  c.plan.pmi.rewind_index = random.chance(1, 2);
  return c;
}

LabOutcome outcome_of(Machine& machine, const Case& c) {
  LabOutcome o;
  auto session = Session::open(machine, c.plan);
  if (!session) {
    o.error = session.error().message;
    return o;
  }
  for (int again = 0; again < 2; ++again) {
    auto run = session->run(c.program, c.iterations);
    if (!run) {
      o.error = run.error().message;
      return o;
    }
    o.counters.insert(o.counters.end(), run->counters.begin(), run->counters.end());
    o.fixed.insert(o.fixed.end(), run->fixed.begin(), run->fixed.end());
    o.status = run->global_status;
    for (const Pmi& pmi : run->log.pmis) o.interrupted_at.push_back(pmi.ip);
  }
  const std::byte* first = session->ds_bytes().data();
  o.records.assign(first, first + session->ds_bytes().size());
  // The whole buffer, what was never written included.
  const auto behind = session->after_index();
  const size_t before = session->index() - session->base();
  o.records.insert(o.records.end(), behind.data() - before, behind.data() + behind.size());
  // A buffer that was rewound holds older records behind its index.
  o.sampled = behind.size() != 0 && (before != 0 || behind.front() != Session::kFill);
  return o;
}

std::string first_differing(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (a.size() != b.size()) return fmt::format("{} bytes instead of {}", a.size(), b.size());
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin());
  return x == a.end() ? "" : fmt::format("at {} of {}", x - a.begin(), a.size());
}

class LabProcessorOn : public ::testing::TestWithParam<const Microarch*> {};

TEST_P(LabProcessorOn, LeavesTheRecordsOfTheModelMachine) {
  const Microarch& row = *GetParam();
  size_t with_records = 0;
  for (uint64_t seed = 1; seed <= 30 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    auto model = engines::make_model_machine(row, {.sibling_thread = true, .seed = seed}).value();
    const Configuration configuration{.microarch = &row,
                                      .behaviour = model::behaviour_of(row),
                                      .seed = seed,
                                      .sibling_thread = true};
    LabMachine lab(*model, configuration);
    Random for_model(seed), for_lab(seed);
    const LabOutcome known = outcome_of(*model, make_case(*model, seed, for_model));
    const LabOutcome seen = outcome_of(lab, make_case(lab, seed, for_lab));
    EXPECT_EQ(seen.error.empty(), known.error.empty()) << seen.error << known.error;
    if (lab.late_interrupts() > 0) continue;
    EXPECT_EQ(seen.interrupted_at, known.interrupted_at);
    EXPECT_EQ(first_differing(seen.records, known.records), std::string());
    EXPECT_EQ(seen.counters, known.counters);
    EXPECT_EQ(seen.fixed, known.fixed);
    EXPECT_EQ(seen.status, known.status);
    with_records += known.sampled;
  }
  // Fewer where one counter alone has PEBS: a case asks for any.
  EXPECT_GT(with_records, std::popcount(row.pebs_counters) > 1 ? 3u : 0u);
}

// A loop of fused pairs, sampled, and a counter that interrupts at some place in it.
Case fused_case(Machine& machine, uint64_t period) {
  Case c;
  c.code = machine.allocate({.use = MemoryUse::kCode}).value();
  c.data = machine.allocate({.use = MemoryUse::kData}).value();
  const Kernel& kernel = **find_kernel("fused_branch");
  const Params params = Params::parse(kernel.parameters, "form=mem_reg").value();
  c.program =
      generate(kernel, params, {.code_address = c.code.address, .data_address = c.data.address})
          .value();
  c.iterations = 200;
  const Microarch& row = *machine.identity().microarch;
  const Event *loads = row.event(0xD0, 0x81), *instructions = row.event(0xC0, 0);
  c.plan.counters = {CounterSetup::of(0, *loads, 3),
                     CounterSetup::of(2, *instructions, period, false)};
  c.plan.counters[1].interrupt = true;
  return c;
}

TEST(LabProcessor, NoInterruptComesBetweenTheHalvesOfAFusedPair) {
  const Microarch& row = **find_microarch("haswell");  // one whose records wait for the second half
  uint64_t held = 0;
  for (uint64_t period = 100; period < 160; ++period) {
    SCOPED_TRACE(period);
    auto model = engines::make_model_machine(row, {.sibling_thread = true}).value();
    LabMachine lab(
        *model, {.microarch = &row, .behaviour = model::behaviour_of(row), .sibling_thread = true});
    const LabOutcome known = outcome_of(*model, fused_case(*model, period));
    const LabOutcome seen = outcome_of(lab, fused_case(lab, period));
    EXPECT_FALSE(known.interrupted_at.empty());
    EXPECT_EQ(seen.interrupted_at, known.interrupted_at);
    held += lab.held();
  }
  EXPECT_GT(held, 0u);
}

// A processor with counters on that retires instructions of nobody's.
struct Idle {
  explicit Idle(const char* name, const char* rough = "")
      : row(**find_microarch(name)),
        memory(GuestMemory::create().value()),
        host(*memory),
        executing(row, 1),
        interpreter(*memory, executing, row),
        processor({.microarch = &row,
                   .behaviour = model::behaviour_of(
                       row, *rough == 0 ? model::Rough{} : model::rough_of(row, rough).value())},
                  0, host) {
    host.execute_with(interpreter);
    processor.set_modes(true, Mode::kReal);  // what cannot be decoded counts as one uop
  }
  void retire(uint64_t instructions, bool user = false) {
    for (uint64_t n = 0; n < instructions; ++n) {
      processor.before(0x1000 + n, user);
      processor.after(0x1001 + n, false);
    }
  }
  // As an instruction, which the processor sees from its beginning if it watches already.
  void write(uint32_t msr, uint64_t value) {
    if (processor.watching()) processor.before(0x2000, false);
    EXPECT_EQ(processor.wrmsr(msr, value), Answer::kDone);
    if (processor.watching()) processor.after(0x2002, false);
  }
  uint64_t read(uint32_t msr) {
    uint64_t value = 0;
    EXPECT_EQ(processor.rdmsr(msr, value), Answer::kDone);
    return value;
  }

  const Microarch& row;
  std::unique_ptr<GuestMemory> memory;
  TestHost host;
  model::Core executing;
  Interpreter interpreter;
  Processor processor;
};

TEST(LabProcessor, WatchesWhileSoftwareLetsSomethingCount) {
  Idle lab("sandy-bridge");
  EXPECT_FALSE(lab.processor.watching());
  ASSERT_EQ(lab.processor.wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctrl::kUsr), Answer::kDone);
  EXPECT_FALSE(lab.processor.watching());
  ASSERT_EQ(lab.processor.wrmsr(IA32_PERF_GLOBAL_CTRL, bit(32)), Answer::kDone);
  EXPECT_TRUE(lab.processor.watching()) << "it counts nothing here, but would at the other level";
  lab.retire(1000);
  EXPECT_TRUE(lab.processor.watching());
  lab.retire(10, true);
  EXPECT_EQ(lab.read(IA32_FIXED_CTR0), 10u);
  // Linux leaves the global bit and takes the rings away.
  ASSERT_EQ(lab.processor.wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctrl::kPmi), Answer::kDone);
  EXPECT_FALSE(lab.processor.watching());
  ASSERT_EQ(lab.processor.wrmsr(IA32_PERF_GLOBAL_CTRL, 0), Answer::kDone);
  EXPECT_FALSE(lab.processor.watching());
}

// Whether it counts is the machine's (`start_wrmsr`), and the same whether something counted before it or not.
TEST(LabProcessor, TheWriteThatStartsACounterIsSeenByOneRule) {
  for (const char* microarch : {"sandy-bridge", "sapphire-rapids"}) {
    for (const uint64_t seen : {0, 1}) {
      for (const bool company : {false, true}) {
        SCOPED_TRACE(fmt::format("{} start_wrmsr={} company={}", microarch, seen, company));
        Idle lab(microarch, fmt::format("start_wrmsr={}", seen).c_str());
        lab.write(IA32_PERFEVTSEL0, 0xC0 | evtsel::kOs | evtsel::kEnable);
        lab.write(IA32_FIXED_CTR_CTRL, fixed_ctrl::kOs);
        lab.write(IA32_PERF_GLOBAL_CTRL, company ? bit(0) : 0);
        lab.retire(10);
        lab.write(IA32_PERF_GLOBAL_CTRL, bit(0) | bit(32));
        lab.retire(7);
        lab.write(IA32_PERF_GLOBAL_CTRL, 0);
        EXPECT_EQ(lab.read(IA32_FIXED_CTR0), seen + 7);
        EXPECT_EQ(lab.read(IA32_PMC0), company ? seen + 10 + 1 + 7 : seen + 7);
      }
    }
  }
}

TEST(LabProcessor, SoItIsWhereACountersOwnEnableStartsIt) {
  constexpr uint64_t kSelect = 0xC0 | evtsel::kOs;
  for (const uint64_t seen : {0, 1}) {
    for (const bool company : {false, true}) {
      SCOPED_TRACE(fmt::format("start_wrmsr={} company={}", seen, company));
      Idle lab("sandy-bridge", fmt::format("start_wrmsr={}", seen).c_str());
      lab.write(IA32_PERFEVTSEL0, kSelect | (company ? evtsel::kEnable : 0));
      lab.write(IA32_PERF_GLOBAL_CTRL, bit(0) | bit(1) | bit(32));
      lab.retire(10);
      lab.write(IA32_PERFEVTSEL0 + 1, kSelect | evtsel::kEnable);
      lab.retire(7);
      lab.write(IA32_PERFEVTSEL0 + 1, kSelect);
      EXPECT_EQ(lab.read(IA32_PMC0 + 1), seen + 7);
      lab.write(IA32_FIXED_CTR_CTRL, fixed_ctrl::kOs);
      lab.retire(5);
      lab.write(IA32_FIXED_CTR_CTRL, 0);
      EXPECT_EQ(lab.read(IA32_FIXED_CTR0), seen + 5);
    }
  }
}

TEST(LabProcessor, BeginsAgainAsAfterPowerOn) {
  Idle lab("sandy-bridge");
  ASSERT_EQ(lab.processor.wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctrl::kOs), Answer::kDone);
  ASSERT_EQ(lab.processor.wrmsr(IA32_PERF_GLOBAL_CTRL, bit(32)), Answer::kDone);
  lab.retire(400);
  lab.processor.start_again(7);
  EXPECT_FALSE(lab.processor.watching());
  EXPECT_EQ(lab.read(IA32_FIXED_CTR0), 0u);
  EXPECT_EQ(lab.read(IA32_FIXED_CTR_CTRL), 0u);
  Idle fresh("sandy-bridge");
  EXPECT_EQ(lab.read(IA32_PERF_GLOBAL_CTRL), fresh.read(IA32_PERF_GLOBAL_CTRL));
}

TEST(LabProcessor, BecomesAnotherOneWithoutASecondBoot) {
  Idle lab("sandy-bridge");
  ASSERT_EQ(lab.processor.wrmsr(IA32_PMC0 + 7, 5), Answer::kDone)
      << "alone on its core: eight counters";
  const Microarch& row = **find_microarch("sandy-bridge");
  lab.processor.become(behaviour_with(row, "").value(), true);
  uint64_t value = 0;
  EXPECT_EQ(lab.processor.rdmsr(IA32_PMC0 + 7, value), Answer::kGeneralProtection);
  lab.processor.become(behaviour_with(row, "upper-counters-absent").value(), false);
  EXPECT_EQ(lab.processor.rdmsr(IA32_PMC0 + 7, value), Answer::kGeneralProtection);
  lab.processor.become(behaviour_with(row, "").value(), false);
  EXPECT_EQ(lab.read(IA32_PMC0 + 7), 0u) << "as after power-on";
  EXPECT_FALSE(behaviour_with(row, "no-such-defect"));
}

TEST(LabProcessor, LetsTheModelSayWhatTheLvtEntryKeeps) {
  constexpr uint32_t kEntry = lvt::kMasked | lvt::kNmi;
  Idle lab("sandy-bridge");
  lab.host.set_lvt(kEntry | lvt::kDeliveryStatus);  // as software wrote it
  lab.processor.lvt_written();
  EXPECT_EQ(lab.host.lvt(), kEntry);
  lab.processor.become(
      behaviour_with(**find_microarch("sandy-bridge"), "lvt-status-writable").value(), false);
  lab.host.set_lvt(kEntry | lvt::kDeliveryStatus);
  lab.processor.lvt_written();
  EXPECT_EQ(lab.host.lvt(), kEntry | lvt::kDeliveryStatus);
}

TEST(LabProcessor, KeepsAJournalOfWhatIsNotTheProgram) {
  const std::string path = ::testing::TempDir() + "lab_processor_test.journal";
  {
    auto journal = JournalWriter::create(path).value();
    Idle lab("sandy-bridge");
    lab.processor.keep(*journal);
    lab.processor.start_again(7);
    ASSERT_EQ(lab.processor.wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctrl::kOs | fixed_ctrl::kUsr),
              Answer::kDone);
    ASSERT_EQ(lab.processor.wrmsr(IA32_PERF_GLOBAL_CTRL, bit(32)), Answer::kDone);
    lab.retire(2, true);  // below the kernel's space
    lab.processor.before(0x4000'0000'0000, false);
    lab.processor.after(0x4000'0000'0001, false);
    ASSERT_EQ(lab.processor.wrmsr(IA32_PERF_GLOBAL_CTRL, 0), Answer::kDone);
  }
  const std::vector<Journal> journals = read_journals(path).value();
  ASSERT_EQ(journals.size(), 1u);
  EXPECT_EQ(journals[0].seed, 7u);
  using Kind = JournalEntry::Kind;
  std::vector<Kind> kinds;
  for (const JournalEntry& entry : journals[0].entries) kinds.push_back(entry.kind);
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kWrite, Kind::kWrite, Kind::kWatching,
                                      Kind::kInstruction, Kind::kInstruction, Kind::kWrite}));
  EXPECT_EQ(journals[0].entries[1].msr, IA32_PERF_GLOBAL_CTRL);
  EXPECT_EQ(journals[0].entries[1].value, bit(32));
  EXPECT_EQ(journals[0].entries[4].executed.ip, 0x1001u);
  EXPECT_EQ(journals[0].entries[4].executed.next_ip, 0x1002u);
  std::remove(path.c_str());
}

TEST(LabProcessor, TimeGoesOnWhileTheProcessorIsHalted) {
  Idle lab("sandy-bridge");
  ASSERT_EQ(lab.processor.wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctrl::kOs), Answer::kDone);
  ASSERT_EQ(lab.processor.wrmsr(IA32_PERF_GLOBAL_CTRL, bit(32)), Answer::kDone);
  lab.retire(400);
  lab.processor.halt();
  const uint64_t before = lab.host.tsc();
  EXPECT_GT(before, 0u);
  lab.host.set_tsc(before + 5000);  // the emulator's timer
  lab.retire(1);
  lab.processor.bring_tsc_up_to_date();
  EXPECT_GE(lab.host.tsc(), before + 5000);
  EXPECT_LT(lab.host.tsc(), before + 5100);
}

TEST(LabProcessor, KeepsUpWithTheTimeOfOtherProcessors) {
  Idle lab("sandy-bridge");
  ASSERT_EQ(lab.processor.wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctrl::kOs), Answer::kDone);
  ASSERT_EQ(lab.processor.wrmsr(IA32_PERF_GLOBAL_CTRL, bit(32)), Answer::kDone);
  lab.retire(400);
  lab.processor.bring_tsc_up_to_date();
  const uint64_t before = lab.host.tsc();
  lab.host.tsc_elsewhere(before + 5000);
  lab.processor.bring_tsc_up_to_date();
  EXPECT_EQ(lab.host.tsc(), before + 5000);
  // From there on it is its own core's time again.
  lab.host.tsc_elsewhere(0);
  lab.retire(400);
  lab.processor.bring_tsc_up_to_date();
  EXPECT_GT(lab.host.tsc(), before + 5000);
  EXPECT_LT(lab.host.tsc(), 3 * before + 5000);
}

TEST(LabProcessor, AnswersForNoRegisterThatTheMicroarchLacks) {
  Idle lab("sandy-bridge");
  uint64_t value = 0;
  EXPECT_EQ(lab.processor.rdmsr(MSR_PEBS_DATA_CFG, value), Answer::kGeneralProtection);
  EXPECT_EQ(lab.processor.rdmsr(0xC0000080, value), Answer::kNotMine) << "IA32_EFER";
  EXPECT_EQ(lab.processor.rdpmc(0x40, false, true), std::nullopt);
}

std::vector<const Microarch*> rows() {
  std::vector<const Microarch*> out;
  for (const Microarch* row : microarchs()) {
    if (row->architectural_perfmon()) out.push_back(row);
  }
  return out;
}
std::string name_of_row(const ::testing::TestParamInfo<const Microarch*>& info) {
  std::string name(info.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Every, LabProcessorOn, ::testing::ValuesIn(rows()), name_of_row);

}  // namespace
}  // namespace skidproof::lab
