// What is drawn, and how often: most cases sample with one counter, some go to the edges.
#include "harness/fuzz/generator.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/random.h"
#include "harness/fuzz/predictor.h"
#include "harness/fuzz/registers.h"
#include "harness/fuzz/trace.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/session.h"

namespace skidproof::fuzz {

using namespace arch;

namespace {

// Instructions that most runs take, and some: short enough for thousands of cases in a second.
constexpr uint64_t kFew = 300, kMany = 3000;

class Generator {
 public:
  Generator(const Identity& machine, unsigned gp_counters, uint64_t seed)
      : machine_(machine),
        uarch_(*machine.microarch),
        random_(derive_seed(seed, "fuzz.case")),
        registers_(uarch_, gp_counters) {}

  Case generate() {
    case_.machine = machine_.name;
    case_.sibling_thread = machine_.sibling_thread;
    case_.machine_seed = random_.next() >> 32;
    case_.data_seed = random_.next() >> 32;
    code();
    counters();
    debug_store();
    return std::move(case_);
  }

 private:
  bool percent(uint64_t share) { return random_.chance(share, 100); }
  uint64_t between(uint64_t low, uint64_t high) { return random_.between(low, high); }
  template <typename T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[random_.below(list.size())];
  }

  // --- Code

  CodeItem item() {
    CodeItem item;
    item.a = static_cast<uint8_t>(random_.below(kSequenceRegisters));
    item.b = static_cast<uint8_t>(random_.below(kSequenceRegisters));
    const auto cell = static_cast<uint32_t>(8 * random_.below(kSequenceDataBytes / 8));
    switch (random_.below(10)) {
      case 0:
      case 1:
        item.op = one_of({Op::kLoad, Op::kAddLoad, Op::kCompareLoad});
        item.value = cell;
        break;
      case 2:
      case 3:
        item.op = one_of({Op::kStore, Op::kStore, Op::kAddStore, Op::kLockAdd});
        item.value = percent(10) ? std::min<uint32_t>(cell + 4, kSequenceDataBytes - 8) : cell;
        break;
      case 4:
        item.op = Op::kPushPop;
        break;
      case 5:
        item.op = Op::kSet;
        item.value = static_cast<uint32_t>(random_.next());
        break;
      case 6:
        item.op = Op::kLea;
        item.value = static_cast<uint32_t>(random_.below(4096));
        break;
      default:
        item.op = one_of({Op::kNop, Op::kMove, Op::kAdd, Op::kSub, Op::kAnd, Op::kOr, Op::kXor,
                          Op::kInc, Op::kDec, Op::kCompare, Op::kTest});
    }
    return item;
  }
  CodeItem control() {
    CodeItem item;
    item.op = one_of({Op::kSkipIf, Op::kSkipIf, Op::kSkip, Op::kCall});
    item.condition = static_cast<uint8_t>(random_.below(16));
    item.value = static_cast<uint32_t>(random_.below(4));
    return item;
  }
  CodeItem delay() {
    CodeItem item;
    item.op = Op::kDelay;
    item.a = static_cast<uint8_t>(random_.below(kSequenceRegisters));
    // Long enough that an event on each side is outside the other's shadow.
    const uint32_t least = shadow_instructions(uarch_) / 2;
    item.value = least + static_cast<uint32_t>(random_.below(16));
    return item;
  }

  void code() {
    Sequence& code = case_.code;
    code.loop = percent(85);
    sparse_ = percent(60);
    const uint64_t items = code.loop ? between(1, 10) : between(8, 60);
    for (uint64_t i = 0; i < items; ++i) {
      code.items.push_back(percent(25) ? control() : item());
      if (sparse_ && percent(code.loop ? 12 : 20)) code.items.push_back(delay());
    }
    if (sparse_ && code.loop) code.items.push_back(delay());
    // Where periods must be long, short runs would see no record.
    const uint64_t many = uarch_.minimum_period > 8 ? 50 : 15;
    instructions_ = percent(many) ? kMany : between(kFew / 3, 2 * kFew);
    uint64_t length = 2;
    for (const CodeItem& i : code.items) length += i.op == Op::kDelay ? 2 * i.value : 1;
    iterations_ = code.loop ? std::max<uint64_t>(1, instructions_ / length) : 1;
    iterations_ = between(1 + iterations_ / 2, 1 + iterations_);
  }

  // --- Counters

