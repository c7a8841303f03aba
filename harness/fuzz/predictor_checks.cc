// What the predictor compares, and how it says what it found.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "harness/fuzz/predictor.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"

namespace skidproof::fuzz {

using namespace arch;

namespace {

constexpr size_t kStackPointer = static_cast<size_t>(Gpr::kRsp);

constexpr const char* kRegisterNames[kGprs] = {"RAX", "RCX", "RDX", "RBX", "RSP", "RBP",
                                               "RSI", "RDI", "R8",  "R9",  "R10", "R11",
                                               "R12", "R13", "R14", "R15"};

// RFLAGS bits that are 0 in every state of a program: 3, 5, 15 and those above ID (21).
constexpr uint64_t kFlagsZero = bit(3) | bit(5) | bit(15) | ~low_bits(22);
constexpr uint64_t kFlagsOne = bit(1);

Violation violation(Check check, const Clause& clause, std::string expected, std::string seen) {
  return {.check = check,
          .clause = &clause,
          .step = 0,
          .expected = std::move(expected),
          .seen = std::move(seen)};
}

std::string counters_text(uint32_t mask) {
  std::string text;
  for (unsigned n = 0; n < 32; ++n) {
    if (((mask >> n) & 1) == 0) continue;
    fmt::format_to(std::back_inserter(text), "{}PMC{}", text.empty() ? "" : "/", n);
  }
  return text;
}

}  // namespace

bool Predictor::outside(uint64_t ip) const {
  const StaticInstruction& last = trace_->code.back();
  return ip < trace_->code.front().address || ip >= last.address + last.length;
}

std::string Predictor::place(uint64_t ip) const {
  if (outside(ip)) return fmt::format("{:#x} (outside the program)", ip);
  return fmt::format("+{:#x}", ip - trace_->code.front().address);
}

std::string Predictor::record_text(size_t k) const {
  if (k >= seen_->records.size()) return "no further record";
  const Record record = seen_->records[k];
  std::string text =
      fmt::format("record {} with IP {}, RDI {:#x}", k, place(record.ip()), record.gpr(Gpr::kRdi));
  if (k < place_.size()) {
    fmt::format_to(std::back_inserter(text), ", behind instruction {} of the run", place_[k]);
  }
  return text;
}

// Where an access to the machine's own stack went, by the RSP of the records.
uint64_t Predictor::address(const DataAccess& access) const {
  return access.address + (access.stack ? frame_[kStackPointer] : 0);
}

std::optional<Violation> Predictor::misplaced(size_t k) const {
  const Record record = seen_->records[k];
  const size_t from = place_.empty() ? 0 : place_.back() + 1;
  const Retirement* nearest = nullptr;
  size_t least = kGprs + 2;
  for (size_t t = 0; t < trace_->retired.size(); ++t) {
    const Retirement& state = trace_->retired[t];
    if (state.next_ip == 0 ? !outside(record.ip()) : record.ip() != state.next_ip) continue;
    size_t differences = ((record.flags() ^ state.flags) & kStatusFlags) != 0;
    for (size_t r = 0; r < kGprs; ++r) {
      if (r != kStackPointer && defined_[r]) {
        differences += record.gpr(static_cast<Gpr>(r)) != state.gpr[r];
      }
    }
    if (differences == 0 && t < from) {
      return violation(Check::kPlace, clause::D2, "records in the order of the program",
                       record_text(k) + ", which belongs before the record in front of it");
    }
    if (differences < least) nearest = &state;
    least = std::min(least, differences);
  }
  if (nearest == nullptr) {
    return violation(Check::kPlace, clause::R5,
                     "an IP at which the program stands between two instructions", record_text(k));
  }
  std::string expected = "the state behind an instruction of the program";
  std::string seen = record_text(k);
  auto differ = [&](const char* name, uint64_t should, uint64_t is) {
    fmt::format_to(std::back_inserter(expected), ", {} {:#x}", name, should);
    fmt::format_to(std::back_inserter(seen), ", {} {:#x}", name, is);
  };
  for (size_t r = 0; r < kGprs; ++r) {
    const uint64_t value = record.gpr(static_cast<Gpr>(r));
    if (r != kStackPointer && defined_[r] && value != nearest->gpr[r]) {
      differ(kRegisterNames[r], nearest->gpr[r], value);
    } else if (!place_.empty() && (r == kStackPointer || !defined_[r])) {
      const uint64_t should = frame_[r] + (r == kStackPointer ? nearest->gpr[r] : 0);
      if (value != should) differ(kRegisterNames[r], should, value);
    }
  }
  if (((record.flags() ^ nearest->flags) & kStatusFlags) != 0) {
    differ("flags", nearest->flags & kStatusFlags, record.flags() & kStatusFlags);
  }
  return violation(Check::kPlace, clause::R5, std::move(expected), std::move(seen));
}

std::optional<Violation> Predictor::missing(size_t t, uint32_t must) const {
  const bool pdir =
      std::has_single_bit(must) && counters_[std::countr_zero(must)].meaning.pebs == Pebs::kPdir;
  const Retirement& state = trace_->retired[t];
  return violation(
      Check::kRecord, pdir ? clause::R13 : clause::R2,
      fmt::format(
          "a record of {} for the event of +{:#x}, instruction {} of the run: IP {}, RDI {:#x}",
          counters_text(must), trace_->at(t).address - trace_->code.front().address, t,
          state.next_ip == 0 ? "behind the program" : place(state.next_ip),
          state.gpr[static_cast<size_t>(Gpr::kRdi)]),
      record_text(next_));
}

std::optional<Violation> Predictor::unexplained(size_t t) const {
  return violation(
      Check::kExtra, clause::R2,
      fmt::format("no record behind +{:#x}, instruction {} of the run: no armed counter counts it",
                  trace_->at(t).address - trace_->code.front().address, t),
      record_text(next_));
}

// R26: from format 3 on a record names the counters that it is for.
std::optional<Violation> Predictor::check_applicable(size_t k, uint32_t sure) const {
  const Record record = seen_->records[k];
  const uint64_t applicable = record.applicable_counters();
  const uint64_t enabled = registers_.at(IA32_PEBS_ENABLE);
  if (applicable != 0 && (applicable & ~enabled) == 0 && (sure & ~applicable) == 0) return {};
  return violation(Check::kContents, clause::R26,
                   fmt::format("the applicable counters among {:#x}, with {:#x}", enabled, sure),
                   fmt::format("{}, applicable counters {:#x}", record_text(k), applicable));
}

std::optional<Violation> Predictor::check_contents(size_t k, size_t t, uint32_t sure,
                                                   uint32_t possible, size_t eventing) const {
  const Record record = seen_->records[k];
  if ((record.flags() & kFlagsZero) != 0 || (record.flags() & kFlagsOne) == 0) {
    return violation(Check::kContents, clause::P3, "flags with bit 1 set and reserved bits clear",
                     fmt::format("{}, flags {:#x}", record_text(k), record.flags()));
  }
  if (record.layout().global_status != kAbsent) {
    if (auto bad = check_status(record.global_status(), fmt::format("in record {}", k))) return bad;
  }
  if (record.has(&RecordLayout::applicable_counters)) {
    if (auto bad = check_applicable(k, sure)) return bad;
  }
  if (record.has(&RecordLayout::eventing_ip)) {
    // A record behind a fused pair may be of either half.
    const bool half = t > 0 && trace_->at(t - 1).fuses;
    const uint64_t ip = record.eventing_ip();
    if (ip != trace_->at(t).address && !(half && ip == trace_->at(t - 1).address)) {
      return violation(
          Check::kContents, clause::R8,
          "the EventingIP of the instruction in front, " + place(trace_->at(t).address),
          record_text(k) + ", EventingIP " + place(ip));
    }
  }
  if (std::has_single_bit(possible) &&
      counters_[std::countr_zero(possible)].meaning.precise_store) {
    return check_store(k, eventing);
  }
  if (possible == 0) return check_load(k, t);
  return {};
}

// P9, R10: the store that triggered.
std::optional<Violation> Predictor::check_store(size_t k, size_t eventing) const {
  const Record record = seen_->records[k];
  const DataAccess& store = trace_->retired[eventing].store;
  if (record.data_address() != address(store)) {
    return violation(
        Check::kContents, clause::P9,
        fmt::format("the store's linear address, {:#x}", address(store)),
        fmt::format("{}, data linear address {:#x}", record_text(k), record.data_address()));
  }
  const uint64_t locked = trace_->at(eventing).locked ? bit(5) : 0;
  if ((record.data_source() & ~(bit(0) | bit(4))) != locked) {
    return violation(Check::kContents, clause::P9,
                     fmt::format("a store status of {:#x} besides bits 0 and 4", locked),
                     fmt::format("{}, store status {:#x}", record_text(k), record.data_source()));
  }
  if (record.latency() != 0) {
    return violation(Check::kContents, clause::P9, "zero at A8H",
                     fmt::format("{}, latency {}", record_text(k), record.latency()));
  }
  return {};
}

// P11, P12: a load that was slow enough, where load latency is the only counter that can have recorded.
std::optional<Violation> Predictor::check_load(size_t k, size_t t) const {
  const Meaning* only = nullptr;
  for (const Counter& c : counters_) {
    if (!c.meaning.counts || c.meaning.pebs == Pebs::kNever) continue;
    if (only != nullptr) return {};
    only = &c.meaning;
  }
  for (const Counter& c : fixed_) {
    if (c.meaning.counts && c.meaning.pebs != Pebs::kNever) return {};
  }
  if (only == nullptr || !only->load_latency || !only->published) return {};
  if (only->qualified) return {};  // P15
  const Record record = seen_->records[k];
  if (!record.has(&RecordLayout::data_address)) return {};
  bool fits = false;
  for (size_t back = 0; back <= 1 && back <= t; ++back) {
    const size_t eventing = t - back;
    if (back == 1 && !trace_->at(eventing).fuses) continue;
    const DataAccess& load = trace_->retired[eventing].load;
    fits |= load.valid && address(load) == record.data_address();
  }
  if (!fits) {
    return violation(
        Check::kContents, clause::P12, "the linear address of the load in front",
        fmt::format("{}, data linear address {:#x}", record_text(k), record.data_address()));
  }
  const uint64_t threshold = registers_.at(MSR_PEBS_LD_LAT_THRESHOLD);
  if (threshold >= minimum_load_latency_threshold(registers_.microarch()) &&
      record.latency() <= threshold) {
    return violation(Check::kContents, clause::P11,
                     fmt::format("a latency above the threshold, {}", threshold),
                     fmt::format("{}, latency {}", record_text(k), record.latency()));
  }
  return {};
}

std::optional<Violation> Predictor::check_counters() const {
  auto compare = [](const Counter& c, uint64_t seen, const std::string& name) {
    std::optional<Violation> bad;
    if (!c.known || c.value == seen) return bad;
    bad = violation(Check::kCount, c.meaning.pebs == Pebs::kNever ? clause::M13 : clause::R19,
                    fmt::format("{} at {:#x}", name, c.value), fmt::format("{:#x}", seen));
    return bad;
  };
  for (unsigned n = 0; n < seen_->counters.size(); ++n) {
    if (auto bad = compare(counters_[n], seen_->counters[n], fmt::format("IA32_PMC{}", n))) {
      return bad;
    }
  }
  for (unsigned i = 0; i < seen_->fixed.size(); ++i) {
    if (auto bad = compare(fixed_[i], seen_->fixed[i], fmt::format("IA32_FIXED_CTR{}", i))) {
      return bad;
    }
  }
  return {};
}

// Counters without PEBS that are programmed alike count alike, whatever the event.
std::optional<Violation> Predictor::check_twins() const {
  if (frozen_) return {};
  const uint64_t mask = gp_counter_mask(registers_.microarch());
  auto gained = [&](unsigned n) {
    return (seen_->counters[n] - registers_.at(IA32_PMC0 + n)) & mask;
  };
  for (unsigned n = 0; n < seen_->counters.size(); ++n) {
    for (unsigned m = 0; m < n; ++m) {
      const Meaning& a = counters_[m].meaning;
      const Meaning& b = counters_[n].meaning;
      const uint64_t difference =
          registers_.at(IA32_PERFEVTSEL0 + m) ^ registers_.at(IA32_PERFEVTSEL0 + n);
      const bool pebs = ((enabled_counters() >> m | enabled_counters() >> n) & 1) != 0;
      const bool alike = a.counts && b.counts && a.published && b.published && !a.load_latency;
      if (!alike || pebs || (difference & ~evtsel::kInt) != 0 || gained(m) == gained(n)) continue;
      return violation(Check::kCount, clause::M13,
                       fmt::format("as many events on PMC{} as on PMC{}, {:#x}", n, m, gained(m)),
                       fmt::format("{:#x}", gained(n)));
    }
  }
  return {};
}

std::optional<Violation> Predictor::check_status(uint64_t seen, const std::string& where) const {
  const uint64_t gp = low_bits(registers_.gp_counters());
  const uint64_t watched =
      gp | (low_bits(registers_.fixed_counters()) << status::kFixedShift) | overflow_bit();
  // Bits of counters whose events are not predicted may be anything.
  uint64_t open = 0;
  for (unsigned n = 0; n < kCounters; ++n) open |= counters_[n].known ? 0 : bit(n);
  for (unsigned i = 0; i < fixed_.size(); ++i) {
    open |= fixed_[i].known ? 0 : bit(status::kFixedShift + i);
  }
  // An index that no record moved out of the buffer: where that is told, some event that came or not told it. (D14)
  const bool outside_buffer = index_ < 0 || index_ > ds_.maximum;
  if (registers_.microarch().out_of_bounds_signalled && outside_buffer) open |= overflow_bit();
  const uint64_t exact = certain_ & watched & ~open;
  const uint64_t never = watched & ~open & ~ever_;
  if (((seen ^ status_) & exact) == 0 && (seen & never) == 0) return {};
  const uint64_t wrong = ((seen ^ status_) & exact) | (seen & never);
  const Clause* clause = &clause::R17;
  if ((wrong & overflow_bit()) != 0) {
    clause = (status_ & overflow_bit()) != 0 ? &clause::R22 : &clause::R44;
  } else if ((wrong & status_) != 0) {
    clause = (wrong & enabled_counters()) != 0 ? &clause::R4 : &clause::M34;
  }
  return violation(Check::kStatus, *clause,
                   fmt::format("IA32_PERF_GLOBAL_STATUS {} {:#x} in the bits {:#x}", where,
                               status_ & wrong, wrong),
                   fmt::format("{:#x}", seen));
}

std::optional<Violation> Predictor::check_interrupts() const {
  const size_t came = seen_->pmis.size();
  if (masked_ && came > 0) {
    return violation(Check::kInterrupts, clause::R51, "no interrupt: the LVT entry is masked",
                     fmt::format("{}", came));
  }
  if (!run_->unmask && came > 1) {
    return violation(Check::kInterrupts, clause::R51,
                     "one interrupt at most: its delivery masks the LVT entry",
                     fmt::format("{}", came));
  }
  if (!lost_ && !masked_ && !wild_ && !interrupts_at_will()) {
    const uint64_t most = run_->unmask ? raises_ : std::min<uint64_t>(raises_, 1);
    const uint64_t least = std::min<uint64_t>(raises_, 1);
    if (came < least || came > most) {
      return violation(Check::kInterrupts, came < least ? clause::R44 : clause::R35,
                       fmt::format("{} to {} interrupts for {} causes", least, most, raises_),
                       fmt::format("{}", came));
    }
  }
  for (const Pmi& pmi : seen_->pmis) {
    if (auto bad = check_interrupt(pmi)) return bad;
  }
  const bool masked = masked_ || (came > 0 && !run_->unmask);
  if (((seen_->lvt & lvt::kMasked) != 0) != masked) {
    return violation(Check::kInterrupts, clause::R51,
                     fmt::format("the LVT entry {} behind the run", masked ? "masked" : "unmasked"),
                     fmt::format("{:#x}", seen_->lvt));
  }
  return {};
}

std::optional<Violation> Predictor::check_interrupt(const Pmi& pmi) const {
  const bool boundary = outside(pmi.ip) || std::any_of(trace_->code.begin(), trace_->code.end(),
                                                       [&](const StaticInstruction& i) {
                                                         return i.address == pmi.ip;
                                                       });
  if (!boundary) {
    return violation(Check::kInterrupts, clause::R27, "an interrupt between two instructions",
                     "one at " + place(pmi.ip));
  }
  const bool streamlined = registers_.microarch().streamlined_freeze();
  const uint64_t control = freezes() && !streamlined ? 0 : run_->value;
  if (freezes() && streamlined && !run_->clear_status &&
      (pmi.global_status & status::kCountersFrozen) == 0) {
    return violation(Check::kInterrupts, clause::R52, "CTR_Frz set in the handler",
                     fmt::format("IA32_PERF_GLOBAL_STATUS {:#x}", pmi.global_status));
  }
  if (pmi.global_ctrl != control) {
    return violation(Check::kInterrupts, clause::R52,
                     fmt::format("IA32_PERF_GLOBAL_CTRL {:#x} in the handler", control),
                     fmt::format("{:#x}", pmi.global_ctrl));
  }
  // Where only the threshold can have raised it.
  bool other = wild_ || interrupt_waits_;
  for (const Counter& c : counters_) other |= c.meaning.counts && c.meaning.interrupts;
  for (const Counter& c : fixed_) other |= c.meaning.counts && c.meaning.interrupts;
  if (other) return {};
  const auto reached = static_cast<int64_t>(pmi.pebs_index - buffer_);
  if (reached < ds_.threshold) {
    return violation(Check::kInterrupts, clause::R44,
                     fmt::format("an interrupt with the PEBS index at {} or beyond", ds_.threshold),
                     fmt::format("at {}", reached));
  }
  if (!run_->clear_status && (pmi.global_status & overflow_bit()) == 0) {
    return violation(Check::kInterrupts, clause::R21, "OvfBuffer set in the handler",
                     fmt::format("IA32_PERF_GLOBAL_STATUS {:#x}", pmi.global_status));
  }
  return {};
}

}  // namespace skidproof::fuzz
