#include "pebs/engines/lab_processor.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/random.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/defects.h"

namespace skidproof::lab {
namespace {

using namespace arch;

// How many instructions the core model may be ahead of the PMU.
constexpr uint64_t kLongestStretch = 1 << 20;

std::string_view variable(const char* name, std::string_view fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::string_view(value) : fallback;
}

Expected<uint64_t> number(const char* name, uint64_t fallback) {
  const std::string_view text = variable(name, "");
  if (text.empty()) return fallback;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}='{}' is no number", name, text));
  }
  return value;
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) out.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

bool in_range(uint32_t msr, uint32_t first, uint32_t last) { return msr >= first && msr <= last; }

// CFG_C of the last fixed counter that the bank at 1900H has room for.
constexpr uint32_t kLastOfTheBank = IA32_PMC_FX0_CTR + 16 * kBankStride - 1;

// Registers of performance monitoring and debug store: where the model has none, nobody has.
bool is_of_the_pmu(const Microarch& m, uint32_t msr) {
  if (msr == IA32_DS_AREA || msr == IA32_DEBUGCTL || msr == IA32_MISC_ENABLE) return true;
  if (!m.architectural_perfmon()) return in_range(msr, 0x300, 0x3F2);
  return in_range(msr, IA32_PMC0, IA32_PMC0 + 7) ||
         in_range(msr, IA32_PERFEVTSEL0, IA32_PERFEVTSEL0 + 7) ||
         in_range(msr, IA32_A_PMC0, IA32_A_PMC0 + 7) ||
         in_range(msr, IA32_FIXED_CTR0, IA32_FIXED_CTR0 + 3) || msr == MSR_PERF_METRICS ||
         msr == IA32_PERF_CAPABILITIES ||
         in_range(msr, IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_INUSE) ||
         in_range(msr, IA32_PEBS_ENABLE, MSR_PEBS_FRONTEND) || msr == MSR_ARCH_LBR_CTL ||
         (m.perfmon_version >= 6 && in_range(msr, IA32_PMC_GP0_CTR, kLastOfTheBank)) ||
         m.last_branches.has(msr);
}

// Registers that Linux writes and reads back where the processor announces performance monitoring: OFFCORE_RSP;
// LBR_SELECT, where LBR_TOS is too; MCG_STATUS; MSR_ARCH_LBR_DEPTH; and PKG_CST_CONFIG_CONTROL, which it looks into on
// some models. [Linux 6.1 asm/msr-index.h]
bool is_storage(uint32_t msr) {
  return msr == 0xE2 || msr == 0x17A || in_range(msr, 0x1A6, 0x1A7) ||
         in_range(msr, MSR_LBR_SELECT, MSR_LASTBRANCH_TOS) || msr == 0x14CF;
}

// Whether a record may have registers of vectors.
bool records_vectors(const Microarch& m) { return m.pebs_baseline || m.architectural_pebs(); }

// Fast strings are enabled, as firmware leaves them: Linux picks its copy routines by it.
constexpr uint64_t kFastStrings = bit(0);

// CCCRs of NetBurst. [SDM Table 18-67]
constexpr uint32_t kFirstCccr = 0x360, kLastCccr = 0x371;

}  // namespace

Expected<Configuration> configuration_from_environment() {
  Configuration c;
  c.microarch = SKIDPROOF_TRY(find_microarch(variable("SKIDPROOF_LAB_MICROARCH", "sandy-bridge")));
  if (const std::string_view words = variable("SKIDPROOF_LAB_ROUGH", ""); !words.empty()) {
    c.rough = SKIDPROOF_TRY(model::rough_of(*c.microarch, words));
    c.words = model::rough_name(words);
  }
  c.behaviour =
      SKIDPROOF_TRY(behaviour_with(*c.microarch, variable("SKIDPROOF_LAB_DEFECTS", ""), c.rough));
  c.seed = SKIDPROOF_TRY(number("SKIDPROOF_LAB_SEED", 1));
  c.sibling_thread =
      SKIDPROOF_TRY(number("SKIDPROOF_LAB_SIBLING", 0)) != 0 && c.microarch->hyper_threading;
  return c;
}

Expected<model::Behaviour> behaviour_with(const Microarch& microarch, std::string_view defects,
                                          const model::Rough& rough) {
  return model::behaviour_with(microarch, words(defects), rough);
}

Processor::Processor(const Configuration& configuration, unsigned number, Host& host)
    : configuration_(configuration),
      number_(number),
      host_(host),
      core_(std::in_place, configuration.behaviour.core, derive_seed(configuration.seed, "core")),
      observer_(*core_, configuration.behaviour.core, host) {
  make_models(configuration.seed);
}