  const Event* event(bool pebs, unsigned counter) {
    // Three in four by instructions alone: the prediction is exact there.
    const bool exact = percent(75);
    const Event* found = nullptr;
    uint64_t seen = 0;
    for (const Event& e : uarch_.events) {
      const uint16_t where = pebs ? e.pebs_counters : e.counters;
      if (e.counters == 0) continue;     // of a fixed counter
      const bool anywhere = percent(4);  // what is not published there
      if (((where >> counter) & 1) == 0 && !anywhere) continue;
      if (exact && !architectural(e.signal)) continue;
      if (random_.below(++seen) == 0) found = &e;
    }
    return found;
  }

  // Of IA32_PMCn, by the event that it was given.
  uint64_t period(unsigned n) {
    const uint64_t own = n < least_.size() ? least_[n] : 0;  // NetBurst has more counters
    const uint64_t least = std::max<uint64_t>(own, uarch_.minimum_period);
    if (percent(4)) return between(1000, 4000);  // never overflows here
    return least + (percent(60) ? random_.below(6) : random_.below(60));
  }

  uint64_t select(const Event& event, bool pebs) {
    uint64_t value = event.select_fields() | evtsel::kEnable;
    value |= uint64_t{event.cmask} << evtsel::kCmaskShift;
    if (event.invert) value |= evtsel::kInvert;
    if (percent(75)) {
      value |= evtsel::kUsr | evtsel::kOs;
    } else {
      value |= one_of({evtsel::kUsr, evtsel::kOs});
    }
    if (percent(pebs ? 10 : 30)) value |= evtsel::kInt;
    if (percent(4)) value &= ~evtsel::kEnable;
    if (percent(6)) {
      value |= one_of({evtsel::kAnyThread, evtsel::kEdge, evtsel::kInvert,
                       uint64_t{1} << evtsel::kCmaskShift,
                       evtsel::kInvert | uint64_t{16} << evtsel::kCmaskShift});
    }
    if (pebs && uarch_.pebs_baseline && percent(85)) value |= evtsel::kAdaptive;
    return value & uarch_.perfevtsel_defined;
  }

  void counters() {
    noise(random_.below(6));
    const uint64_t pebs = percent(10) ? 0 : percent(75) ? 1 : between(2, 3);
    const uint64_t plain = percent(40) ? 0 : between(1, 3);
    uint64_t enable = 0;
    bool load_latency = false;
    uint64_t used = 0;
    for (uint64_t i = 0; i < pebs + plain; ++i) {
      const bool sampled = i < pebs;
      const unsigned n = counter(sampled);
      if (((used >> n) & 1) != 0) continue;
      const Event* chosen = event(sampled, n);
      if (chosen == nullptr) continue;
      used |= bit(n);
      if (sampled && n < least_.size()) least_[n] = minimum_period(uarch_, n, *chosen);
      write(IA32_PERFEVTSEL0 + n, select(*chosen, sampled));
      initial(n, sampled || percent(70) ? minus_period(period(n), uarch_.gp_width) : 0);
      if (!sampled || percent(3)) continue;
      enable |= bit(n);
      load_latency |= chosen->kind == EventKind::kLoadLatency;
      if (chosen->kind == EventKind::kLoadLatency && percent(90)) {
        enable |= uint64_t{uarch_.load_latency_enable} & bit(n)
                      ? bit(pebs_enable::kLoadLatencyShift + n)
                      : 0;
      }
      if (chosen->kind == EventKind::kPreciseStore && percent(90)) {
        enable |= pebs_enable::kPreciseStore;
      }
    }
    for (unsigned i = 0; i < uarch_.fixed_counters; ++i) {
      if (((uarch_.pebs_fixed_counters >> i) & 1) != 0 && percent(8)) {
        enable |= bit(pebs_enable::kFixedShift + i);
      }
    }
    enable &= writable_pebs_enable(uarch_);
    groups();
    if (load_latency) write(MSR_PEBS_LD_LAT_THRESHOLD, between(3, 12));
    global_ = used | fixed();
    write(IA32_DEBUGCTL, percent(10) ? debugctl::kFreezePerfmonOnPmi : 0);
    write(IA32_X2APIC_LVT_PMI, lvt::kNmi | (percent(15) ? lvt::kMasked : 0));
    write(IA32_PEBS_ENABLE, enable);
    if (percent(10)) noise(1);
    write(IA32_PEBS_ENABLE, enable);
    run();
    afterwards();
  }

