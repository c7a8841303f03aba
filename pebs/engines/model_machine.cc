#include "pebs/engines/model_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "pebs/arch/enumeration.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/engines/across_4g.h"
#include "pebs/engines/disturbance.h"
#include "pebs/engines/driver_playback.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/engines/interpreter.h"
#include "pebs/engines/real_mode.h"
#include "pebs/model/core.h"
#include "pebs/model/defects.h"
#include "pebs/model/pmu.h"
#include "pebs/undisturbed.h"

namespace skidproof::engines {
namespace {

using namespace arch;
using Clock = std::chrono::steady_clock;

constexpr size_t kStackBytes = 64 << 10;
// How many instructions run between looks at the deadline.
constexpr uint64_t kSlice = 4'000'000;
// Below this many quiet instructions stepping costs no more than a block run.
constexpr uint64_t kWorthARun = 4;
// So many instructions are stepped before the PMU is asked again whether that is still necessary. It does no harm where
// it is not.
constexpr uint64_t kTogether = 8;
// Where the interrupt handler stands: in no program. It executes nothing that is counted.
constexpr uint64_t kHandler = 0xffff'ffff'8100'0000;

Identity identity_of(const Microarch& microarch, const ModelOptions& options) {
  Identity id;
  id.name = fmt::format("model:{}", microarch.name);
  for (const std::string& defect : options.defects) id.name += "+" + defect;
  if (!options.rough.empty()) id.name += "~" + model::rough_name(options.rough);
  id.provenance = Provenance::kModel;
  id.vendor = "GenuineIntel";
  id.brand = fmt::format("Skidproof model of {}", microarch.title);
  if (microarch.hybrid) id.core_type = "P";
  if (!microarch.models.empty()) {
    const CpuModel& first = microarch.models.front();
    id.family = first.family;
    id.model = first.model;
    id.stepping = first.stepping >= 0 ? static_cast<unsigned>(first.stepping) : 0;
    id.microcode = first.minimum_microcode;  // the oldest that is to be trusted
  }
  if (options.part) {
    id.family = options.part->family;
    id.model = options.part->model;
    id.stepping = options.part->stepping;
    id.microcode = options.part->microcode;
  }
  id.microarch = &microarch;
  id.pmu = true;
  id.modes = {Mode::kLong, Mode::kProtected32, Mode::kReal};
  id.sibling_thread = options.sibling_thread && microarch.hyper_threading;
  id.instant_handler = true;
  id.capabilities = {"pebs", "ds"};
  if (microarch.dtes64) id.capabilities.push_back("dtes64");
  if (microarch.architectural_perfmon()) id.capabilities.push_back("pdcm");
  if (microarch.full_width_writes) id.capabilities.push_back("full-width-writes");
  return id;
}

// What the plan starts the counters with.
std::optional<uint64_t> started_with(const RunPlan& plan) {
  std::optional<uint64_t> ctrl;
  for (const MsrWrite& write : plan.enable) {
    if (write.msr == IA32_PERF_GLOBAL_CTRL) ctrl = write.value;
  }
  return ctrl;
}

// Memory that 32-bit code can reach, and what executes such code. Made when it is first asked for.
//
// To the core model, which tells lines apart by address bits 36:6, it stands behind the other memory.
constexpr uint64_t kLowBase = uint64_t{2} << 30;
constexpr uint64_t kLowBytes = uint64_t{1} << 30;
static_assert(kLowBase >= GuestMemory::kBytes && GuestMemory::kBase % GuestMemory::kWindow == 0);

struct Below4G {
  Below4G(std::unique_ptr<GuestMemory> arena, Memory stack_block, model::Core& core,
          const model::CoreBehaviour& behaviour)
      : memory(std::move(arena)),
        stack(std::move(stack_block)),
        interpreter(*memory, core, behaviour, Accounting::kCore, Mode::kProtected32) {}

  static Expected<std::unique_ptr<Below4G>> create(model::Core& core,
                                                   const model::CoreBehaviour& behaviour) {
    auto memory = SKIDPROOF_TRY(GuestMemory::create(kLowBase, kLowBytes));
    Memory stack = SKIDPROOF_TRY(memory->allocate(kStackBytes, MemoryUse::kData, false));
    return std::make_unique<Below4G>(std::move(memory), std::move(stack), core, behaviour);
  }

