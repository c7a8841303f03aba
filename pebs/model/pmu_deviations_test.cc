// Every decision of Behaviour shows where it is taken, and nothing of it where it is not: one row each, with what a
// conforming processor does beside it.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/assist.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/flat_memory.h"
#include "pebs/record.h"

namespace skidproof::model {
namespace {

using namespace arch;

constexpr uint64_t kBoth = evtsel::kOs | evtsel::kUsr;

class Cpu {
 public:
  Cpu(std::string_view name, void (*change)(Behaviour&), bool sibling = false)
      : uarch_(**find_microarch(name)) {
    Behaviour behaviour = behaviour_of(uarch_);
    if (change != nullptr) change(behaviour);
    pmu_ =
        std::make_unique<Pmu>(uarch_, Topology{.sibling_thread = sibling}, memory_, behaviour, 1);
    memory_.set_field(uarch_.ds.pebs_base, FlatMemory::kBuffer);
    memory_.set_field(uarch_.ds.pebs_index, FlatMemory::kBuffer);
    buffer(100, 101);
    set(IA32_DS_AREA, FlatMemory::kBase);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  }
  // So many records, and the threshold behind so many.
  void buffer(uint64_t records, uint64_t threshold) {
    memory_.set_field(uarch_.ds.pebs_maximum, FlatMemory::kBuffer + records * bytes());
    memory_.set_field(uarch_.ds.pebs_threshold, FlatMemory::kBuffer + threshold * bytes());
  }
  uint64_t bytes() const { return uarch_.record->bytes; }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    EXPECT_TRUE(done) << std::hex << msr << ": " << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  void count(unsigned n, uint64_t event, uint64_t bits = kBoth | evtsel::kEnable) {
    set(IA32_PERFEVTSEL0 + n, event | bits);
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(n));
  }
  void count_fixed(unsigned i, uint64_t field = 3) {
    set(IA32_FIXED_CTR_CTRL, get(IA32_FIXED_CTR_CTRL) | fixed_ctrl::field(i, field));
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(32 + i));
  }
  void sample(unsigned n, uint64_t event, uint64_t period, uint64_t bits = kBoth) {
    memory_.set_field(uarch_.ds.gp_reset(n), (uint64_t{0} - period) & gp_counter_mask(uarch_));
    set(IA32_PMC0 + n, uint64_t{0} - period);
    set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | bit(n));
    count(n, event, bits | evtsel::kEnable);
  }
  void sample_stores(uint64_t period = 1) { sample(0, 0x82D0, period); }
  void sample_fixed(unsigned i, uint64_t period) {
    fixed_slot(i, low_bits(48) - (period - 1));
    set(IA32_FIXED_CTR0 + i, low_bits(48) - (period - 1));
    set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | bit(pebs_enable::kFixedShift + i));
    count_fixed(i);
  }
  // What the debug store has for a counter.
  void slot(unsigned n, uint64_t value) { memory_.set_field(uarch_.ds.gp_reset(n), value); }
  void fixed_slot(unsigned i, uint64_t value) {
    memory_.set_field(uarch_.ds.fixed_counter_reset(i), value);
  }
  // Counts instructions without PEBS; the first one overflows.
  void overflow_without_pebs(unsigned n) {
    set(IA32_PMC0 + n, ~uint64_t{0});
    count(n, 0xC0);
  }
  // Traces branches into a buffer behind that of PEBS.
  void trace() {
    memory_.set_field(uarch_.ds.bts_base, kBranches);
    memory_.set_field(uarch_.ds.bts_index, kBranches);
    memory_.set_field(uarch_.ds.bts_maximum, kBranches + 100 * uarch_.branch_trace.record->bytes);
    memory_.set_field(uarch_.ds.bts_threshold, kBranches + 0x10000);
    set(IA32_DEBUGCTL, uarch_.branch_trace.messages | uarch_.branch_trace.store);
  }
  uint64_t traced() {
    return (memory_.field(uarch_.ds.bts_index) - kBranches) / uarch_.branch_trace.record->bytes;
  }
  void retire(Signal signal = Signal::kInstructions, uint64_t events = 1, Access load = {},
              Access store = {}) {
    Retired r;
    r.counts[index(signal)] = events;
    r.load = load;
    r.store = store;
    retire(r);
  }
  void special(Special which, Access load = {}) {
    Retired r;
    r.special = which;
    r.load = load;
    if (load.valid) r.counts[index(Signal::kLockedLoads)] = r.counts[index(Signal::kLoads)] = 1;
    retire(r);
  }
  // Interrupts that come within so many instructions, to a handler that unmasks them and clears their status.
  uint64_t interrupts(int instructions) {
    uint64_t delivered = 0;
    for (int i = 0; i < instructions; ++i) {
      retire();
      if (!pmu_->take_interrupt()) continue;
      ++delivered;
      set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    }
    return delivered;
  }
  // A conditional jump.
  void jump(bool taken) {
    Retired r;
    r.counts[index(Signal::kConditional)] = 1;
    r.counts[index(taken ? Signal::kNearTaken : Signal::kConditionalNotTaken)] = 1;
    retire(r);
  }
  void stores(int n) {
    for (int i = 0; i < n; ++i) retire(Signal::kStores);
  }
  void instructions(int n) {
    for (int i = 0; i < n; ++i) retire();
  }
  uint64_t records() {
    return (memory_.field(uarch_.ds.pebs_index) - FlatMemory::kBuffer) / bytes();
  }
  Record record(size_t i = 0) {
    return {memory_.at(FlatMemory::kBuffer + i * bytes()), uarch_.record};
  }
  // Cycles from each instruction to the next.
  void pace(uint64_t cycles) { pace_ = cycles; }
  Pmu& pmu() { return *pmu_; }
  FlatMemory& memory() { return memory_; }
  uint64_t ip() const { return ip_; }

 private:
  static constexpr uint64_t kBranches = FlatMemory::kBuffer + 0xD000;

  // With where and when it retires.
  void retire(Retired r) {
    r.ip = ip_;
    r.length = 4;
    if (r.counts[index(Signal::kInstructions)] == 0) r.counts[index(Signal::kInstructions)] = 1;
    r.cycle = r.tsc = cycle_ += pace_;
    registers_.ip = ip_ += 4;
    r.after = &registers_;
    pmu_->retire(r);
  }

  const Microarch& uarch_;
  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0x1000, cycle_ = 0, pace_ = 100;
};

struct DeviationDecision {
  const char* name;
  void (*change)(Behaviour&);
  uint64_t (*shows)(Cpu&);
  uint64_t conforming, deviating;
  const char* row = "sandy-bridge";
  bool sibling = false;
};

void check(std::span<const DeviationDecision> decisions) {
  for (const DeviationDecision& d : decisions) {
    SCOPED_TRACE(d.name);
    Cpu conforming(d.row, nullptr, d.sibling), deviating(d.row, d.change, d.sibling);
    EXPECT_EQ(d.shows(conforming), d.conforming);
    EXPECT_EQ(d.shows(deviating), d.deviating);
  }
}

TEST(Decisions, OfEnablesAndPrivilege) {
  const DeviationDecision decisions[] = {
      {"EN is needed", [](Behaviour& b) { b.counting.own_enable_needed = false; },
       [](Cpu& c) {
         c.count(0, 0xC0, kBoth);
         c.instructions(3);
         return c.get(IA32_PMC0);
       },
       0, 3},
      {"bit n enables counter n", [](Behaviour& b) { b.counting.global_ctrl_crossed = true; },
       [](Cpu& c) {
         c.set(IA32_PERFEVTSEL0 + 2, 0xC0 | kBoth | evtsel::kEnable);
         c.set(IA32_PERF_GLOBAL_CTRL, bit(3));
         c.instructions(3);
         return c.get(IA32_PMC0 + 2);
       },
       0, 3},
      {"GLOBAL_CTRL is needed", [](Behaviour& b) { b.enable_needs_global = false; },
       [](Cpu& c) {
         c.set(IA32_PERFEVTSEL0 + 2, 0xC0 | kBoth | evtsel::kEnable);
         c.instructions(3);
         return c.get(IA32_PMC0 + 2);
       },
       0, 3},
      {"OS does not count users", [](Behaviour& b) { b.privilege_filters = false; },
       [](Cpu& c) {
         c.count(0, 0xC0, evtsel::kOs | evtsel::kEnable);
         c.pmu().set_user(true);
         c.instructions(3);
         return c.get(IA32_PMC0);
       },
       0, 3},
      {"nor of a PEBS counter", [](Behaviour& b) { b.pebs_privilege_filters = false; },
       [](Cpu& c) {
         c.sample(0, 0xC0, 100, evtsel::kOs);
         c.count(1, 0xC0, evtsel::kOs | evtsel::kEnable);
         c.pmu().set_user(true);
         c.instructions(3);
         return (c.get(IA32_PMC0) - (low_bits(48) - 99)) * 10 + c.get(IA32_PMC0 + 1);
       },
       0, 30},
      {"USR counts users", [](Behaviour& b) { b.counting.privilege_swapped = true; },
       [](Cpu& c) {
         c.count(0, 0xC0, evtsel::kUsr | evtsel::kEnable);
         c.count_fixed(0, fixed_ctrl::kUsr);
         c.instructions(3);
         return c.get(IA32_PMC0) * 10 + c.get(IA32_FIXED_CTR0);
       },
       0, 33},
      {"each counter has its select", [](Behaviour& b) { b.counting.selects_shared = true; },
       [](Cpu& c) {
         c.count(0, 0x82D0);
         c.count(1, 0xC0);
         c.instructions(3);
         return c.get(IA32_PMC0 + 1);
       },
       3, 0},
      {"a change of level loses nothing", [](Behaviour& b) { b.counting.lost_at_privilege = 2; },
       [](Cpu& c) {
         c.count(0, 0xC0);
         c.pmu().set_user(true);
         c.instructions(5);
         return c.get(IA32_PMC0);
       },
       5, 3},
      {"USR alone counts above PMC3", [](Behaviour& b) { b.counting.upper_usr_only_dead = 0xF0; },
       [](Cpu& c) {
         c.count(4, 0xC0, evtsel::kUsr | evtsel::kEnable);
         c.pmu().set_user(true);
         c.instructions(3);
         return c.get(IA32_PMC0 + 4);
       },
       3, 0},
  };
  check(decisions);
}