// The first processor is the one of a model machine with this seed.
void Processor::make_models(uint64_t seed) {
  if (number_ != 0) seed = derive_seed(seed, fmt::format("cpu{}", number_).c_str());
  core_.emplace(configuration_.behaviour.core, derive_seed(seed, "core"));
  pmu_.emplace(*configuration_.microarch,
               model::Topology{.sibling_thread = configuration_.sibling_thread}, host_,
               configuration_.behaviour, seed);
  pmu_->set_user(user_);
  observer_.reset(configuration_.behaviour.core);
  lvt_seen_ = pmu_->rdmsr(IA32_X2APIC_LVT_PMI).value_or(0);
  stretch_ = quiet_ = 0;
}

void Processor::start_again(uint64_t seed) {
  watch(false);
  programmed_ = false;
  make_models(seed);
  if (journal_ != nullptr) journal_->begin(seed);
}

void Processor::reset() { start_again(configuration_.seed); }

void Processor::become(const model::Behaviour& behaviour, bool sibling_thread) {
  configuration_.behaviour = behaviour;
  configuration_.sibling_thread = sibling_thread && configuration_.microarch->hyper_threading;
  reset();
}

void Processor::init() {
  flush();
  pmu_->init();
  programmed_ = programmed();
  watch(programmed_);
}

// --- Instructions

void Processor::halt() {
  bring_tsc_up_to_date();
  halted_ = true;
}

void Processor::before(uint64_t ip, bool user) {
  if (std::exchange(halted_, false)) [[unlikely]] {
    flush();
    tsc_offset_ = host_.tsc() - core_->tsc();
  }
  if (user != user_) {
    flush();
    user_ = user;
    pmu_->set_user(user);
  }
  if (expected_ip_ != ip && expected_ip_ != 0) {
    flush();
    pmu_->transfer(expected_ip_, ip);
  }
  const bool goes_on = keeps_accesses_ && ip == executed_.ip;
  keeps_accesses_ = false;
  if (!goes_on) {
    seen_ = 0;
    repetitions_ = 0;
  }
  executed_.ip = ip;
  executed_.taken = executed_.writes_pmu = false;
  expected_ip_ = 0;
  begun_ = true;
}

void Processor::access(uint64_t address, uint32_t bytes, bool load, bool store) {
  if (!begun_) return;
  if (seen_ > 0) {
    // The second half of an access over a page's end.
    engines::SeenAccess& last = accesses_[seen_ - 1];
    if (last.address + last.bytes == address && (address & 0xFFF) == 0 && last.load == load &&
        last.store == store && repetitions_ == 0) {
      last.bytes += bytes;
      return;
    }
  }
  if (seen_ < kMostAccesses && repetitions_ == 0) {
    accesses_[seen_++] = {address, bytes, load, store};
  }
}

void Processor::after(uint64_t next_ip, bool repeats) {
  if (!begun_) return;
  begun_ = false;
  ++retired_;
  expected_ip_ = next_ip;
  executed_.next_ip = next_ip;
  executed_.repetitions = repeats ? repetitions_ : 1;
  executed_.accesses = {accesses_.data(), seen_};
  if (quiet_ == 0 && !executed_.writes_pmu)
    quiet_ = std::min(pmu_->quiet_instructions(), kLongestStretch);
  if (quiet_ == 0) {
    step();
  } else {
    if (stretch_ == 0) {
      counts_ = {};
      clock_ = core_->clock();
    }
    observer_.follow(executed_, counts_, clock_);
    ++stretch_;
    if (--quiet_ == 0) flush();
  }
  if (stretch_ == 0) look_for_interrupt();
  if (journal_ != nullptr && !is_program(executed_.ip)) [[unlikely]]
    write_down();
  if (!programmed_ && stretch_ == 0 && !pmu_->active()) watch(false);
}

// One instruction that the PMU sees by itself.
void Processor::step() {
  host_.registers(registers_);
  if (records_vectors(*configuration_.microarch)) host_.vectors(vectors_);
  observer_.retire(executed_, registers_, step_);
  step_.tsc += tsc_offset_;
  step_.vectors = &vectors_;
  take_lvt();
  executed_.writes_pmu ? pmu_->retire_write(step_) : pmu_->retire(step_);
  core_->stall(pmu_->take_stall());
  const bool branch = step_.counts[index(Signal::kBranches)] != 0;
  if (!branch && step_.length != 0 && executed_.next_ip != step_.ip + step_.length) {
    pmu_->transfer(step_.ip, executed_.next_ip);
  }
}

void Processor::write_down() {
  host_.registers(registers_);
  journal_->executed(executed_, registers_, host_);
}

// Lets the PMU take part in what the core model has seen.
void Processor::flush() {
  quiet_ = 0;
  if (stretch_ == 0) return;
  core_->settle(counts_, clock_);
  pmu_->advance(counts_, std::exchange(stretch_, 0));
}

// --- Interrupts

// Software writes the entry in the local APIC; the model decides by its own copy.
void Processor::take_lvt() {
  const uint64_t entry = host_.lvt();
  if (entry == lvt_seen_) return;
  lvt_seen_ = entry;
  if (journal_ != nullptr) journal_->lvt(entry);
  static_cast<void>(pmu_->wrmsr(IA32_X2APIC_LVT_PMI, entry));
}