  std::unique_ptr<GuestMemory> memory;
  Memory stack;
  Interpreter interpreter;
};

// The linear addresses of all of them, and the physical ones.
class LinearMemory final : public model::Bus {
 public:
  explicit LinearMemory(GuestMemory& high) : high_(high) {}
  void add(GuestMemory& low) { low_ = &low; }
  Across4G& across_4g() { return across_4g_; }
  // Where another machine has its debug store elsewhere than its programs.
  void add_debug_store(GuestMemory& store) { store_ = &store; }
  bool read(uint64_t address, std::span<std::byte> into) override {
    model::Bus* from = at(address);
    return from != nullptr && from->read(address, into);
  }
  bool write(uint64_t address, std::span<const std::byte> from) override {
    model::Bus* into = at(address);
    return into != nullptr && into->write(address, from);
  }
  bool write_physical(uint64_t address, std::span<const std::byte> from) override {
    return write(GuestMemory::linear_of(address), from);
  }

 private:
  model::Bus* at(uint64_t address) {
    if (across_4g_.holds(address)) return &across_4g_;
    if (address < kLowBase + kLowBytes) return low_;
    const bool stored = store_ != nullptr && address - store_->base() < store_->bytes();
    return stored ? store_ : &high_;
  }

  GuestMemory& high_;
  GuestMemory* low_ = nullptr;
  GuestMemory* store_ = nullptr;
  Across4G across_4g_;
};

class ModelMachine final : public Machine {
 public:
  ModelMachine(const Microarch& microarch, const ModelOptions& options, model::Behaviour behaviour,
               std::unique_ptr<GuestMemory> memory, Memory stack)
      : identity_(identity_of(microarch, options)),
        memory_(std::move(memory)),
        linear_(*memory_),
        stack_(std::move(stack)),
        behaviour_(std::move(behaviour)),
        random_(derive_seed(options.seed, "machine")),
        core_(behaviour_.core, derive_seed(options.seed, "core")),
        pmu_(microarch, {.sibling_thread = identity_.sibling_thread}, linear_, behaviour_,
             options.seed),
        interpreter_(*memory_, core_, behaviour_.core),
        circumstances_(options.circumstances) {
    if (circumstances_ == nullptr) return;
    interpreter_.return_to(circumstances_->return_address);
    driver_.emplace(circumstances_->driver, core_, pmu_, behaviour_.core);
  }

  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override;
  Expected<uint64_t> rdmsr(uint32_t msr) override;
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override { return pmu_.wrmsr(msr, value); }
  Expected<uint64_t> rdpmc(const CounterRead& read) override {
    return pmu_.rdpmc(read.index, read.ring == Ring::kUser, read.cr4_pce);
  }
  Expected<Memory> allocate(const MemoryRequest& request) override {
    const bool there = circumstances_ != nullptr;
    Memory memory = SKIDPROOF_TRY(there ? allocate_there(request) : allocate_here(request));
    if (request.physical) memory.physical = GuestMemory::physical_of(memory.address);
    if (!there && request.use == MemoryUse::kDebugStore && may_be_disturbed())
      debug_stores_.push_back({memory.address, std::vector<std::byte>(memory.host.size())});
    return memory;
  }
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override;