TEST(Decisions, OfCounting) {
  const DeviationDecision decisions[] = {
      {"none is counted twice", [](Behaviour& b) { b.counting.extra_events = 3; },
       [](Cpu& c) {
         c.count(0, 0xC0);
         c.instructions(9);
         return c.get(IA32_PMC0);
       },
       9, 12},
      {"none is lost", [](Behaviour& b) { b.lost_events = 3; },
       [](Cpu& c) {
         c.count(0, 0xC0);
         c.instructions(9);
         return c.get(IA32_PMC0);
       },
       9, 6},
      {"none is lost on fixed counter 0", [](Behaviour& b) { b.counting.fixed_lost_events = 3; },
       [](Cpu& c) {
         c.count_fixed(0);
         c.count_fixed(1);
         for (int i = 0; i < 9; ++i) c.retire(Signal::kCycles);
         return c.get(IA32_FIXED_CTR0) * 100 + c.get(IA32_FIXED_CTR0 + 1);
       },
       909, 609},
      {"reference cycles run at the TSC's rate",
       [](Behaviour& b) { b.counting.reference_clock_percent = 50; },
       [](Cpu& c) {
         c.count_fixed(1);
         c.count_fixed(2);
         for (int i = 0; i < 10; ++i) c.retire(Signal::kReferenceCycles);
         for (int i = 0; i < 10; ++i) c.retire(Signal::kCycles);
         return c.get(IA32_FIXED_CTR0 + 2) * 100 + c.get(IA32_FIXED_CTR0 + 1);
       },
       1010, 510},
      {"fixed counter 3 counts slots", [](Behaviour& b) { b.counting.slots = false; },
       [](Cpu& c) {
         c.count_fixed(0);
         c.count_fixed(3);
         c.retire(Signal::kSlots, 40);
         return c.get(IA32_FIXED_CTR0 + 3) * 10 + c.get(IA32_FIXED_CTR0);
       },
       401, 1, "ice-lake"},
      {"a start beside a sibling gains nothing",
       [](Behaviour& b) { b.counting.fixed_start_extra = 7; },
       [](Cpu& c) {
         c.count_fixed(1);
         const uint64_t before = c.get(IA32_FIXED_CTR0);
         c.count_fixed(0);
         return before * 100 + c.get(IA32_FIXED_CTR0);
       },
       0, 7, "sandy-bridge", true},
      {"and without one it never does", [](Behaviour& b) { b.counting.fixed_start_extra = 7; },
       [](Cpu& c) {
         c.count_fixed(0);
         return c.get(IA32_FIXED_CTR0);
       },
       0, 0},
      {"a list of counters holds", [](Behaviour& b) { b.counter_lists_hold = false; },
       [](Cpu& c) {
         c.count(5, 0x01CD | 0x0200);
         c.count(2, 0x02CD);
         c.count(3, 0x02CD);
         c.stores(3);
         return c.get(IA32_PMC0 + 2) * 10 + c.get(IA32_PMC0 + 3);
       },
       3, 33},
      {"an event is counted as itself",
       [](Behaviour& b) {
         b.counting.mistake = {Signal::kLoads, Signal::kStores};
       },
       [](Cpu& c) {
         c.count(0, 0x81D0);
         c.count(1, 0x82D0);
         c.stores(3);
         c.retire(Signal::kLoads);
         return c.get(IA32_PMC0) * 10 + c.get(IA32_PMC0 + 1);
       },
       13, 33},
      {"D0H-D3H keep the sibling out", [](Behaviour& b) { b.counting.sibling_leaks = 1; },
       [](Cpu& c) {
         c.count(0, 0x82D0);
         c.count(1, 0x01D1);
         SignalCounts counts{};
         counts[index(Signal::kCycles)] = 1000;
         c.pmu().advance(counts, 0);
         return uint64_t{c.get(IA32_PMC0) > 0} * 10 + (c.get(IA32_PMC0 + 1) > 0);
       },
       0, 10, "ivy-bridge", true},
  };
  check(decisions);
}

// What a counter of both threads has behind a thousand cycles without an event of its own.
template <uint64_t kLevels, bool kFixed, uint64_t kAny>
uint64_t of_the_sibling(Cpu& c) {
  if (kFixed) {
    c.count_fixed(0, kLevels / evtsel::kUsr % 2 * fixed_ctrl::kUsr +
                         kLevels / evtsel::kOs % 2 * fixed_ctrl::kOs +
                         (kAny != 0 ? fixed_ctrl::kAnyThread : 0));
  } else {
    c.count(0, 0xC0, kLevels | kAny | evtsel::kEnable);
  }
  const uint32_t counter = kFixed ? IA32_FIXED_CTR0 : IA32_PMC0;
  SignalCounts counts{};
  counts[index(Signal::kCycles)] = 1000;
  c.pmu().advance(counts, 0);
  const bool seen = c.get(counter) > 0;
  const uint64_t so_far = c.get(counter);
  for (int i = 0; i < 10; ++i) c.retire(Signal::kCycles, 100);
  return uint64_t{seen} * 10 + (c.get(counter) > so_far + 10);
}

TEST(Decisions, OfAnyThread) {
  constexpr auto kAny = evtsel::kAnyThread;
  const auto one_level = [](Behaviour& b) {
    b.counting.any_thread_one_level = AnyThread::kOwn;
    b.counting.any_thread = AnyThread::kBoth;
  };
  const DeviationDecision decisions[] = {
      {"it counts the sibling", [](Behaviour& b) { b.counting.any_thread = AnyThread::kOwn; },
       of_the_sibling<kBoth, false, kAny>, 11, 0, "sandy-bridge", true},
      {"on fixed counters too", [](Behaviour& b) { b.counting.any_thread_on_fixed = false; },
       of_the_sibling<kBoth, true, kAny>, 11, 0, "sandy-bridge", true},
      {"not without the bit", [](Behaviour& b) { b.counting.any_thread_always = true; },
       of_the_sibling<kBoth, false, 0>, 0, 11, "sandy-bridge", true},
      {"not without the bit on fixed counters",
       [](Behaviour& b) { b.counting.any_thread_always = true; }, of_the_sibling<kBoth, true, 0>, 0,
       11, "sandy-bridge", true},
      {"not without a sibling", [](Behaviour& b) { b.counting.any_thread_always = true; },
       of_the_sibling<kBoth, false, kAny>, 0, 0},
      {"at both levels, whatever one level does", one_level, of_the_sibling<kBoth, false, kAny>, 11,
       11, "sandy-bridge", true},
      {"at both levels on fixed counters", one_level, of_the_sibling<kBoth, true, kAny>, 11, 11,
       "sandy-bridge", true},
  };
  check(decisions);
}

// With one of USR and OS the sibling may be counted otherwise than with both. (BDM62)
TEST(Decisions, OfAnyThreadAtOneLevel) {
  const auto sibling_alone = [](Behaviour& b) {
    b.counting.any_thread_one_level = AnyThread::kSibling;
  };
  for (const bool fixed : {false, true}) {
    for (const uint64_t levels : {evtsel::kOs, evtsel::kUsr, kBoth}) {
      for (const bool broken : {false, true}) {
        Cpu c("broadwell", broken ? +sibling_alone : nullptr, true);
        if (levels == evtsel::kUsr) c.pmu().set_user(true);
        if (fixed) {
          c.count_fixed(0, (levels & evtsel::kOs ? fixed_ctrl::kOs : 0) |
                               (levels & evtsel::kUsr ? fixed_ctrl::kUsr : 0) |
                               fixed_ctrl::kAnyThread);
        } else {
          c.count(0, 0xC0, levels | evtsel::kAnyThread | evtsel::kEnable);
        }
        SignalCounts counts{};
        counts[index(Signal::kInstructions)] = 5000;
        counts[index(Signal::kCycles)] = 8;
        c.pmu().advance(counts, 5000);
        const bool own = c.get(fixed ? IA32_FIXED_CTR0 : IA32_PMC0) >= 5000;
        EXPECT_EQ(own, !broken || levels == kBoth) << fixed << levels << broken;
      }
    }
  }
}

