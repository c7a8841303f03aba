// The prediction, instruction by instruction along the trace.
#include "harness/fuzz/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"

namespace skidproof::fuzz {

using namespace arch;

namespace {

constexpr size_t kRsp = static_cast<size_t>(Gpr::kRsp);
constexpr size_t kRsi = static_cast<size_t>(Gpr::kRsi);
constexpr size_t kRdi = static_cast<size_t>(Gpr::kRdi);

// Whether a counter's value follows from the instructions: without a promise about its records, neither
// does when it is loaded again.
bool predictable(const Meaning& meaning) {
  return !meaning.counts || (meaning.signal.has_value() && meaning.pebs != Pebs::kNoPromise);
}

}  // namespace

unsigned shadow_instructions(const Microarch& microarch) {
  constexpr unsigned kCycles = 8, kInstructionsAUop = 2;
  return kCycles * kInstructionsAUop * microarch.caches.retire_width + kInstructionsAUop;
}

Predictor::Predictor(const RegisterFile& registers, const DebugStorePlan& ds, const Sequence& code)
    : registers_(registers),
      ds_(ds),
      shadow_(shadow_instructions(registers.microarch())),
      fixed_(registers.fixed_counters()),
      index_(ds.index) {
  defined_[kRsi] = defined_[kRdi] = true;
  const auto named = named_registers(code);
  for (unsigned i = 0; i < kSequenceRegisters; ++i) {
    if (named[i]) defined_[kSequenceRegisterNumbers[i]] = true;
  }
}

// Whether PEBS stays armed when its counter is programmed anew, no clause says.
void Predictor::wrote(uint32_t msr) {
  for (unsigned n = 0; n < kCounters; ++n) {
    const bool its_own = msr == IA32_PMC0 + n || msr == IA32_A_PMC0 + n ||
                         msr == IA32_PERFEVTSEL0 + n || msr == IA32_PEBS_ENABLE ||
                         msr == IA32_PERF_GLOBAL_OVF_CTRL;
    if (its_own && counters_[n].arm == Arm::kYes) counters_[n].arm = Arm::kMaybe;
  }
}

uint32_t Predictor::enabled_counters() const {
  return static_cast<uint32_t>(registers_.at(IA32_PEBS_ENABLE) & low_bits(kCounters));
}

// An adaptive record has the groups that MSR_PEBS_DATA_CFG asks for where its counter says so.
size_t Predictor::record_bytes(uint32_t triggering) const {
  const RecordLayout& layout = *registers_.microarch().record;
  if (!layout.adaptive()) return layout.bytes;
  if (layout.architectural) {  // what every counter of a case records
    return architectural::record_bytes(cfg_c::kAux | cfg_c::kGprs, 0);
  }
  size_t bytes = adaptive::kBasicBytes;
  for (unsigned n = 0; n < kCounters; ++n) {
    const bool asks = (registers_.at(IA32_PERFEVTSEL0 + n) & evtsel::kAdaptive) != 0;
    if (((triggering >> n) & 1) == 0 || !asks) continue;
    bytes = adaptive::configured_bytes(registers_.at(MSR_PEBS_DATA_CFG));
  }
  return bytes;
}

bool Predictor::room(uint32_t triggering) const {
  const auto bytes = static_cast<int64_t>(record_bytes(triggering));
  return index_ >= 0 && index_ + bytes <= ds_.maximum;
}

uint64_t Predictor::slot(unsigned n) const {
  const uint64_t value = n < ds_.resets.size() ? ds_.resets[n] : 0;
  return value & gp_counter_mask(registers_.microarch());
}

// Whether the sources promise anything of the events that are still to come to this counter's overflow,
// and of those from one record to the next (R41).
bool Predictor::sustained(unsigned n) const {
  const Microarch& m = registers_.microarch();
  const uint64_t select = registers_.at(IA32_PERFEVTSEL0 + n);
  const Event* event = m.event(static_cast<uint8_t>(select), static_cast<uint8_t>(select >> 8));
  if (event == nullptr) return false;
  const uint64_t least = minimum_period(m, n, *event);
  const auto long_enough = [&](uint64_t start) {
    const uint64_t events = (uint64_t{0} - start) & gp_counter_mask(m);
    return events == 0 || events >= least;
  };
  return long_enough(registers_.at(IA32_PMC0 + n)) && long_enough(slot(n));
}

void Predictor::begin(const Step& run, const Trace& trace, const Observation& seen,
                      uint64_t buffer) {
  run_ = &run;
  trace_ = &trace;
  seen_ = &seen;
  buffer_ = buffer;
  next_ = 0;
  pending_must_ = pending_may_ = 0;
  half_ = wild_ = lost_ = frozen_ = false;
  raises_ = exact_records_ = 0;
  status_ = ever_ = registers_.at(IA32_PERF_GLOBAL_STATUS);
  certain_ = overflow_bit();
  masked_ = (registers_.at(IA32_X2APIC_LVT_PMI) & lvt::kMasked) != 0;
  unsigned counting = 0;
  bool alone = false, pebs = false;
  bool several = false;  // records of more than one size
  for (unsigned n = 0; n < std::min(kCounters, registers_.gp_counters()); ++n) {
    Counter& c = counters_[n];
    // Whether one that nobody could follow has overflowed and waits, nobody knows.
    const bool unseen = c.meaning.counts && c.meaning.pebs != Pebs::kNever && !c.known;
    if (unseen) c.arm = Arm::kMaybe;
    c.meaning = meaning_of(registers_, n, run.value, run.user);
    if (c.meaning.pebs == Pebs::kPdir && !sustained(n)) c.meaning.pebs = Pebs::kNoPromise;
    c.value = registers_.at(IA32_PMC0 + n);
    c.known = predictable(c.meaning);
    if (c.known) certain_ |= bit(n);
    if (!c.meaning.counts) continue;
    ++counting;
    if (c.meaning.pebs == Pebs::kNever) continue;
    alone |= c.meaning.alone;
    wild_ |= c.meaning.pebs == Pebs::kNoPromise || !c.known;
    several |= pebs && registers_.microarch().record->adaptive() &&
               !registers_.microarch().architectural_pebs();
    pebs = true;
  }
  for (unsigned i = 0; i < fixed_.size(); ++i) {
    Counter& c = fixed_[i];
    c.meaning = fixed_meaning_of(registers_, i, run.value, run.user);
    c.value = registers_.at(IA32_FIXED_CTR0 + i);
    c.known = predictable(c.meaning);
    if (c.known) certain_ |= bit(status::kFixedShift + i);
    wild_ |= c.meaning.counts && c.meaning.pebs != Pebs::kNever;
  }
  interrupt_waits_ = false;
  for (unsigned n = 0; n < kCounters; ++n) interrupt_waits_ |= may_wait(n);
  const bool still_frozen = (status_ & status::kCountersFrozen) != 0;
  lost_ = (alone && counting > 1) || (freezes() && interrupts_at_will()) || several || still_frozen;
  if (interrupts_at_will()) forget_cleared();
}

// The handler clears what it read, but leaves PEBS counters alone (R24); when it comes is open.
void Predictor::forget_cleared() {
  if (run_->clear_status && !masked_) certain_ &= enabled_counters();
}

bool Predictor::interrupts_at_will() const {
  auto open = [](const Counter& c) {
    if (!c.meaning.counts || !c.meaning.interrupts) return false;
    // That of a PEBS counter waits for the assist (R34).
    return !c.known || c.meaning.pebs != Pebs::kNever;
  };
  return interrupt_waits_ || std::any_of(counters_.begin(), counters_.end(), open) ||
         std::any_of(fixed_.begin(), fixed_.end(), open);
}

// It waits for the assist (R34), and that of another counter stands for this one, too (R26), whether
// this one still counts or not.
bool Predictor::may_wait(unsigned n) const {
  const Counter& c = counters_[n];
  if (c.meaning.counts || !c.meaning.interrupts || c.meaning.pebs == Pebs::kNever) return false;
  return c.arm != Arm::kNo || (certain_ & bit(n)) == 0 || (status_ & bit(n)) != 0;
}

// --- Records to states

bool Predictor::matches(Record record, const Retirement& state) const {
  if (state.next_ip == 0 ? !outside(record.ip()) : record.ip() != state.next_ip) return false;
  if (((record.flags() ^ state.flags) & kStatusFlags) != 0) return false;
  for (size_t r = 0; r < kGprs; ++r) {
    const uint64_t value = record.gpr(static_cast<Gpr>(r));
    if (r == kRsp || !defined_[r]) {
      // The machine's own: the same throughout.
      if (!place_.empty() && value != frame_[r] + (r == kRsp ? state.gpr[r] : 0)) return false;
    } else if (value != state.gpr[r]) {
      return false;
    }
  }
  return true;
}

std::optional<Violation> Predictor::place_records() {
  place_.clear();
  const std::vector<Retirement>& states = trace_->retired;
  for (const Record record : seen_->records) {
    if (record.has(&RecordLayout::ip)) continue;
    lost_ = true;  // without registers an address alone does not say which iteration it was
    return {};
  }
  size_t at = 0;
  for (size_t k = 0; k < seen_->records.size(); ++k) {
    const Record record = seen_->records[k];
    while (at < states.size() && !matches(record, states[at])) ++at;
    if (at == states.size()) return misplaced(k);
    if (place_.empty()) {
      for (size_t r = 0; r < kGprs; ++r) {
        frame_[r] = record.gpr(static_cast<Gpr>(r)) - (r == kRsp ? states[at].gpr[r] : 0);
      }
    }
    place_.push_back(at++);
  }
  return {};
}

// --- The trace

std::optional<Violation> Predictor::simulate() {
  for (size_t t = 0; t < trace_->retired.size() && !lost_; ++t) {
    if (auto violation = instruction(t)) return violation;
  }
  return {};
}

std::optional<Violation> Predictor::instruction(size_t t) {
  uint32_t must = 0;
  uint32_t may = 0;
  count(t, must, may);
  if (lost_) return {};
  const bool here = next_ < place_.size() && place_[next_] == t;
  if (half_) {
    half_ = false;
    return record(t, pending_must_ | must, pending_may_ | must | may, t - 1);
  }
  if ((must | may) != 0) {
    if (!room(must | may)) {
      // Skipped entirely where the row follows SDM 18.9.1 (D10); elsewhere nothing is said (R46).
      lost_ = !registers_.microarch().full_buffer_sets_ovf;
      return {};
    }
    if (here) return record(t, must, must | may, t);
    const bool pair = trace_->at(t).fuses;
    if (pair && next_ < place_.size() && place_[next_] == t + 1) {
      half_ = true;
      pending_must_ = must;
      pending_may_ = must | may;
      return {};
    }
    // A freeze that comes with the second half may take the record with it: no clause says.
    if (pair && freezes()) {
      lost_ = true;
      return {};
    }
    if (must != 0) return missing(t, must);
    return {};
  }
  if (!here) return {};
  return wild_ ? record(t, 0, 0, t) : unexplained(t);
}

void Predictor::count(size_t t, uint32_t& must, uint32_t& may) {
  const StaticInstruction& instruction = trace_->at(t);
  const bool taken = trace_->retired[t].taken;
  const uint64_t mask = gp_counter_mask(registers_.microarch());
  for (unsigned n = 0; n < kCounters; ++n) {
    Counter& c = counters_[n];
    if (!c.meaning.counts || !c.meaning.signal) continue;
    if (events_of(*c.meaning.signal, instruction, taken).value_or(0) == 0) continue;
    const bool sampled = c.meaning.pebs == Pebs::kOrdinary && c.arm != Arm::kNo;
    if (sampled) {
      const bool armed = c.arm == Arm::kYes && clock_ + t - c.overflow_at > shadow_;
      (armed ? must : may) |= 1u << n;
    }
    c.value = (c.value + 1) & mask;
    if (c.value == 0 && c.known) overflow(n, t, must);
  }
  for (unsigned i = 0; i < fixed_.size(); ++i) {
    Counter& c = fixed_[i];
    if (!c.meaning.counts || !c.meaning.signal) continue;
    c.value = (c.value + 1) & fixed_counter_mask(registers_.microarch());
    if (c.value != 0) continue;
    set_status(bit(status::kFixedShift + i));
    if (c.meaning.interrupts) raise();
  }
}

void Predictor::set_status(uint64_t bits) {
  status_ |= bits;
  ever_ |= bits;
}

void Predictor::overflow(unsigned n, size_t t, uint32_t& must) {
  Counter& c = counters_[n];
  set_status(bit(n));
  if (c.meaning.interrupts) raise();
  if (c.meaning.pebs == Pebs::kPdir) must |= 1u << n;
  if (c.meaning.pebs != Pebs::kOrdinary) return;
  c.arm = Arm::kYes;
  c.overflow_at = clock_ + t;
}

// The next record, written behind instruction t for the event of instruction `eventing`. `sure` triggered
// it; `possible` may have.
std::optional<Violation> Predictor::record(size_t t, uint32_t sure, uint32_t possible,
                                           size_t eventing) {
  if (auto violation = check_contents(next_, t, sure, possible, eventing)) return violation;
  const size_t bytes = seen_->records[next_].bytes().size();
  ++next_;
  ++exact_records_;
  if (std::has_single_bit(possible) && !wild_) sure = possible;
  const uint32_t represented = (static_cast<uint32_t>(status_) & enabled_counters()) | sure;
  for (unsigned n = 0; n < kCounters; ++n) {
    Counter& c = counters_[n];
    if (((represented >> n) & 1) != 0) {  // R17, R19
      c.value = slot(n);
      c.known = predictable(c.meaning);
      c.arm = Arm::kNo;
    } else if (((possible >> n) & 1) != 0) {
      lose_sight_of(n);
    }
  }
  // A fixed counter that is enabled for PEBS and overflowed is loaded too, whether it counts now or not.
  const uint64_t fixed_enabled = registers_.at(IA32_PEBS_ENABLE) >> pebs_enable::kFixedShift &
                                 registers_.microarch().pebs_fixed_counters;
  for (unsigned i = 0; i < fixed_.size(); ++i) {
    if (((fixed_enabled >> i) & 1) == 0) continue;
    fixed_[i].known = false;
    certain_ &= ~bit(status::kFixedShift + i);
  }
  status_ &= ~uint64_t{represented};
  index_ += static_cast<int64_t>(bytes);
  if (index_ >= ds_.threshold) {  // R44
    set_status(overflow_bit());
    raise();
  } else if (!room(enabled_counters()) &&
             (status_ & overflow_bit()) == 0) {  // R45: the sources disagree
    certain_ &= ~overflow_bit();
    ever_ |= overflow_bit();
  }
  return {};
}

// Whether the record was this counter's own remains open, and so does when it overflows next.
void Predictor::lose_sight_of(unsigned n) {
  Counter& c = counters_[n];
  c.known = false;
  certain_ &= ~bit(n);
  wild_ = true;
  if (!c.meaning.interrupts) return;
  forget_cleared();
  lost_ |= freezes();
}

bool Predictor::freezes() const {
  return (registers_.at(IA32_DEBUGCTL) & debugctl::kFreezePerfmonOnPmi) != 0;
}

void Predictor::raise() {
  ++raises_;
  forget_cleared();
  if (!freezes()) return;
  frozen_ = !masked_;
  lost_ = true;  // a few events may still be counted (R53)
}

// --- A run

std::optional<Violation> Predictor::judge(const Step& run, const Trace& trace,
                                          const Observation& seen, uint64_t buffer) {
  begin(run, trace, seen, buffer);
  if (auto violation = place_records()) return violation;
  if (auto violation = simulate()) return violation;
  clock_ += trace.retired.size();
  index_ = seen.index;
  if (lost_) {
    for (Counter& c : counters_) c.arm = Arm::kMaybe;
  }
  for (auto check : {&Predictor::check_interrupts, &Predictor::check_twins}) {
    if (auto violation = (this->*check)()) return violation;
  }
  if (lost_) return {};
  if (auto violation = check_counters()) return violation;
  return check_status(seen.status, "behind the run");
}

}  // namespace skidproof::fuzz