 private:
  Expected<Memory> allocate_here(const MemoryRequest& request);
  Expected<Memory> allocate_there(const MemoryRequest& request);
  Expected<Below4G*> below_4g();
  Expected<void> check(const Program& program, const RunPlan& plan) const;
  Expected<RunLog> run_once(const Program& program, const RunPlan& plan);
  bool may_be_disturbed() const;
  void save_debug_stores();
  void restore_debug_stores();
  Expected<void> execute(const RunPlan& plan, RunLog& log);
  Expected<uint64_t> execute_quietly(uint64_t instructions);
  void disturb(Disturbance what, const RunPlan& plan);
  // What comes from outside on a rough machine.
  enum class Outside : uint8_t { kSmi, kMachineCheck, kForeignNmi };
  struct Coming {
    Outside what = Outside::kSmi;
    uint64_t after = 0;  // instructions of the program
  };
  std::vector<Coming> draw_outside(const RunPlan& plan);
  // What a debug store held before a run.
  struct Saved {
    uint64_t address = 0;
    std::vector<std::byte> bytes;
  };
  void meet(Outside what, const RunPlan& plan, RunLog& log);
  void interrupted_by(uint64_t handler, const RunPlan& plan);
  Expected<void> handle_interrupt(const RunPlan& plan, RunLog& log, uint64_t ip);
  void acknowledge(const RunPlan& plan, const Pmi& pmi);
  Expected<void> accompany(const RunPlan& plan, RunLog& log, uint64_t until = 0);
  Expected<void> stop_counters(const RunPlan& plan, RunLog& log);
  Expected<void> restart_counters(const RunPlan& plan, RunLog& log, const Pmi& pmi);
  Expected<void> come_back(const RunPlan& plan, RunLog& log);
  void rewind(uint64_t index, uint64_t base, size_t field_bytes);
  bool has_perfmon_leaf() const {
    return identity_.microarch->architectural_perfmon() ||
           behaviour_.enumeration.always_perfmon_leaf;
  }
  uint64_t tsc() const { return core_.totals()[index(Signal::kReferenceCycles)]; }
  uint64_t read_field(uint64_t address, size_t bytes) {
    uint64_t value = 0;
    linear_.read(address, std::as_writable_bytes(std::span(&value, 1)).first(bytes));
    return value;
  }