  // What adaptive records hold: mostly with the registers, which say what the record is of.
  void groups() {
    if (!uarch_.pebs_baseline) return;
    uint64_t chosen = random_.next() & adaptive::kGroups & ~adaptive::kBranches;
    if (percent(80)) chosen |= adaptive::kGprs;
    if (uarch_.pebs_counters_group && percent(40)) {
      const uint64_t counters = writable_pebs_data_cfg(uarch_) & ~adaptive::kGroups &
                                ~(uint64_t{0xFF} << adaptive::kBranchEntriesShift);
      chosen |= (random_.next() & counters) | adaptive::kCounters;
    }
    record_bytes_ = static_cast<int64_t>(adaptive::configured_bytes(chosen));
    write(MSR_PEBS_DATA_CFG, chosen);
  }

  // A counter; mostly one that can do what it is for.
  unsigned counter(bool sampled) {
    const unsigned gp = registers_.gp_counters();
    const uint64_t able = uarch_.pebs_counters & low_bits(gp);
    while (true) {
      const auto n = static_cast<unsigned>(random_.below(gp));
      if (!sampled || ((able >> n) & 1) != 0 || percent(3)) return n;
    }
  }

  void initial(unsigned n, uint64_t value) {
    const uint64_t legacy = legacy_write_value(uarch_, value);
    const bool alias = uarch_.full_width_writes && (legacy != value || percent(30));
    write((alias ? IA32_A_PMC0 : IA32_PMC0) + n, value);
  }

  uint64_t fixed() {
    uint64_t control = 0;
    uint64_t enabled = 0;
    for (unsigned i = 0; i < uarch_.fixed_counters; ++i) {
      if (!percent(i == 0 ? 40 : 15)) continue;
      enabled |= bit(status::kFixedShift + i);
      uint64_t field = percent(75) ? fixed_ctrl::kOs | fixed_ctrl::kUsr
                                   : one_of({fixed_ctrl::kOs, fixed_ctrl::kUsr});
      if (percent(25)) field |= fixed_ctrl::kPmi;
      control |= fixed_ctrl::field(i, field);
      write(IA32_FIXED_CTR0 + i,
            percent(50) ? minus_period(between(1, instructions_), uarch_.fixed_width) : 0);
    }
    write(IA32_FIXED_CTR_CTRL, control);
    return enabled;
  }

  void run() {
    Step step;
    step.kind = Step::Kind::kRun;
    step.value = global_ & writable_global_ctrl(uarch_, registers_.gp_counters());
    if (percent(8)) step.value &= ~bit(static_cast<unsigned>(random_.below(4)));
    step.iterations = static_cast<uint32_t>(iterations_);
    step.user = percent(30);
    step.unmask = percent(50);
    step.clear_status = percent(20);
    case_.steps.push_back(step);
  }

  void afterwards() {
    if (percent(50)) noise(1);
    if (percent(40)) write(IA32_PERF_GLOBAL_OVF_CTRL, status_value());
    if (!percent(45)) return;
    if (percent(60)) case_.steps.push_back({.kind = Step::Kind::kRewind});
    run();
    if (percent(30)) write(IA32_PERF_GLOBAL_OVF_CTRL, status_value());
  }
  uint64_t status_value() {
    const uint64_t all = clearable_status(uarch_, registers_.gp_counters());
    return percent(40) ? all : percent(50) ? status::kOvfBuffer : random_.next() & all & 0xF;
  }

  // --- Registers at random

  void write(uint32_t msr, uint64_t value) {
    case_.steps.push_back({.kind = Step::Kind::kWrite, .msr = msr, .value = value});
  }

  // Bits that generations or sources disagree about, or that would switch on what is not the PMU's:
  // never written as reserved ones.
  static uint64_t left_alone(uint32_t msr) {
    switch (msr) {
      case IA32_PEBS_ENABLE:
        return pebs_enable::kOutputPt | bit(62) | bit(63);  // M21
      case IA32_DEBUGCTL:
        return low_bits(16);
      case IA32_X2APIC_LVT_PMI:
        return low_bits(17);
      case IA32_PERF_GLOBAL_OVF_CTRL:
        return bit(55) | bit(58) | bit(59) | bit(60);
      default:
        return 0;
    }
  }