TEST(Decisions, OfStatusAndInterrupts) {
  const DeviationDecision decisions[] = {
      {"an overflow sets its bit", [](Behaviour& b) { b.overflow_sets_status = false; },
       [](Cpu& c) {
         c.set(IA32_PMC0 + 2, ~uint64_t{0});
         c.count(2, 0xC0);
         c.set(IA32_FIXED_CTR0 + 1, low_bits(48));
         c.count_fixed(1);
         c.retire(Signal::kCycles);
         return c.get(IA32_PERF_GLOBAL_STATUS);
       },
       bit(2) | bit(33), 0},
      {"under PEBS too", [](Behaviour& b) { b.pebs_overflow_sets_status = false; },
       [](Cpu& c) {
         c.sample_stores();
         c.set(IA32_PMC0 + 2, ~uint64_t{0});
         c.count(2, 0xC0);
         c.stores(1);
         return c.get(IA32_PERF_GLOBAL_STATUS);
       },
       5, 4},
      {"only INT interrupts", [](Behaviour& b) { b.counting.interrupts_without_int = true; },
       [](Cpu& c) {
         c.set(IA32_PMC0, ~uint64_t{0});
         c.count(0, 0xC0);
         c.instructions(1);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 1},
      {"INT interrupts", [](Behaviour& b) { b.overflow_interrupts = false; },
       [](Cpu& c) {
         c.set(IA32_PMC0, ~uint64_t{0});
         c.count(0, 0xC0, kBoth | evtsel::kEnable | evtsel::kInt);
         c.instructions(1);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       1, 0},
      {"only PMI interrupts of a fixed counter",
       [](Behaviour& b) { b.counting.fixed_interrupts_without_pmi = true; },
       [](Cpu& c) {
         c.set(IA32_FIXED_CTR0, low_bits(48));
         c.count_fixed(0);
         c.instructions(1);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 1},
      {"a fixed counter's PMI interrupts", [](Behaviour& b) { b.overflow_interrupts = false; },
       [](Cpu& c) {
         c.set(IA32_FIXED_CTR0, low_bits(48));
         c.count_fixed(0, 3 | fixed_ctrl::kPmi);
         c.instructions(1);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       1, 0},
      {"an overflow under PEBS does not", [](Behaviour& b) { b.pebs_overflow_interrupts = true; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(2);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 1},
      {"the first interrupt freezes", [](Behaviour& b) { b.interrupts_before_freeze = 1; },
       [](Cpu& c) {
         c.set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
         c.set(IA32_PMC0, ~uint64_t{0});
         c.count(0, 0xC0, kBoth | evtsel::kEnable | evtsel::kInt);
         c.instructions(1);
         return c.get(IA32_PERF_GLOBAL_CTRL);
       },
       0, 1},
      {"it freezes where it is asked to", [](Behaviour& b) { b.freeze_always = true; },
       [](Cpu& c) {
         c.set(IA32_PMC0, ~uint64_t{0});
         c.count(0, 0xC0, kBoth | evtsel::kEnable | evtsel::kInt);
         c.instructions(1);
         return c.get(IA32_PERF_GLOBAL_CTRL);
       },
       1, 0},
      {"each comes once", [](Behaviour& b) { b.counting.interrupts_twice = true; },
       [](Cpu& c) {
         c.set(IA32_PMC0, ~uint64_t{0});
         c.count(0, 0xC0, kBoth | evtsel::kEnable | evtsel::kInt);
         uint64_t taken = 0;
         for (int i = 0; i < 500; ++i) {
           c.instructions(1);
           if (!c.pmu().take_interrupt()) continue;
           ++taken;
           c.set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
         }
         return taken;
       },
       1, 2},
      {"the threshold interrupts behind the record",
       [](Behaviour& b) { b.threshold_interrupts_at_arming = true; },
       [](Cpu& c) {
         c.buffer(9, 1);
         c.sample_stores();
         c.stores(1);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 1},
  };
  check(decisions);
}

TEST(Decisions, OfArming) {
  const DeviationDecision decisions[] = {
      {"the very next event", [](Behaviour& b) { b.extra_events = 2; },
       [](Cpu& c) {
         c.sample_stores();
         uint64_t n = 0;
         for (; c.records() == 0 && n < 20; ++n) c.stores(1);
         return n;
       },
       2, 4},
      {"of each overflow", [](Behaviour& b) { b.late_armings = 2; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(20);
         return c.records();
       },
       10, 8},
      {"each overflow arms", [](Behaviour& b) { b.lost_armings = 2; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(20);
         return c.records();
       },
       10, 1},
      {"whatever the period is", [](Behaviour& b) { b.least_period = 5; },
       [](Cpu& c) {
         c.sample_stores(4);
         c.stores(20);
         return c.records();
       },
       4, 0},
      {"and a longer one", [](Behaviour& b) { b.least_period = 5; },
       [](Cpu& c) {
         c.sample_stores(5);
         c.stores(20);
         return c.records();
       },
       3, 3},
      {"disabling PEBS disarms", [](Behaviour& b) { b.arming_survives_disable = true; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(1);
         c.set(IA32_PEBS_ENABLE, 0);
         c.set(IA32_PEBS_ENABLE, 1);
         c.stores(1);
         return c.records();
       },
       0, 1},
      {"stopping records nothing", [](Behaviour& b) { b.record_at_disable = true; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(1);
         c.set(IA32_PERF_GLOBAL_CTRL, 0);
         return c.records();
       },
       0, 1},
      {"a counter that stands stays as it is", [](Behaviour& b) { b.record_at_disable = true; },
       [](Cpu& c) {
         c.sample_stores(5);
         c.stores(1);
         c.set(IA32_PERF_GLOBAL_CTRL, 0);
         return c.records();
       },
       0, 0},
      {"the event behind the overflow", [](Behaviour& b) { b.record_on_overflow = true; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(1);
         return c.records();
       },
       0, 1},
      {"the event, not the next instruction", [](Behaviour& b) { b.record_without_event = true; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(1);
         c.instructions(1);
         return c.records();
       },
       0, 1},
      {"where PEBS is enabled", [](Behaviour& b) { b.pebs_without_enable = true; },
       [](Cpu& c) {
         c.sample_stores();
         c.set(IA32_PEBS_ENABLE, 0);
         c.stores(2);
         return c.records();
       },
       0, 1},
      {"without qualifiers", [](Behaviour& b) { b.ignored_qualifiers = 0xF; },
       [](Cpu& c) {
         c.sample(0, 0x82D0 | evtsel::kEdge | uint64_t{1} << evtsel::kCmaskShift, 1);
         c.stores(1);
         c.instructions(3);
         c.stores(1);
         c.instructions(3);
         c.stores(1);
         c.instructions(3);
         return uint64_t{c.records() > 0};
       },
       0, 1},
      {"PDIR with a freeze", [](Behaviour& b) { b.pdir_with_freeze = false; },
       [](Cpu& c) {
         c.set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
         c.sample(1, 0x01C0, 3);
         c.instructions(3);
         return c.records();
       },
       1, 0},
      {"PDIR without one", [](Behaviour& b) { b.pdir_with_freeze = false; },
       [](Cpu& c) {
         c.sample(1, 0x01C0, 3);
         c.instructions(3);
         return c.records();
       },
       1, 1},
      {"PDIR without PMC0", [](Behaviour& b) { b.pdir_needs_pmc0 = true; },
       [](Cpu& c) {
         c.sample(1, 0x01C0, 3);
         c.instructions(3);
         return c.records();
       },
       1, 0},
      {"PDIR whatever the period is", [](Behaviour& b) { b.pdir_least_period = 4; },
       [](Cpu& c) {
         c.sample(1, 0x01C0, 3);
         c.instructions(3);
         return c.records();
       },
       1, 0},
      {"PDIR's event elsewhere like any other", [](Behaviour& b) { b.pdir_event_at_once = true; },
       [](Cpu& c) {
         c.sample(0, 0x01C0, 1);
         c.instructions(1);
         c.pace(1);
         c.instructions(1);
         return c.records();
       },
       0, 1},
      {"instructions on fixed counter 0", [](Behaviour& b) { b.fixed_counters_swapped = true; },
       [](Cpu& c) {
         c.sample_fixed(0, 1);
         c.retire(Signal::kCycles);
         c.instructions(1);
         return c.records();
       },
       1, 0, "alder-lake-p"},
      {"two of one event in one record", [](Behaviour& b) { b.status_of_lowest_only = true; },
       [](Cpu& c) {
         c.sample(0, 0x82D0, 1);
         c.sample(1, 0x82D0, 1);
         c.stores(2);
         return c.records() * 100 + c.record().global_status();
       },
       103, 101},
  };
  check(decisions);
}

TEST(Decisions, OfRecords) {
  const DeviationDecision decisions[] = {
      {"IP is behind the instruction", [](Behaviour& b) { b.skid_instructions = 0; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(2);
         return c.record().ip();
       },
       0x1008, 0x1004},
      {"one behind", [](Behaviour& b) { b.skid_instructions = 2; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(3);
         return c.record().ip();
       },
       0x1008, 0x100C},
      {"at one level too", [](Behaviour& b) { b.one_level_skid = 1; },
       [](Cpu& c) {
         c.sample(0, 0x82D0, 1, evtsel::kOs);
         c.stores(3);
         return c.record().ip();
       },
       0x1008, 0x100C},
      {"and at both", [](Behaviour& b) { b.one_level_skid = 1; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(3);
         return c.record().ip();
       },
       0x1008, 0x1008},
      {"and of a fixed counter", [](Behaviour& b) { b.one_level_skid = 1; },
       [](Cpu& c) {
         c.sample_fixed(1, 1);
         for (int i = 0; i < 2; ++i) c.retire(Signal::kCycles);
         return c.records();
       },
       1, 1, "ice-lake"},
      {"the status before the record", [](Behaviour& b) { b.status_before_assist = false; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(2);
         return c.record().global_status();
       },
       1, 0},
      {"of all counters", [](Behaviour& b) { b.status_all_counters = false; },
       [](Cpu& c) {
         c.set(IA32_PMC0 + 2, ~uint64_t{0});
         c.count(2, 0xC0);
         c.sample_stores();
         c.stores(2);
         return c.record().global_status();
       },
       5, 1},
      {"fixed ones, too", [](Behaviour& b) { b.status_fixed_counters = false; },
       [](Cpu& c) {
         c.set(IA32_FIXED_CTR0, low_bits(48));
         c.count_fixed(0);
         c.sample_stores();
         c.stores(2);
         return c.record().global_status();
       },
       1 | bit(32), 1},
      {"a record clears its bit", [](Behaviour& b) { b.record_clears_status = false; },
       [](Cpu& c) {
         c.set(IA32_PMC0 + 2, ~uint64_t{0});
         c.count(2, 0xC0);
         c.sample_stores();
         c.stores(2);
         return c.get(IA32_PERF_GLOBAL_STATUS);
       },
       4, 5},
      {"and no other", [](Behaviour& b) { b.record_clears_all_status = true; },
       [](Cpu& c) {
         c.set(IA32_PMC0 + 2, ~uint64_t{0});
         c.count(2, 0xC0);
         c.sample_stores();
         c.stores(2);
         return c.get(IA32_PERF_GLOBAL_STATUS);
       },
       4, 0},
      {"the index moves by a record", [](Behaviour& b) { b.index_step = 0xB0; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(2);
         return c.records();
       },
       1, 2},
      {"the index moves", [](Behaviour& b) { b.index_updates = false; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(2);
         return c.records() * 10 + (c.record().ip() == 0x1008);
       },
       11, 1},
      {"it is reloaded", [](Behaviour& b) { b.reload = Reload::kNone; },
       [](Cpu& c) {
         c.sample_stores(7);
         c.stores(8);
         return c.get(IA32_PMC0);
       },
       low_bits(48) - 6, 1},
      {"from its own slot", [](Behaviour& b) { b.reload_single_slot = true; },
       [](Cpu& c) {
         c.sample(1, 0x82D0, 7);
         c.stores(8);
         return c.get(IA32_PMC0 + 1);
       },
       low_bits(48) - 6, 0},
      {"whatever software made of its status", [](Behaviour& b) { b.reload_needs_status = true; },
       [](Cpu& c) {
         c.sample_stores(7);
         c.stores(7);
         c.set(IA32_PERF_GLOBAL_OVF_CTRL, 1);
         c.stores(1);
         return c.get(IA32_PMC0);
       },
       low_bits(48) - 6, 1},
      {"and no counter without PEBS", [](Behaviour& b) { b.reload = Reload::kAnyOverflowed; },
       [](Cpu& c) {
         c.slot(2, 0x77);
         c.overflow_without_pebs(2);
         c.sample_stores();
         c.stores(2);
         return c.get(IA32_PMC0 + 2);
       },
       1, 0x77},
      {"nor fixed counter without PEBS", [](Behaviour& b) { b.reload = Reload::kAnyOverflowed; },
       [](Cpu& c) {
         c.fixed_slot(0, 0x77);
         c.set(IA32_FIXED_CTR0, low_bits(48));
         c.count_fixed(0);
         c.sample_stores();
         c.stores(2);
         return c.get(IA32_FIXED_CTR0);
       },
       1, 0x77, "ice-lake"},
      {"nor one that has no slot", [](Behaviour& b) { b.reload = Reload::kAnyOverflowed; },
       [](Cpu& c) {
         c.set(IA32_FIXED_CTR0, low_bits(48));
         c.count_fixed(0);
         c.sample_stores();
         c.stores(2);
         return c.get(IA32_FIXED_CTR0);
       },
       1, 1},
      {"an event that PEBS does not take reloads nothing",
       [](Behaviour& b) { b.reload_without_record = true; },
       [](Cpu& c) {
         c.sample(1, 0xC4, 7);
         for (int i = 0; i < 7; ++i) c.retire(Signal::kBranches);
         return c.get(IA32_PMC0 + 1);
       },
       0, low_bits(48) - 6},
      {"nor does a counter without PEBS", [](Behaviour& b) { b.reload_without_record = true; },
       [](Cpu& c) {
         c.slot(1, 0x77);
         c.overflow_without_pebs(1);
         c.instructions(1);
         return c.get(IA32_PMC0 + 1);
       },
       0, 0},
      {"with zero, too", [](Behaviour& b) { b.reload_skips_zero = true; },
       [](Cpu& c) {
         c.sample(1, 0x82D0, 0);
         c.set(IA32_PMC0 + 1, ~uint64_t{0});
         c.stores(2);
         return c.get(IA32_PMC0 + 1);
       },
       0, 1},
      {"a full buffer reloads nothing", [](Behaviour& b) { b.skip_reloads = true; },
       [](Cpu& c) {
         c.buffer(0, 9);
         c.sample_stores(7);
         c.stores(8);
         return c.get(IA32_PMC0);
       },
       1, low_bits(48) - 6},
      {"nor clears it anything", [](Behaviour& b) { b.skip_clears_status = true; },
       [](Cpu& c) {
         c.buffer(0, 9);
         c.overflow_without_pebs(2);
         c.sample_stores(7);
         c.stores(8);
         return c.get(IA32_PERF_GLOBAL_STATUS) & 5;
       },
       5, 4},
      {"it interrupts no more", [](Behaviour& b) { b.skip_interrupts = true; },
       [](Cpu& c) {
         c.buffer(0, 9);
         c.sample_stores(7);
         c.stores(8);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 1},
      {"nor changes it a register", [](Behaviour& b) { b.resumes_after_rewind = false; },
       [](Cpu& c) {
         c.buffer(0, 9);
         c.set(IA32_FIXED_CTR_CTRL, fixed_ctrl::adaptive(0));
         c.sample_stores();
         c.stores(2);
         return c.get(IA32_FIXED_CTR_CTRL);
       },
       fixed_ctrl::adaptive(0), fixed_ctrl::adaptive(0), "ice-lake"},
      {"outside IA-32e mode too", [](Behaviour& b) { b.legacy_mode_records = false; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(2);
         const uint64_t in_long_mode = c.records();
         c.pmu().set_mode(Mode::kProtected32);
         c.stores(2);
         return 10 * in_long_mode + c.records();
       },
       12, 11},
      {"rewound, it records again", [](Behaviour& b) { b.latched = true; },
       [](Cpu& c) {
         c.buffer(1, 9);
         c.sample_stores(1);
         c.stores(2);
         c.buffer(3, 9);
         c.stores(6);
         return c.records();
       },
       3, 1},
  };
  check(decisions);
}

TEST(Decisions, OfRedundantRecords) {
  const auto pdir_beside_stores = [](Cpu& c) {
    c.sample(1, 0x01C0, 3);
    c.sample_stores(1000);
    c.instructions(4);
    return c.records();
  };
  const auto pdir_alone = [](Cpu& c) {
    c.sample(1, 0x01C0, 3);
    c.instructions(4);
    return c.records();
  };
  const DeviationDecision decisions[] = {
      {"none", [](Behaviour& b) { b.redundant = Redundant::kNowAndThen; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(17);
         return c.records();
       },
       8, 9},
      {"each fixed counter is reloaded", [](Behaviour& b) { b.redundant = Redundant::kNowAndThen; },
       [](Cpu& c) {
         c.sample_fixed(1, 1000);
         c.set(IA32_FIXED_CTR0 + 1, low_bits(48));
         for (int i = 0; i < 2; ++i) c.retire(Signal::kCycles);
         return c.get(IA32_FIXED_CTR0 + 1);
       },
       low_bits(48) - 999, low_bits(48) - 999, "ice-lake"},
      {"of PDIR in company", [](Behaviour& b) { b.redundant = Redundant::kPdirNotAlone; },
       pdir_beside_stores, 1, 2},
      {"of PDIR alone", [](Behaviour& b) { b.redundant = Redundant::kPdirNotAlone; }, pdir_alone, 1,
       1},
      {"of PDIR whatever its period is", [](Behaviour& b) { b.redundant = Redundant::kLowSixBits; },
       pdir_alone, 1, 2},
      {"with a multiple of 64", [](Behaviour& b) { b.redundant = Redundant::kLowSixBits; },
       [](Cpu& c) {
         c.sample(1, 0x01C0, 64);
         c.instructions(65);
         return c.records();
       },
       1, 1},
  };
  check(decisions);
}

// Each has its trigger, and does nothing without.
TEST(Decisions, OfErrata) {
  const auto fixed_zero_interrupts = [](Cpu& c) {
    c.set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
    c.set(IA32_FIXED_CTR0, low_bits(48));
    c.count_fixed(0, 0xB);
    return c.interrupts(400);
  };
  const auto both_fixed_overflow = [](Cpu& c) {
    c.set(IA32_FIXED_CTR0, low_bits(48));
    c.set(IA32_FIXED_CTR0 + 1, low_bits(48) - 1);
    c.count_fixed(0);
    c.count_fixed(1);
    for (int i = 0; i < 3; ++i) c.retire(Signal::kCycles);
    return c.get(IA32_PERF_GLOBAL_STATUS) >> 32;
  };
  const auto twice = [](Behaviour& b) { b.counting.fixed_zero_interrupts_twice = true; };
  const auto lost = [](Behaviour& b) { b.counting.close_fixed_overflows_lost = true; };
  const auto short_cycles = [](Behaviour& b) { b.redundant = Redundant::kShortCycles; };
  const auto cpuid = [](Behaviour& b) { b.counting.cpuid_is_branch = true; };
  const auto fence = [](Behaviour& b) { b.counting.fence_is_store = true; };
  const auto locked = [](Behaviour& b) { b.counting.locked_l2_hits_lost = true; };
  const auto large = [](Behaviour& b) { b.counting.large_fixed_two_interrupts = true; };
  const auto shadow = [](Behaviour& b) { b.shadow_skid = 1; };
  const DeviationDecision decisions[] = {
      {"fixed counter 0 interrupts once", twice, fixed_zero_interrupts, 1, 2, "sandy-bridge", true},
      {"alone in the core, too", twice, fixed_zero_interrupts, 1, 1},
      {"and without the freeze", twice,
       [](Cpu& c) {
         c.set(IA32_FIXED_CTR0, low_bits(48));
         c.count_fixed(0, 0xB);
         return c.interrupts(400);
       },
       1, 1, "sandy-bridge", true},
      {"two overflows show", lost,
       [](Cpu& c) {
         c.set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
         c.set(IA32_FIXED_CTR0, low_bits(48));
         c.set(IA32_FIXED_CTR0 + 1, low_bits(48) - 1);
         c.count_fixed(0);
         c.count_fixed(1);
         for (int i = 0; i < 3; ++i) c.retire(Signal::kCycles);
         return c.get(IA32_PERF_GLOBAL_STATUS) >> 32;
       },
       3, 1},
      {"far from one another", lost,
       [](Cpu& c) {
         c.set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
         c.pace(5000);
         c.set(IA32_FIXED_CTR0, low_bits(48));
         c.set(IA32_FIXED_CTR0 + 1, low_bits(48) - 1);
         c.count_fixed(0);
         c.count_fixed(1);
         for (int i = 0; i < 3; ++i) c.retire(Signal::kCycles);
         return c.get(IA32_PERF_GLOBAL_STATUS) >> 32;
       },
       3, 3},
      {"without the freeze", lost, both_fixed_overflow, 3, 3},
      {"a write does not interrupt", large,
       [](Cpu& c) {
         c.count_fixed(2, 0xA);
         c.set(IA32_FIXED_CTR0 + 2, low_bits(48) - 0x3E);
         c.set(IA32_FIXED_CTR0 + 2, 0);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 1},
      {"of a counter that stands lower", large,
       [](Cpu& c) {
         c.count_fixed(2, 0xA);
         c.set(IA32_FIXED_CTR0 + 2, low_bits(48) - 0x3F);
         c.set(IA32_FIXED_CTR0 + 2, 0);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 0},
      {"of one that may not interrupt", large,
       [](Cpu& c) {
         c.count_fixed(2, 0x2);
         c.set(IA32_FIXED_CTR0 + 2, low_bits(48));
         c.set(IA32_FIXED_CTR0 + 2, 0);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 0},
      {"of another", large,
       [](Cpu& c) {
         c.count_fixed(1, 0xA);
         c.set(IA32_FIXED_CTR0 + 1, low_bits(48));
         c.set(IA32_FIXED_CTR0 + 1, 0);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 0},
      {"selects read as written", [](Behaviour& b) { b.counting.upper_selects_misread = true; },
       [](Cpu& c) {
         c.set(IA32_PERFEVTSEL0 + 3, 0xC0);
         c.set(IA32_PERFEVTSEL0 + 7, 0xC4);
         return c.get(IA32_PERFEVTSEL0 + 3) << 8 | c.get(IA32_PERFEVTSEL0 + 7);
       },
       0xC0C4, 0xC0C0},
      {"a trace's status can be set",
       [](Behaviour& b) { b.generation.status_set_refused = status::kTraceToPa; },
       [](Cpu& c) {
         return uint64_t{
             c.pmu().wrmsr(IA32_PERF_GLOBAL_STATUS_SET, status::kTraceToPa).has_value()};
       },
       1, 0, "skylake"},
      {"an SMI leaves the freeze", [](Behaviour& b) { b.modes.smi_clears_freeze = true; },
       [](Cpu& c) {
         c.set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi | debugctl::kFreezeWhileSmm);
         c.pmu().enter_smm();
         c.pmu().leave_smm();
         return c.get(IA32_DEBUGCTL);
       },
       debugctl::kFreezePerfmonOnPmi | debugctl::kFreezeWhileSmm, debugctl::kFreezeWhileSmm},
      {"cycles are recorded once", short_cycles,
       [](Cpu& c) {
         c.sample(0, 0x01C2, 150, kBoth | evtsel::kInvert | uint64_t{16} << evtsel::kCmaskShift);
         c.instructions(5);
         return c.records();
       },
       1, 2},
      {"of a period of 1000, too", short_cycles,
       [](Cpu& c) {
         c.sample(0, 0x01C2, 1000, kBoth | evtsel::kInvert | uint64_t{16} << evtsel::kCmaskShift);
         c.instructions(14);
         return c.records();
       },
       1, 1},
      {"INV with CMASK may record nothing",
       [](Behaviour& b) {
         b.rough.disputed_qualifiers = 0;
         b.qualified_cycles = true;
       },
       [](Cpu& c) {
         c.sample(0, 0x01C2, 150, kBoth | evtsel::kInvert | uint64_t{16} << evtsel::kCmaskShift);
         c.instructions(5);
         return c.records();
       },
       1, 1},
      {"or be ignored",
       [](Behaviour& b) {
         b.rough.disputed_qualifiers = 2;
         b.qualified_cycles = true;
       },
       [](Cpu& c) {
         c.sample(0, 0x01C2, 150, kBoth | evtsel::kInvert | uint64_t{16} << evtsel::kCmaskShift);
         c.instructions(5);
         return c.records();
       },
       1, 1},
      {"and without INV", short_cycles,
       [](Cpu& c) {
         c.sample_stores(3);
         c.stores(5);
         return c.records();
       },
       1, 1},
      {"CPUID is no branch", cpuid,
       [](Cpu& c) {
         c.count(0, 0x00C4);
         c.count(1, 0x00C0);
         c.special(Special::kCpuid);
         c.special(Special::kMfence);
         return c.get(IA32_PMC0) * 10 + c.get(IA32_PMC0 + 1);
       },
       2, 12},
      {"MFENCE and WRMSR are no stores", fence,
       [](Cpu& c) {
         c.count(0, 0x020B);
         for (Special which : {Special::kMfence, Special::kWrmsr, Special::kCpuid}) {
           c.special(which);
         }
         return c.get(IA32_PMC0);
       },
       0, 2, "nehalem"},
      {"locked loads count wherever they hit", locked,
       [](Cpu& c) {
         c.count(0, 0x21D0);
         for (uint8_t source : {1, 3, 4}) {
           c.special(Special::kNone, {.valid = true, .locked = true, .source = source});
         }
         return c.get(IA32_PMC0);
       },
       3, 2, "haswell"},
      {"far loads count", [](Behaviour& b) { b.counting.far_loads_lost_percent = 20; },
       [](Cpu& c) {
         c.count(0, 0x04D1);
         c.count(1, 0x02D1);
         for (int i = 0; i < 10; ++i) c.retire(Signal::kLoadsL3Hit);
         for (int i = 0; i < 10; ++i) c.retire(Signal::kLoadsL2Hit);
         return c.get(IA32_PMC0) * 100 + c.get(IA32_PMC0 + 1);
       },
       1010, 810, "haswell"},
      {"a late status can be cleared", [](Behaviour& b) { b.counting.late_status_sticks = true; },
       [](Cpu& c) {
         c.overflow_without_pebs(0);
         c.instructions(8);
         c.set(IA32_PERF_GLOBAL_CTRL, 0);
         c.set(IA32_PERF_GLOBAL_OVF_CTRL, 1);
         return c.get(IA32_PERF_GLOBAL_STATUS);
       },
       0, 1},
      {"and one that is not late", [](Behaviour& b) { b.counting.late_status_sticks = true; },
       [](Cpu& c) {
         c.overflow_without_pebs(0);
         c.instructions(9);
         c.set(IA32_PERF_GLOBAL_CTRL, 0);
         c.set(IA32_PERF_GLOBAL_OVF_CTRL, 1);
         return c.get(IA32_PERF_GLOBAL_STATUS);
       },
       0, 0},
      {"nothing is late behind MOV SS", shadow,
       [](Cpu& c) {
         c.sample(0, 0x01C0, 1);
         for (int i = 0; i < 4; ++i) c.special(Special::kShadow);
         return c.record().ip();
       },
       0x1008, 0x100C, "nehalem"},
      {"nor behind others", shadow,
       [](Cpu& c) {
         c.sample(0, 0x01C0, 1);
         for (int i = 0; i < 4; ++i) c.special(Special::kMfence);
         return c.record().ip();
       },
       0x1008, 0x1008, "nehalem"},
  };
  check(decisions);
}

// Which instruction it is a sum of counts does not say.
TEST(Decisions, AMistakeNeedsEachInstruction) {
  Cpu conforming("nehalem", nullptr);
  Cpu mistaken("nehalem", [](Behaviour& b) { b.counting.fence_is_store = true; });
  for (Cpu* c : {&conforming, &mistaken}) c->count(0, 0x020B);
  EXPECT_GT(conforming.pmu().quiet_instructions(), 0u);
  EXPECT_EQ(mistaken.pmu().quiet_instructions(), 0u);
}

TEST(Decisions, OfApplicableCounters) {
  const DeviationDecision decisions[] = {
      {"those that overflowed", [](Behaviour& b) { b.adaptive.applicable_all_enabled = true; },
       [](Cpu& c) {
         c.sample_stores();
         c.sample(2, 0x82D0, 1000);
         c.stores(2);
         return c.record().applicable_counters();
       },
       1, 5, "ice-lake"},
      {"fixed ones from bit 32 on", [](Behaviour& b) { b.adaptive.applicable_fixed_shift = 0; },
       [](Cpu& c) {
         c.sample_fixed(1, 1);
         for (int i = 0; i < 2; ++i) c.retire(Signal::kCycles);
         return c.record().applicable_counters();
       },
       bit(33), bit(1), "ice-lake"},
  };
  check(decisions);
}

// Two taken jumps, of which the second is recorded: what the trace has of them.
uint64_t sampled_jumps(Cpu& c) {
  c.trace();
  c.sample(0, 0x20C4, 1);
  for (int i = 0; i < 2; ++i) c.jump(/*taken=*/true);
  return 10 * c.records() + c.traced();
}

TEST(Decisions, OfBranchesThatAreRecordedAndTraced) {
  const DeviationDecision decisions[] = {
      {"both", [](Behaviour& b) { b.bts.beside_pebs = false; }, sampled_jumps, 12, 11},
      {"in either order", [](Behaviour& b) { b.bts.before_pebs = true; }, sampled_jumps, 12, 12},
  };
  check(decisions);
}

// The model of a precise store, on the counter that has it.
uint64_t precise_store(Cpu& c, uint64_t (*shows)(Cpu&), bool enabled = true) {
  c.sample(3, 0x02CD, 1);
  if (enabled) c.set(IA32_PEBS_ENABLE, c.get(IA32_PEBS_ENABLE) | pebs_enable::kPreciseStore);
  for (uint64_t i = 0; i < 2; ++i) {
    c.retire(Signal::kStores, 1, {},
             {.valid = true,
              .l1_hit = true,
              .stlb_miss = true,
              .locked = true,
              .latency = 9,
              .address = 0x7000 + 8 * i});
  }
  return shows(c);
}

TEST(Decisions, OfPreciseStores) {
  const DeviationDecision decisions[] = {
      {"PS_EN is needed", [](Behaviour& b) { b.precise_store_needs_enable = false; },
       [](Cpu& c) {
         return precise_store(
             c, [](Cpu& d) { return d.records(); }, false);
       },
       0, 1},
      {"with it there is a record", [](Behaviour& b) { b.precise_store_needs_enable = false; },
       [](Cpu& c) { return precise_store(c, [](Cpu& d) { return d.records(); }); }, 1, 1},
      {"the address is its own", [](Behaviour& b) { b.precise_store_lag = -1; },
       [](Cpu& c) { return precise_store(c, [](Cpu& d) { return d.record().data_address(); }); },
       0x7008, 0x7000},
      {"there is an address", [](Behaviour& b) { b.precise_store_address = false; },
       [](Cpu& c) { return precise_store(c, [](Cpu& d) { return d.record().data_address(); }); },
       0x7008, 0},
      {"there is a status", [](Behaviour& b) { b.precise_store_status = false; },
       [](Cpu& c) { return precise_store(c, [](Cpu& d) { return d.record().data_source(); }); },
       0x31, 0},
      {"and it is the right way round",
       [](Behaviour& b) { b.precise_store_status_inverted = true; },
       [](Cpu& c) { return precise_store(c, [](Cpu& d) { return d.record().data_source(); }); },
       0x31, 0x30},
      {"there is no latency", [](Behaviour& b) { b.precise_store_zero_latency = false; },
       [](Cpu& c) { return precise_store(c, [](Cpu& d) { return d.record().latency(); }); }, 0, 9},
  };
  check(decisions);
}

// Loads that are slower than the threshold until one is recorded, by default on the counter that has load latency.
uint64_t slow_load(Cpu& c, uint64_t (*shows)(Cpu&), uint64_t enable = bit(32 + 3), unsigned n = 3) {
  c.sample(n, 0x100B, 1);
  c.set(MSR_PEBS_LD_LAT_THRESHOLD, 20);
  c.set(IA32_PEBS_ENABLE, bit(n) | enable);
  for (uint64_t i = 0; i < 400 && c.records() == 0; ++i) {
    c.retire(Signal::kLoads, 1,
             {.valid = true, .source = 5, .latency = 60, .address = 0x7000 + 8 * i});
  }
  return shows(c);
}

TEST(Decisions, OfLoadLatency) {
  static constexpr auto latency = [](Cpu& c) { return 1000 * c.records() + c.record().latency(); };
  const DeviationDecision decisions[] = {
      {"on its own counter", [](Behaviour& b) { b.load_latency_elsewhere = true; },
       [](Cpu& c) { return slow_load(c, latency); }, 1060, 1060, "nehalem"},
      {"and on no other", [](Behaviour& b) { b.load_latency_elsewhere = true; },
       [](Cpu& c) { return slow_load(c, latency, bit(32), 0); }, 0, 1000, "nehalem"},
      {"LL_EN of its counter is needed", [](Behaviour& b) { b.load_latency_needs_enable = false; },
       [](Cpu& c) {
         return slow_load(
             c, [](Cpu& d) { return d.records(); }, bit(32 + 2));
       },
       0, 1, "nehalem"},
      {"with it there is a record", [](Behaviour& b) { b.load_latency_needs_enable = false; },
       [](Cpu& c) { return slow_load(c, [](Cpu& d) { return d.records(); }); }, 1, 1, "nehalem"},
      {"CMASK may be 0", [](Behaviour& b) { b.load_latency_wants_cmask = true; },
       [](Cpu& c) { return slow_load(c, [](Cpu& d) { return d.records(); }); }, 1, 0, "nehalem"},
      {"there is a source", [](Behaviour& b) { b.load_latency_source = false; },
       [](Cpu& c) { return slow_load(c, [](Cpu& d) { return d.record().data_source(); }); }, 5, 0,
       "nehalem"},
      {"there is a latency", [](Behaviour& b) { b.load_latency_value = false; },
       [](Cpu& c) { return slow_load(c, [](Cpu& d) { return d.record().latency(); }); }, 60, 0,
       "nehalem"},
      {"the threshold holds", [](Behaviour& b) { b.load_latency_threshold = false; },
       [](Cpu& c) {
         c.set(MSR_PEBS_LD_LAT_THRESHOLD, 100);
         c.sample(3, 0x100B, 1);
         c.set(IA32_PEBS_ENABLE, bit(3) | bit(35));
         for (int i = 0; i < 400; ++i) {
           c.retire(Signal::kLoads, 1, {.valid = true, .latency = 60, .address = 0x7000});
         }
         return uint64_t{c.records() > 0};
       },
       0, 1, "nehalem"},
      {"a sibling takes nothing from it", [](Behaviour& b) { b.load_latency_needs_core = true; },
       [](Cpu& c) { return slow_load(c, [](Cpu& d) { return d.records(); }); }, 1, 0, "nehalem",
       true},
      {"nor from other events", [](Behaviour& b) { b.load_latency_needs_core = true; },
       [](Cpu& c) {
         c.sample(0, 0x020B, 1);
         c.stores(2);
         return c.records();
       },
       1, 1, "nehalem", true},
  };
  check(decisions);
}

// A load on a counter of Sandy Bridge, with all that its record may say.
uint64_t described_load(Cpu& c, uint64_t (*shows)(Cpu&), bool stlb_miss = true, bool locked = true,
                        uint8_t source = 5) {
  c.sample(3, 0x01CD, 1);
  c.set(MSR_PEBS_LD_LAT_THRESHOLD, 3);
  c.set(IA32_PEBS_ENABLE, bit(3) | bit(35));
  for (uint64_t i = 0; i < 400 && c.records() == 0; ++i) {
    c.retire(Signal::kLoads, 1,
             {.valid = true,
              .stlb_miss = stlb_miss,
              .locked = locked,
              .source = source,
              .latency = 60,
              .address = 0xFFFF'8880'0000'0000 + c.ip()});
  }
  return shows(c);
}

TEST(Decisions, OfWhatARecordSaysOfALoad) {
  static constexpr auto source = [](Cpu& c) { return c.record().data_source(); };
  const DeviationDecision decisions[] = {
      {"translation and lock", [](Behaviour& b) { b.load_latency_status_bits = false; },
       [](Cpu& c) { return described_load(c, source); }, 0x35, 0x05},
      {"translation", [](Behaviour& b) { b.load_latency_status_bits = false; },
       [](Cpu& c) { return described_load(c, source, true, false, 6); }, 0x16, 0x06},
      {"lock", [](Behaviour& b) { b.load_latency_status_bits = false; },
       [](Cpu& c) { return described_load(c, source, false, true, 6); }, 0x26, 0x06},
      {"from Sandy Bridge on", [](Behaviour& b) { b.load_latency_status_bits = false; },
       [](Cpu& c) {
         c.sample(3, 0x100B, 1);
         c.set(IA32_PEBS_ENABLE, bit(3) | bit(35));
         for (int i = 0; i < 400 && c.records() == 0; ++i) {
           c.retire(Signal::kLoads, 1,
                    {.valid = true, .stlb_miss = true, .locked = true, .source = 5, .latency = 60});
         }
         return c.record().data_source();
       },
       5, 5, "nehalem"},
      {"its own address", [](Behaviour& b) { b.load_latency_lag = -1; },
       [](Cpu& c) {
         return described_load(c, [](Cpu& d) {
           return d.record().data_address() - d.record().ip() - 0xFFFF'8880'0000'0000;
         });
       },
       uint64_t{0} - 4, uint64_t{0} - 8},
      {"all of it", [](Behaviour& b) { b.data_address_bits = 32; },
       [](Cpu& c) {
         return described_load(c, [](Cpu& d) { return d.record().data_address() >> 32; });
       },
       0xFFFF'8880, 0},
      {"the published encoding", [](Behaviour& b) { b.load_latency_source_offset = 2; },
       [](Cpu& c) {
         return described_load(c, [](Cpu& d) { return d.record().data_source() & 0xF; });
       },
       5, 7},
  };
  check(decisions);
}

// What Haswell records of an instruction with these accesses by an event.
template <uint16_t kEvent, Signal kSignal, bool kLoads, bool kStores>
Record described(Cpu& c) {
  c.sample(0, kEvent, 1);
  for (int i = 0; i < 2; ++i) {
    c.retire(kSignal, 1, {.valid = kLoads, .l1_hit = true, .latency = 8, .address = 0x7000},
             {.valid = kStores, .l1_hit = true, .latency = 9, .address = 0x9000});
  }
  return c.record();
}

TEST(Decisions, OfDataAddresses) {
  static constexpr auto store_event = described<0x82D0, Signal::kStores, true, true>;
  static constexpr auto load_event = described<0x81D0, Signal::kLoads, true, true>;
  const DeviationDecision decisions[] = {
      {"a store event has the store", [](Behaviour& b) { b.generation.data_address = false; },
       [](Cpu& c) { return store_event(c).data_address(); }, 0x9000, 0, "haswell"},
      {"a load event the load", [](Behaviour& b) { b.generation.data_address_offset = 8; },
       [](Cpu& c) { return load_event(c).data_address(); }, 0x7000, 0x7008, "haswell"},
      {"or the store where there is no load",
       [](Behaviour& b) { b.generation.data_address_offset = 8; },
       [](Cpu& c) { return described<0x81D0, Signal::kLoads, false, true>(c).data_address(); },
       0x9000, 0x9008, "haswell"},
      {"a store event has a status", [](Behaviour& b) { b.generation.store_status = false; },
       [](Cpu& c) { return store_event(c).data_source(); }, 1, 0, "haswell"},
      {"which says whether it hit", [](Behaviour& b) { b.generation.store_status_inverted = true; },
       [](Cpu& c) { return store_event(c).data_source(); }, 1, 0, "haswell"},
      {"a load event has none", [](Behaviour& b) { b.generation.store_status = false; },
       [](Cpu& c) { return described<0x81D0, Signal::kLoads, false, true>(c).data_source(); }, 0, 0,
       "haswell"},
      {"nor has a load", [](Behaviour& b) { b.generation.store_status = false; },
       [](Cpu& c) { return described<0x01C2, Signal::kUops, true, false>(c).data_source(); }, 0, 0,
       "haswell"},
      {"there is no latency", [](Behaviour& b) { b.generation.data_zero_latency = false; },
       [](Cpu& c) { return store_event(c).latency() * 10 + c.record().data_source(); }, 1, 91,
       "haswell"},
  };
  check(decisions);
}

TEST(Decisions, OfWhatHaswellAddsToARecord) {
  static constexpr auto jumps = [](Cpu& c, bool taken) {
    c.sample(0, 0x01C4, 1);
    for (int i = 0; i < 2; ++i) c.jump(taken);
    return c.record().ip() - c.record().eventing_ip();
  };
  const DeviationDecision decisions[] = {
      {"nothing of transactions", [](Behaviour& b) { b.generation.tx_information = 7; },
       [](Cpu& c) {
         c.sample_stores();
         c.stores(2);
         return c.record().tx_information();
       },
       0, 7, "haswell"},
      {"a jump that falls through",
       [](Behaviour& b) { b.generation.eventing_ip = EventingIp::kBeforeNotTaken; },
       [](Cpu& c) { return jumps(c, false); }, 4, 8, "haswell"},
      {"and one that does not",
       [](Behaviour& b) { b.generation.eventing_ip = EventingIp::kBeforeNotTaken; },
       [](Cpu& c) { return jumps(c, true); }, 4, 4, "haswell"},
  };
  check(decisions);
}

TEST(Decisions, OfTheBuffersStatusBit) {
  const DeviationDecision decisions[] = {
      {"the threshold sets it", [](Behaviour& b) { b.threshold_sets_ovf_buffer = false; },
       [](Cpu& c) {
         c.buffer(9, 2);
         c.sample_stores();
         c.stores(2);
         const bool early = (c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0;
         c.stores(2);
         return uint64_t{early} * 10 + ((c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0);
       },
       1, 0},
      {"with and without a freeze", [](Behaviour& b) { b.ovf_buffer_needs_freeze = true; },
       [](Cpu& c) {
         c.buffer(9, 1);
         c.sample_stores();
         c.stores(2);
         return uint64_t{(c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0};
       },
       1, 0},
      {"with a freeze", [](Behaviour& b) { b.ovf_buffer_needs_freeze = true; },
       [](Cpu& c) {
         c.set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
         c.buffer(9, 1);
         c.sample_stores();
         c.stores(2);
         return uint64_t{(c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0};
       },
       1, 1},
      {"a full buffer sets it", [](Behaviour& b) { b.full_sets_ovf_buffer = false; },
       [](Cpu& c) {
         c.buffer(2, 9);
         c.sample_stores();
         c.stores(2);
         const bool early = (c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0;
         c.stores(2);
         return uint64_t{early} * 10 + ((c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0);
       },
       1, 0},
      {"and clears nothing", [](Behaviour& b) { b.full_clears_ovf_buffer = true; },
       [](Cpu& c) {
         c.buffer(2, 1);
         c.sample_stores();
         c.stores(2);
         const bool early = (c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0;
         c.stores(2);
         return uint64_t{early} * 10 + ((c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0);
       },
       11, 10},
      {"nor interrupts", [](Behaviour& b) { b.full_interrupts = true; },
       [](Cpu& c) {
         c.buffer(2, 9);
         c.sample_stores();
         c.stores(4);
         return uint64_t{c.pmu().interrupt_pending()};
       },
       0, 1},
      {"a record leaves it", [](Behaviour& b) { b.ovf_buffer_sticky = false; },
       [](Cpu& c) {
         c.buffer(9, 1);
         c.sample_stores();
         c.stores(2);
         c.buffer(9, 8);
         c.stores(2);
         return uint64_t{(c.get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer) != 0};
       },
       1, 0},
  };
  check(decisions);
}

// Behind its record a counter is not armed, and far from the next.
TEST(Decisions, ARecordDisarms) {
  Cpu c("ice-lake", nullptr);
  c.sample(2, 0x82D0, 100000);
  c.set(IA32_PMC0 + 2, ~uint64_t{0});
  c.stores(1);
  EXPECT_EQ(c.pmu().quiet_instructions(), 0u);
  c.stores(1);
  EXPECT_GT(c.pmu().quiet_instructions(), 1000u);
  Cpu fixed("ice-lake", nullptr);
  fixed.set(IA32_FIXED_CTR0 + 1, low_bits(48));
  fixed.count_fixed(1);
  fixed.set(IA32_PEBS_ENABLE, bit(33));
  fixed.retire(Signal::kCycles);
  EXPECT_EQ(fixed.pmu().quiet_instructions(), 0u);
  fixed.retire(Signal::kCycles);
  fixed.set(IA32_FIXED_CTR0 + 1, 0);
  EXPECT_GT(fixed.pmu().quiet_instructions(), 1000u);
}

// R17, R19, R26: a record clears, reloads and disarms every counter that has overflowed under PEBS.
TEST(Decisions, ARecordStandsForEveryCounterThatHasOverflowed) {
  Cpu c("sandy-bridge", nullptr);
  c.sample(1, 0x81D0, 7);
  for (int i = 0; i < 7; ++i) c.retire(Signal::kLoads);
  c.sample_stores(1);
  c.stores(2);
  ASSERT_EQ(c.records(), 1u);
  EXPECT_EQ(c.record().global_status(), 3u);
  EXPECT_EQ(c.get(IA32_PERF_GLOBAL_STATUS), 0u);
  EXPECT_EQ(c.get(IA32_PMC0 + 1), low_bits(48) - 6);
  c.retire(Signal::kLoads);
  EXPECT_EQ(c.records(), 1u);
}

// For a counter whose status bit software has cleared a record of another does not stand.
TEST(Decisions, ARecordDisarmsNoCounterThatItDoesNotStandFor) {
  Cpu c("sandy-bridge", nullptr);
  c.sample(1, 0x81D0, 7);
  for (int i = 0; i < 7; ++i) c.retire(Signal::kLoads);
  c.set(IA32_PERF_GLOBAL_OVF_CTRL, bit(1));
  c.sample_stores(1000);
  c.set(IA32_PMC0, ~uint64_t{0});
  c.stores(2);
  EXPECT_EQ(c.records(), 1u);
  c.retire(Signal::kLoads);
  EXPECT_EQ(c.records(), 2u);

  // A fixed counter records the next instruction (R61): while the other is recorded it is in the shadow still.
  Cpu fixed("ice-lake", [](Behaviour& b) { b.rough.arm_low = b.rough.arm_high = 20; });
  fixed.sample_stores(1000);
  fixed.set(IA32_PMC0, ~uint64_t{0});
  fixed.stores(1);
  fixed.pace(15);
  fixed.sample_fixed(1, 1000);
  fixed.set(IA32_FIXED_CTR0 + 1, low_bits(48));
  fixed.retire(Signal::kCycles);
  fixed.set(IA32_PERF_GLOBAL_OVF_CTRL, bit(33));
  fixed.stores(1);
  EXPECT_EQ(fixed.records(), 1u);
  EXPECT_EQ(fixed.record().applicable_counters(), bit(0));
  fixed.stores(2);
  ASSERT_EQ(fixed.records(), 2u);
  EXPECT_EQ(fixed.record(1).applicable_counters(), bit(33));
}

// Load latency on PMC3 says nothing of a load that PMC0 is recorded for.
TEST(Decisions, OnlyTheCountersOfARecordDescribeItsAccess) {
  Cpu c("sandy-bridge", nullptr);
  c.set(MSR_PEBS_LD_LAT_THRESHOLD, 100);
  c.sample(3, 0x01CD, 1000);
  c.set(IA32_PEBS_ENABLE, bit(3) | bit(35));
  c.sample(0, 0x81D0, 1);
  for (int i = 0; i < 2; ++i) {
    c.retire(Signal::kLoads, 1, {.valid = true, .source = 5, .latency = 50, .address = 0x7000});
  }
  ASSERT_EQ(c.records(), 1u);
  EXPECT_EQ(c.record().data_address(), 0u);
  EXPECT_EQ(c.record().data_source(), 0u);
  EXPECT_EQ(c.record().latency(), 0u);
}

// In a quarter of the overflows PDIR does not work; in the others all is as it should be.
TEST(Decisions, ADefectMayShowInAShareOfTheOverflows) {
  const auto rarely = [](Behaviour& b) {
    b.otherwise = std::make_shared<const Behaviour>(b);
    b.share = 0.25;
    b.pdir_counters = 0;
  };
  constexpr int kOverflows = 300;
  Cpu c("sandy-bridge", rarely);
  c.buffer(kOverflows, kOverflows + 1);
  c.sample(1, 0x01C0, 1000);
  int precise = 0;
  for (int i = 0; i < kOverflows; ++i) {
    const uint64_t before = c.records();
    c.set(IA32_PMC0 + 1, ~uint64_t{0});
    c.instructions(1);
    precise += c.records() > before;
    c.instructions(1);
    ASSERT_EQ(c.records(), before + 1);
  }
  EXPECT_NEAR(precise, 0.75 * kOverflows, 5 * std::sqrt(kOverflows * 0.25 * 0.75));
}

// --- The debug store

// What lies behind its end is not mapped.
TEST(DebugStoreTest, AnAreaIsReadAsFarAsItIsMapped) {
  const Microarch& row = **find_microarch("sandy-bridge");
  const Behaviour behaviour = behaviour_of(row);
  for (uint32_t bytes = 0; bytes <= row.ds.gp_reset(row.ds.resets); bytes += 8) {
    FlatMemory memory;
    const uint64_t area = FlatMemory::kBase + (64 << 10) - bytes;
    for (uint32_t field = 0; field < bytes; field += 8) {
      memory.set_field(static_cast<uint32_t>(area - FlatMemory::kBase) + field, 0x7000 + field);
    }
    LatchedBounds latched;
    DebugStore ds(memory, row, behaviour, area, latched);
    EXPECT_EQ(ds.load(), bytes >= row.ds.reset) << "as far as the threshold, " << bytes;
    for (unsigned n = 0; n < row.ds.resets; ++n) {
      const uint32_t slot = row.ds.gp_reset(n);
      EXPECT_EQ(ds.reset_value(n), slot < bytes ? 0x7000 + slot : 0) << bytes;
    }
  }
}

TEST(DebugStoreTest, ABufferThatIsNotMappedTakesNoRecord) {
  Cpu c("sandy-bridge", nullptr);
  c.sample_stores(7);
  for (const uint32_t field : {0x20u, 0x28u}) c.memory().set_field(field, 0x1000);
  c.stores(9);
  EXPECT_EQ(c.memory().field(0x28), 0x1000u);
  EXPECT_EQ(c.get(IA32_PERF_GLOBAL_STATUS) & 1, 1u);
  EXPECT_EQ(c.get(IA32_PMC0), 2u) << "not reloaded";
}

// Of eight records, the ones that interrupt: from `first` to `last`.
TEST(DebugStoreTest, EachThresholdTestInterruptsOnItsRecords) {
  const Microarch& row = **find_microarch("sandy-bridge");
  const uint64_t bytes = row.record->bytes;
  const struct {
    ThresholdTest test;
    uint64_t threshold, first, last;
  } cases[] = {
      {ThresholdTest::kAfterUpdate, 3, 3, 8},      {ThresholdTest::kBeforeUpdate, 3, 4, 8},
      {ThresholdTest::kOneEarly, 3, 2, 8},         {ThresholdTest::kEveryRecord, 3, 1, 8},
      {ThresholdTest::kWhenFull, 3, 8, 8},         {ThresholdTest::kEqual, 3, 3, 3},
      {ThresholdTest::kClampedToMaximum, 3, 3, 8}, {ThresholdTest::kClampedToMaximum, 9, 8, 8},
      {ThresholdTest::kFromMaximum, 3, 5, 8},      {ThresholdTest::kNotFirstRecord, 3, 3, 8},
      {ThresholdTest::kNotFirstRecord, 1, 2, 8},   {ThresholdTest::kNever, 3, 9, 8},
  };
  for (const auto& one : cases) {
    Behaviour behaviour = behaviour_of(row);
    behaviour.threshold = one.test;
    FlatMemory memory;
    memory.lay_out_pebs(row.ds, 8 * bytes, one.threshold * bytes);
    LatchedBounds latched;
    for (uint64_t number = 1; number <= 8; ++number) {
      DebugStore ds(memory, row, behaviour, FlatMemory::kBase, latched);
      ASSERT_TRUE(ds.load());
      ASSERT_TRUE(ds.store(RecordData{}, Registers{}));
      EXPECT_EQ(ds.reached_threshold(), number >= one.first && number <= one.last)
          << "test " << static_cast<int>(one.test) << ", record " << number;
    }
  }
}

// A select that is written anew is read anew.
TEST(Decisions, ASelectIsReadWithEachWrite) {
  Cpu c("sandy-bridge", nullptr);
  for (unsigned n = 0; n < 4; ++n) {
    c.count(n, 0x82D0);
    c.stores(2);
    EXPECT_EQ(c.get(IA32_PMC0 + n), 2u) << n;
    c.count(n, 0x81D0);
    c.stores(2);
    c.retire(Signal::kLoads);
    EXPECT_EQ(c.get(IA32_PMC0 + n), 3u) << n;
    c.count(n, 0xFFFF);
    c.stores(1);
    EXPECT_EQ(c.get(IA32_PMC0 + n), 3u) << "no such event";
  }
}

}  // namespace
}  // namespace skidproof::model