  Identity identity_;
  std::unique_ptr<GuestMemory> memory_;
  std::unique_ptr<GuestMemory> debug_store_;  // in circumstances that have it apart
  LinearMemory linear_;
  Memory stack_;
  const model::Behaviour behaviour_;
  std::vector<Saved> debug_stores_;
  Random random_;  // of what comes from outside
  model::Core core_;
  model::Pmu pmu_;
  Interpreter interpreter_;
  std::shared_ptr<const Circumstances> circumstances_;
  std::optional<DriverPlayback> driver_;  // where there are circumstances
  size_t blocks_placed_ = 0;
  bool handling_ = false;         // the driver's handler runs: interrupts wait for its end
  bool interrupt_waits_ = false;  // one does
  bool stopped_ = false;          // the driver stopped the counters behind the program
  std::unique_ptr<Below4G> below_4g_;
  Interpreter* running_ = &interpreter_;  // of the last run
};

Machine::CpuidResult as_result(const CpuidLeaf& leaf) {
  return {.eax = leaf.eax, .ebx = leaf.ebx, .ecx = leaf.ecx, .edx = leaf.edx};
}

Machine::CpuidResult ModelMachine::cpuid(uint32_t leaf, uint32_t subleaf) const {
  const Microarch& m = *identity_.microarch;
  switch (leaf) {
    case 0x0:
      return {.eax = std::max(highest_basic_leaf(m), has_perfmon_leaf() ? cpuid::kPerfmon : 0),
              .ebx = 0x756E6547,
              .ecx = 0x6C65746E,
              .edx = 0x49656E69};  // GenuineIntel
    case 0x1: {
      uint32_t signature = (identity_.stepping & 0xF) | ((identity_.model & 0xF) << 4) |
                           ((identity_.family & 0xF) << 8) | ((identity_.model >> 4) << 16);
      constexpr uint32_t kDtes64 = 1u << 2, kDsCpl = 1u << 4, kPdcm = 1u << 15, kDs = 1u << 21;
      return {.eax = signature,
              .ebx = 0,
              .ecx = ((m.dtes64 ? kDtes64 : 0) | (m.branch_trace.cpl_qualified ? kDsCpl : 0) |
                      (m.architectural_perfmon() ? kPdcm : 0)) ^
                     behaviour_.enumeration.wrong_features_ecx,
              .edx = kDs ^ behaviour_.enumeration.wrong_features_edx};
    }
    case cpuid::kCaches:
      return as_result(caches_leaf(behaviour_.core.caches, subleaf));
    case cpuid::kFeatures:
      if (!m.architectural_perfmon() || subleaf > 1) return {};
      if (subleaf == 1)
        return behaviour_.extended.announced ? as_result(more_features_leaf(m)) : CpuidResult{};
      return as_result(features_leaf(model::row_of(m, behaviour_.rough)));
    case cpuid::kCore:
      return as_result(core_leaf(m));
    case cpuid::kExtendedPerfmon:
      return as_result(model::extended_leaf(m, behaviour_.extended, subleaf));
    case cpuid::kPerfmon: {
      if (!has_perfmon_leaf()) return {};
      PerfmonLeaf perfmon = perfmon_leaf(m, identity_.sibling_thread);
      perfmon.edx ^= behaviour_.enumeration.wrong_perfmon_edx;
      if (behaviour_.extended.all_counters_in_0ah) {
        const auto counters = static_cast<uint32_t>(std::popcount(m.extended.gp));
        perfmon.eax = (perfmon.eax & ~0xFF00U) | counters << 8;
      }
      return {.eax = perfmon.eax, .ebx = perfmon.ebx, .ecx = perfmon.ecx, .edx = perfmon.edx};
    }
    default:
      return {};
  }
}

Expected<uint64_t> ModelMachine::rdmsr(uint32_t msr) {
  if (msr == IA32_BIOS_SIGN_ID) return uint64_t{identity_.microcode} << 32;
  return pmu_.rdmsr(msr);
}

Expected<Memory> ModelMachine::allocate_here(const MemoryRequest& request) {
  if (request.across_4g) {
    // No program reaches it: the interpreters have arenas of their own.
    if (request.use == MemoryUse::kDebugStore) return linear_.across_4g().allocate(request.bytes);
    return fail(ErrorCode::kInvalidArgument, "memory across 4 GiB is for a debug store alone");
  }
  GuestMemory* from = memory_.get();
  if (request.below_4g) from = SKIDPROOF_TRY(below_4g())->memory.get();
  return from->allocate(request.bytes, request.use, request.huge_pages);
}

// The next block of the circumstances.
Expected<Memory> ModelMachine::allocate_there(const MemoryRequest& request) {
  if (request.low() || blocks_placed_ == circumstances_->blocks.size()) {
    return fail(ErrorCode::kInvalidArgument, "the circumstances tell of no such block");
  }
  const uint64_t address = circumstances_->blocks[blocks_placed_++];
  const bool apart = address - memory_->base() >= memory_->bytes();
  if (!apart) return memory_->allocate_at(address, request.bytes, request.use);
  if (debug_store_ == nullptr) {
    uint64_t lowest = address;
    for (uint64_t block : circumstances_->blocks) {
      if (block - memory_->base() >= memory_->bytes()) lowest = std::min(lowest, block);
    }
    debug_store_ = SKIDPROOF_TRY(GuestMemory::create(lowest & ~(GuestMemory::kHugePageBytes - 1)));
    linear_.add_debug_store(*debug_store_);
  }
  return debug_store_->allocate_at(address, request.bytes, request.use);
}

Expected<Below4G*> ModelMachine::below_4g() {
  if (below_4g_ == nullptr) {
    below_4g_ = SKIDPROOF_TRY(Below4G::create(core_, behaviour_.core));
    linear_.add(*below_4g_->memory);
  }
  return below_4g_.get();
}

Expected<void> ModelMachine::check(const Program& program, const RunPlan& plan) const {
  if (plan.mode == Mode::kReal) SKIDPROOF_CHECK(check_real_mode(program));
  if (plan.mode != program.mode) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is code of {}, and the run is to be in {}", program.id(),
                            name_of(program.mode), name_of(plan.mode)));
  }
  if (plan.mode != Mode::kLong && plan.iterations > UINT32_MAX) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} iterations do not fit 32 bits", plan.iterations));
  }
  return {};
}

bool ModelMachine::may_be_disturbed() const {
  const model::Rough& rough = behaviour_.rough;
  return circumstances_ == nullptr && rough.smi + rough.machine_check + rough.foreign_nmi > 0;
}

// Of those that are still there.
void ModelMachine::save_debug_stores() {
  std::erase_if(debug_stores_,
                [&](Saved& store) { return !linear_.read(store.address, store.bytes); });
}

void ModelMachine::restore_debug_stores() {
  for (const Saved& store : debug_stores_) linear_.write(store.address, store.bytes);
}

// As the driver's machine does.
Expected<RunLog> ModelMachine::run(const Program& program, const RunPlan& plan) {
  SKIDPROOF_CHECK(check(program, plan));
  if (!may_be_disturbed() || !plan.disturbances.empty() || !restarts(plan))
    return run_once(program, plan);
  save_debug_stores();
  return run_undisturbed(
      *this, plan, kUndisturbedAttempts,
      [&](const RunPlan& repeated) { return run_once(program, repeated); },
      [&] { restore_debug_stores(); });
}