void Processor::lvt_written() {
  take_lvt();
  lvt_seen_ = pmu_->rdmsr(IA32_X2APIC_LVT_PMI).value_or(lvt_seen_);
  host_.set_lvt(static_cast<uint32_t>(lvt_seen_));
}

void Processor::look_for_interrupt() {
  if (!pmu_->between_instructions()) {
    host_.hold_interrupts();
    return;
  }
  if (!pmu_->interrupt_pending()) return;
  take_lvt();
  const auto entry = static_cast<uint32_t>(lvt_seen_);
  if (!pmu_->take_interrupt()) return;
  lvt_seen_ = pmu_->rdmsr(IA32_X2APIC_LVT_PMI).value_or(lvt_seen_);
  host_.set_lvt(static_cast<uint32_t>(lvt_seen_));
  host_.interrupt(entry);
}

// --- Registers

// Whether software lets something count or trace, at whichever privilege level. What stops by itself, as by a
// freeze, goes on being watched: the core runs on.
bool Processor::programmed() const {
  auto read = [&](uint32_t msr) { return pmu_->rdmsr(msr).value_or(0); };
  const BranchTrace& trace = configuration_.microarch->branch_trace;
  if ((read(IA32_DEBUGCTL) & (trace.messages | trace.store)) != 0) return true;
  if (!configuration_.microarch->architectural_perfmon()) {
    for (uint32_t msr = kFirstCccr; msr <= kLastCccr; ++msr) {
      if (read(msr) != 0) return true;
    }
    return false;
  }
  const uint64_t global = read(IA32_PERF_GLOBAL_CTRL);
  const uint64_t fixed = read(IA32_FIXED_CTR_CTRL);
  for (unsigned i = 0; (fixed_bits(*configuration_.microarch) >> i) != 0; ++i) {
    const uint64_t rings = fixed_ctrl::field(i, fixed_ctrl::kOs | fixed_ctrl::kUsr);
    if (((global >> (status::kFixedShift + i)) & 1) != 0 && (fixed & rings) != 0) return true;
  }
  const uint64_t existing =
      gp_bits(*configuration_.microarch, configuration_.microarch->gp_counters_alone);
  for (uint32_t n = 0; (existing >> n) != 0; ++n) {
    const uint32_t select = select_msr(*configuration_.microarch, n);
    if (((global >> n) & 1) != 0 && (read(select) & evtsel::kEnable) != 0) return true;
  }
  return false;
}

void Processor::watch(bool on) {
  if (on == watching_) return;
  if (on) {
    tsc_offset_ = host_.tsc() - core_->tsc();
    if (journal_ != nullptr) journal_->watching(host_.tsc());
    halted_ = false;
    expected_ip_ = 0;
    begun_ = keeps_accesses_ = false;
  } else {
    bring_tsc_up_to_date();
  }
  watching_ = on;
}

void Processor::bring_tsc_up_to_date() {
  if (!watching_ || halted_) return;
  flush();
  tsc_offset_ = host_.set_tsc(core_->tsc() + tsc_offset_) - core_->tsc();
}

Answer Processor::rdmsr(uint32_t msr, uint64_t& value) {
  const Microarch& m = *configuration_.microarch;
  if (msr == IA32_BIOS_SIGN_ID) {
    value = m.models.empty() ? 0 : uint64_t{m.models.front().minimum_microcode} << 32;
    return Answer::kDone;
  }
  if (is_of_the_pmu(m, msr)) {
    flush();
    auto read = pmu_->rdmsr(msr);
    if (!read) return Answer::kGeneralProtection;
    value = *read | (msr == IA32_MISC_ENABLE ? kFastStrings : 0);
    return Answer::kDone;
  }
  if (!is_storage(msr)) return Answer::kNotMine;
  value = storage_[msr];
  return Answer::kDone;
}

Answer Processor::wrmsr(uint32_t msr, uint64_t value) {
  if (msr == IA32_BIOS_SIGN_ID) return Answer::kDone;
  if (is_of_the_pmu(*configuration_.microarch, msr)) {
    flush();
    take_lvt();
    if (!pmu_->wrmsr(msr, value)) return Answer::kGeneralProtection;
    if (journal_ != nullptr) journal_->wrote(msr, value);
    executed_.writes_pmu = begun_;
    programmed_ = programmed();
    watch(programmed_ || pmu_->active());
    return Answer::kDone;
  }
  if (!is_storage(msr)) return Answer::kNotMine;
  storage_[msr] = value;
  return Answer::kDone;
}

std::optional<uint64_t> Processor::rdpmc(uint32_t counter, bool user, bool cr4_pce) {
  flush();
  auto read = pmu_->rdpmc(counter, user, cr4_pce);
  return read ? std::optional<uint64_t>(*read) : std::nullopt;
}

void Processor::set_modes(bool ia32e, Mode code) {
  pmu_->set_mode(ia32e ? Mode::kLong : code == Mode::kReal ? Mode::kReal : Mode::kProtected32);
  observer_.set_mode(code);
}

}  // namespace skidproof::lab