  uint64_t legal(uint32_t msr) {
    uint64_t value =
        percent(30) ? 0 : random_.next() & (percent(50) ? ~uint64_t{0} : random_.next());
    if (msr == IA32_DEBUGCTL) value &= bit(11) | debugctl::kFreezePerfmonOnPmi;
    if (msr == IA32_X2APIC_LVT_PMI) {
      value = lvt::kNmi | (value & (lvt::kMasked | lvt::kDeliveryStatus));
    }
    // What is left of a random value when its reserved bits are taken away.
    for (unsigned b = 0; b < 64 && !registers_.accepts(msr, value); ++b) {
      if (!registers_.accepts(msr, value & bit(b))) value &= ~bit(b);
    }
    return value;
  }

  // Often one next to a bit that may be written: where a mask would be off by one.
  unsigned any_bit(uint32_t msr, uint64_t value) {
    for (unsigned tries = 0; tries < 20 && percent(90); ++tries) {
      const auto b = static_cast<unsigned>(random_.below(63));
      const bool low = registers_.accepts(msr, value | bit(b));
      if (low != registers_.accepts(msr, value | bit(b + 1))) return low ? b + 1 : b;
    }
    return static_cast<unsigned>(random_.below(64));
  }

  void noise(uint64_t writes) {
    for (uint64_t i = 0; i < writes; ++i) {
      const auto& all = registers_.watched();
      const uint32_t msr = all[random_.below(all.size())];
      if (msr == IA32_DS_AREA) {
        // From the first bit of the sign on: addresses that are not canonical, but for some of bit 63.
        const uint64_t sign = linear_address_bits(uarch_) - 1;
        write(msr, bit(static_cast<unsigned>(between(sign, 63))) | (random_.next() & low_bits(40)));
        continue;
      }
      uint64_t value = legal(msr);
      if (percent(50)) {
        const unsigned b = any_bit(msr, value);
        const bool taken = registers_.accepts(msr, value | bit(b));
        if (taken || (left_alone(msr) & bit(b)) == 0) value |= bit(b);
        if (taken && msr == IA32_DEBUGCTL) value &= ~bit(b);
      }
      write(msr, value);
    }
  }

  // --- The DS area

  void debug_store() {
    const int64_t bytes = record_bytes_ > 0 ? record_bytes_ : int64_t{uarch_.record->bytes};
    auto records = [&](uint64_t n) { return static_cast<int64_t>(n) * bytes; };
    DebugStorePlan& ds = case_.ds;
    uint64_t room = percent(50) ? between(1, 4) : between(5, 40);
    // Where a larger buffer is not safe, the maximum and the index past it stay within the limit.
    const auto limit = static_cast<int64_t>(uarch_.pebs_buffer_limit_bytes);
    if (limit != 0) room = std::min(room, static_cast<uint64_t>(limit / bytes) - 2);
    ds.maximum = records(room);
    if (percent(25))
      ds.maximum += static_cast<int64_t>(random_.below(static_cast<uint64_t>(bytes)));
    if (percent(10)) ds.index = records(random_.below(room + 1));
    if (percent(3)) ds.index = ds.maximum + records(1);
    switch (random_.below(8)) {
      case 0:
        ds.threshold = 0;
        break;
      case 1:
      case 2:
        ds.threshold = limit != 0 ? limit : ds.maximum + records(8);
        break;
      case 3:
        ds.threshold = records(between(1, room)) - static_cast<int64_t>(random_.below(64));
        break;
      default:
        ds.threshold = records(between(1, room));
    }
    for (unsigned n = 0; n < std::min(uarch_.ds.resets, 8u); ++n) {
      uint64_t value = minus_period(period(n), 64);
      if (percent(6)) value = percent(50) ? 0 : random_.next() >> 20;
      ds.resets.push_back(value);
    }
  }

  const Identity& machine_;
  const Microarch& uarch_;
  Random random_;
  RegisterFile registers_;
  Case case_;
  bool sparse_ = false;
  uint64_t iterations_ = 1;
  uint64_t instructions_ = kFew;
  uint64_t global_ = 0;
  int64_t record_bytes_ = 0;         // of adaptive records
  std::array<uint64_t, 8> least_{};  // the least period of what each counter samples
};

}  // namespace

Case generate_case(const Identity& machine, unsigned gp_counters, uint64_t seed) {
  return Generator(machine, gp_counters, seed).generate();
}

}  // namespace skidproof::fuzz