Expected<RunLog> ModelMachine::run_once(const Program& program, const RunPlan& plan) {
  const bool is_long = plan.mode == Mode::kLong;
  running_ = is_long ? &interpreter_ : &SKIDPROOF_TRY(below_4g())->interpreter;
  const Memory& stack = is_long ? stack_ : below_4g_->stack;
  if (plan.mode == Mode::kReal) {
    Program as_32_bit_code = program;  // check() saw that it is the same
    as_32_bit_code.mode = Mode::kProtected32;
    SKIDPROOF_CHECK(running_->load(as_32_bit_code));
  } else {
    SKIDPROOF_CHECK(running_->load(program));
  }
  pmu_.set_mode(plan.mode);
  pmu_.set_user(plan.ring == Ring::kUser);
  RunLog log;
  running_->call(
      program.entry, plan.iterations, program.data_address,
      circumstances_ != nullptr ? circumstances_->stack_top : stack.address + stack.host.size());
  for (const MsrWrite& write : plan.enable) {
    auto done = pmu_.wrmsr(write.msr, write.value);
    if (done && driver_ && driver_->take_write(write.msr)) done = accompany(plan, log);
    if (!done) {
      static_cast<void>(pmu_.wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
      return tl::make_unexpected(done.error());
    }
  }
  uint64_t begin = tsc();
  Expected<void> outcome = execute(plan, log);
  if (outcome && driver_) outcome = come_back(plan, log);
  log.tsc = tsc() - begin;
  log.sibling_busy = identity_.sibling_thread && behaviour_.rough.sibling_idle == 0;
  log.result = running_->registers().gpr[static_cast<size_t>(Gpr::kRax)];
  pmu_.set_user(false);  // the code around the program runs in ring 0
  for (const MsrWrite& write : plan.disable) {
    auto done = pmu_.wrmsr(write.msr, write.value);
    if (outcome && !done) outcome = done;
  }
  if (!outcome) return tl::make_unexpected(outcome.error());
  for (uint32_t msr : plan.read) log.read.push_back(SKIDPROOF_TRY(rdmsr(msr)));
  return log;
}

// Runs whole blocks while the PMU promises that nothing can happen, and single instructions
// otherwise.
Expected<void> ModelMachine::execute(const RunPlan& plan, RunLog& log) {
  Clock::time_point deadline = Clock::now() + plan.deadline;
  uint64_t until_look = kSlice;
  model::Retired retired;
  Interpreter& interpreter = *running_;
  auto next = plan.disturbances.begin();
  const std::vector<Coming> outside = draw_outside(plan);
  auto coming = outside.begin();
  uint64_t executed = 0;
  auto until = [&](uint64_t after) { return after > executed ? after - executed : 0; };
  while (!interpreter.finished()) {
    const uint64_t own = next == plan.disturbances.end() ? UINT64_MAX : until(next->after);
    const uint64_t others = coming == outside.end() ? UINT64_MAX : until(coming->after);
    const uint64_t calm = std::min(own, others);
    if (calm == 0 && pmu_.between_instructions()) {
      if (own == 0) {
        ++log.disturbances;
        log.abandoned = next->what == Disturbance::kInit || next->what == Disturbance::kReset;
        disturb((next++)->what, plan);
      } else {
        meet((coming++)->what, plan, log);
      }
      if (log.abandoned) return {};
      continue;
    }
    const uint64_t quiet =
        pmu_.active() ? pmu_.quiet_instructions(interpreter.most_uops(), &interpreter.code_bounds())
                      : UINT64_MAX;
    uint64_t count = std::min(until_look, std::max<uint64_t>(calm, 1));
    if (quiet >= kWorthARun) {
      count = SKIDPROOF_TRY(execute_quietly(std::min(count, quiet)));
    } else {
      const uint64_t most = std::min(count, kTogether);
      count = 0;
      do {
        SKIDPROOF_CHECK(interpreter.step(retired));
        if (driver_) retired.tsc += driver_->clock_offset();
        pmu_.retire(retired);
        core_.stall(pmu_.take_stall());
        ++count;
      } while (count < most && !interpreter.finished() && !pmu_.interrupt_pending());
    }
    if (pmu_.between_instructions() && pmu_.take_interrupt()) {
      SKIDPROOF_CHECK(handle_interrupt(plan, log, interpreter.registers().ip));
    }
    executed += count;
    until_look -= count;
    if (until_look == 0) {
      until_look = kSlice;
      if (Clock::now() > deadline) {
        return fail(ErrorCode::kTimeout,
                    fmt::format("the program still ran after {} ms", plan.deadline.count()),
                    "run fewer iterations, or raise the deadline");
      }
    }
  }
  // An interrupt that is still on its way arrives in the code behind the program.
  while (!driver_ && pmu_.active() && pmu_.quiet_instructions() < kSlice) {
    uint64_t wait = std::max<uint64_t>(pmu_.quiet_instructions(), 1);
    if (!pmu_.interrupt_pending()) break;
    pmu_.advance({}, wait);
    if (pmu_.take_interrupt()) {
      SKIDPROOF_CHECK(handle_interrupt(plan, log, interpreter.registers().ip));
    }
  }
  return {};
}

// Returns how many really ran.
Expected<uint64_t> ModelMachine::execute_quietly(uint64_t instructions) {
  if (!pmu_.active()) return running_->run(instructions);
  const uint64_t executed = SKIDPROOF_TRY(running_->run(instructions, true));
  pmu_.advance(running_->gained(), executed);
  return executed;
}

// The handlers run at CPL 0; afterwards the program goes on, unless the processor begins anew.
void ModelMachine::disturb(Disturbance what, const RunPlan& plan) {
  switch (what) {
    case Disturbance::kSmi:
      pmu_.enter_smm();
      pmu_.set_user(false);
      run_handler(kSmmHandler, core_, pmu_);
      pmu_.set_user(plan.ring == Ring::kUser);
      pmu_.leave_smm();
      break;
    case Disturbance::kMachineCheck:
      pmu_.machine_check();
      interrupted_by(handler_in(plan.mode, kMachineCheckHandler), plan);
      break;
    case Disturbance::kInit:
      pmu_.init();
      break;
    case Disturbance::kReset:
      pmu_.reset();
      break;
  }
}

void ModelMachine::interrupted_by(uint64_t handler, const RunPlan& plan) {
  const uint64_t ip = running_->registers().ip;
  pmu_.transfer(ip, handler);
  pmu_.set_user(false);
  run_handler(handler, core_, pmu_);
  pmu_.transfer(handler, ip);
  pmu_.set_user(plan.ring == Ring::kUser);
}

// In order. Where the plan brings something about by itself nothing else comes.
std::vector<ModelMachine::Coming> ModelMachine::draw_outside(const RunPlan& plan) {
  const model::Rough& rough = behaviour_.rough;
  const std::pair<Outside, double> shares[] = {{Outside::kSmi, rough.smi},
                                               {Outside::kMachineCheck, rough.machine_check},
                                               {Outside::kForeignNmi, rough.foreign_nmi}};
  std::vector<Coming> drawn;
  for (const auto& [what, share] : shares) {
    constexpr uint64_t kOne = uint64_t{1} << 32;
    const auto below = static_cast<uint64_t>(share * static_cast<double>(kOne));
    if (below == 0 || !plan.disturbances.empty() || random_.below(kOne) >= below) continue;
    drawn.push_back({what, random_.below(4 * plan.iterations)});
  }
  std::sort(drawn.begin(), drawn.end(),
            [](const Coming& a, const Coming& b) { return a.after < b.after; });
  return drawn;
}

void ModelMachine::meet(Outside what, const RunPlan& plan, RunLog& log) {
  switch (what) {
    case Outside::kSmi:
      ++log.noise.smi;
      return disturb(Disturbance::kSmi, plan);
    case Outside::kMachineCheck:
      ++log.noise.machine_checks;
      return disturb(Disturbance::kMachineCheck, plan);
    case Outside::kForeignNmi:
      ++log.noise.foreign_nmis;
      return interrupted_by(handler_in(plan.mode, kForeignHandler), plan);
  }
}

// What the driver executes up to its next write, to the program, or to `until`.
Expected<void> ModelMachine::accompany(const RunPlan& plan, RunLog& log, uint64_t until) {
  while (driver_->has_instruction()) {
    const uint64_t next = SKIDPROOF_TRY(driver_->play(running_->vectors()));
    if (pmu_.between_instructions() && pmu_.take_interrupt()) {
      if (handling_) {
        interrupt_waits_ = true;
      } else {
        SKIDPROOF_CHECK(handle_interrupt(plan, log, next));
      }
    }
    if (lab::is_program(next)) {
      driver_->jump();
      return {};
    }
    if (next == until) return {};
  }
  return {};
}

// The driver's handler, as far as the counters run in it, and behind the write that stops them.
Expected<void> ModelMachine::stop_counters(const RunPlan& plan, RunLog& log) {
  driver_->jump();
  SKIDPROOF_CHECK(accompany(plan, log));
  if (!driver_->take_write(IA32_PERF_GLOBAL_CTRL)) {
    return fail(ErrorCode::kExecution,
                "the model machine is interrupted where the lab's driver was not");
  }
  SKIDPROOF_CHECK(pmu_.wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
  return accompany(plan, log);
}

// The handler from there on: its own writes to registers that the plan says nothing of, the last of which lets the
// counters go on.
Expected<void> ModelMachine::restart_counters(const RunPlan& plan, RunLog& log, const Pmi& pmi) {
  uint64_t ctrl = pmi.global_ctrl;
  if (plan.pmi.restore_global_ctrl && !stopped_) ctrl = started_with(plan).value_or(ctrl);
  while (auto write = driver_->next_write()) {
    if (write->msr == IA32_DEBUGCTL) SKIDPROOF_CHECK(pmu_.wrmsr(write->msr, write->value));
    if (write->msr == IA32_PERF_GLOBAL_CTRL) SKIDPROOF_CHECK(pmu_.wrmsr(write->msr, ctrl));
    SKIDPROOF_CHECK(accompany(plan, log, pmi.ip));
    if (write->msr == IA32_PERF_GLOBAL_CTRL) return {};
  }
  return {};
}

// The driver behind the program, until it executes nothing any more that the counters see.
Expected<void> ModelMachine::come_back(const RunPlan& plan, RunLog& log) {
  SKIDPROOF_CHECK(accompany(plan, log));
  while (driver_->has_any_instruction()) {
    const auto write = driver_->next_write();
    if (!write) break;
    if (write->msr == IA32_DEBUGCTL || write->msr == IA32_PERF_GLOBAL_CTRL) {
      SKIDPROOF_CHECK(pmu_.wrmsr(write->msr, write->value));
    }
    stopped_ |= write->msr == IA32_PERF_GLOBAL_CTRL;
    SKIDPROOF_CHECK(accompany(plan, log));
  }
  return {};
}

// What a minimal handler does: look, log, acknowledge. `ip` is the instruction that comes after it.
Expected<void> ModelMachine::handle_interrupt(const RunPlan& plan, RunLog& log, uint64_t ip) {
  Pmi pmi;
  pmi.tsc = tsc();
  pmi.ip = ip;
  pmi.global_status = pmu_.rdmsr(plan.pmi.status_msr).value_or(0);
  pmi.global_ctrl = pmu_.rdmsr(IA32_PERF_GLOBAL_CTRL).value_or(0);
  // The last one may come with the write that stops the counters: of its handler they see nothing, and the journal has
  // nothing more.
  const bool accompanied = driver_ && (pmi.global_ctrl != 0 || driver_->has_any_instruction());
  uint64_t handler = 0;
  if (!driver_) handler = handler_in(plan.mode, kHandler);
  if (accompanied) handler = driver_->next_ip();
  if (handler != 0) pmu_.transfer(pmi.ip, handler);
  pmu_.set_user(false);
  if (accompanied) {
    handling_ = true;
    SKIDPROOF_CHECK(stop_counters(plan, log));
    pmi.global_status = pmu_.rdmsr(plan.pmi.status_msr).value_or(0);
  }
  const size_t field_bytes = std::min<size_t>(plan.pebs_field_bytes, sizeof(uint64_t));
  if (plan.pebs_index_address != 0) {
    pmi.pebs_index = read_field(plan.pebs_index_address, field_bytes);
  }
  if (plan.pebs_buffer_address != 0) {
    pmi.pebs_index =
        plan.pebs_buffer_address + pebs_index::write_bytes(pmu_.rdmsr(IA32_PEBS_INDEX).value_or(0));
  }
  if (plan.bts_index_address != 0) {
    pmi.bts_index = read_field(plan.bts_index_address, field_bytes);
  }
  if (log.pmis.size() < plan.pmi.log_capacity) {
    log.pmis.push_back(pmi);
  } else {
    ++log.pmis_dropped;
  }
  acknowledge(plan, pmi);
  if (accompanied) {
    SKIDPROOF_CHECK(restart_counters(plan, log, pmi));
    handling_ = false;
    if (std::exchange(interrupt_waits_, false)) return handle_interrupt(plan, log, ip);
  }
  if (driver_) return {};
  pmu_.transfer(handler, pmi.ip);
  pmu_.set_user(plan.ring == Ring::kUser);
  return {};
}

void ModelMachine::acknowledge(const RunPlan& plan, const Pmi& pmi) {
  if (plan.pmi.clear_status) {
    // The bits of armed PEBS counters stay: clearing them races with the record (R24).
    const Microarch& m = *identity_.microarch;
    const uint64_t sampling =
        0xFF | m.pebs_counters | uint64_t{m.pebs_fixed_counters} << pebs_enable::kFixedShift;
    const uint64_t pebs =
        sampling_counters(m, [this](uint32_t msr) { return pmu_.rdmsr(msr).value_or(0); }) &
        sampling;
    static_cast<void>(pmu_.wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, pmi.global_status & ~pebs));
  }
  const size_t field_bytes = std::min<size_t>(plan.pebs_field_bytes, sizeof(uint64_t));
  if (plan.pmi.rewind_index) {
    rewind(plan.pebs_index_address, plan.pebs_base_address, field_bytes);
  }
  if (plan.pmi.rewind_branches) {
    rewind(plan.bts_index_address, plan.bts_base_address, field_bytes);
  }
  const std::optional<uint64_t> ctrl = started_with(plan);
  if (plan.pmi.restore_global_ctrl && ctrl && !driver_) {
    static_cast<void>(pmu_.wrmsr(IA32_PERF_GLOBAL_CTRL, *ctrl));
  }
  for (const MsrWrite& write : plan.pmi.acknowledge) {
    static_cast<void>(pmu_.wrmsr(write.msr, write.value));
  }
  if (plan.pmi.unmask && !driver_) {
    uint64_t entry = pmu_.rdmsr(IA32_X2APIC_LVT_PMI).value_or(0);
    static_cast<void>(pmu_.wrmsr(IA32_X2APIC_LVT_PMI, entry & ~lvt::kMasked));
  }
}

// Writes what stands at `base` to `index`; 0: there is no such buffer.
void ModelMachine::rewind(uint64_t index, uint64_t base, size_t field_bytes) {
  if (index == 0) return;
  uint64_t value = read_field(base, field_bytes);
  linear_.write(index, std::as_bytes(std::span(&value, 1)).first(field_bytes));
}

}  // namespace

Expected<std::unique_ptr<Machine>> make_model_machine(const Microarch& microarch,
                                                      const ModelOptions& options) {
  model::Rough rough;
  if (!options.rough.empty()) rough = SKIDPROOF_TRY(model::rough_of(microarch, options.rough));
  model::Behaviour behaviour =
      SKIDPROOF_TRY(model::behaviour_with(microarch, options.defects, rough));
  std::unique_ptr<GuestMemory> memory;
  Memory stack;
  if (const Circumstances* there = options.circumstances.get()) {
    // The page of its top is the last: what stands above it there is no program's.
    const uint64_t end = (there->stack_top | (GuestMemory::kPageBytes - 1)) + 1;
    uint64_t lowest = end - kStackBytes;
    for (uint64_t block : there->blocks) lowest = std::min(lowest, block);
    memory = SKIDPROOF_TRY(GuestMemory::create(lowest & ~(GuestMemory::kHugePageBytes - 1)));
    stack = SKIDPROOF_TRY(memory->allocate_at(end - kStackBytes, kStackBytes, MemoryUse::kData));
  } else {
    memory = SKIDPROOF_TRY(GuestMemory::create());
    stack = SKIDPROOF_TRY(memory->allocate(kStackBytes, MemoryUse::kData, false));
  }
  return std::make_unique<ModelMachine>(microarch, options, behaviour, std::move(memory),
                                        std::move(stack));
}

}  // namespace skidproof::engines
