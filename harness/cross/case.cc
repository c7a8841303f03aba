#include "harness/cross/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/random.h"
#include "kernels/kernel.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/msr.h"
#include "pebs/engines/testing/random_code.h"

namespace skidproof::cross {
namespace {

using namespace arch;
using engines::testing::RandomCode;

constexpr size_t kCodeBytes = 128 << 10, kDataBytes = 128 << 10;
// Of a kernel: enough for some tens of records, and little enough for an emulator.
constexpr uint64_t kMostInstructions = 6000;
// The driver's interrupt handler counts some ten instructions. A counter that interrupts sooner than the handler
// is through would never let the program go on.
constexpr uint64_t kBetweenInterrupts = 200;

class Generator {
 public:
  Generator(Machine& machine, uint64_t seed, const Extensions& extensions)
      : machine_(machine),
        row_(*machine.identity().microarch),
        seed_(seed),
        extensions_(extensions),
        random_(derive_seed(seed, "cross.case")) {}

  Expected<Case> generate() {
    case_.code = SKIDPROOF_TRY(machine_.allocate({.bytes = kCodeBytes, .use = MemoryUse::kCode}));
    case_.data = SKIDPROOF_TRY(machine_.allocate({.bytes = kDataBytes, .use = MemoryUse::kData}));
    if (percent(50)) {
      random_code();
    } else {
      SKIDPROOF_CHECK(a_kernel());
    }
    counters();
    fixed_counters();
    buffer();
    if (percent(15)) branches();
    return std::move(case_);
  }

 private:
  bool percent(uint64_t share) { return random_.chance(share, 100); }

  // --- The program

  void random_code() {
    for (size_t i = 0; i < case_.data.host.size(); i += sizeof(uint64_t)) {
      const uint64_t value = random_.next();
      std::memcpy(&case_.data.host[i], &value, sizeof value);
    }
    const bool avx2 = extensions_.has(Isa::kAvx2);
    using BitCounts = RandomCode::BitCounts;
    // LZCNT and TZCNT came with BMI2.
    const BitCounts bits = extensions_.has(Isa::kBmi2) ? BitCounts::kAll
                           : extensions_.popcnt        ? BitCounts::kPopulation
                                                       : BitCounts::kNone;
    RandomCode code(seed_, case_.code.address, case_.data.address, avx2, Mode::kLong, bits);
    case_.program = code.generate(static_cast<unsigned>(random_.between(100, 1500)));
    if (avx2) case_.program.needs = {Isa::kAvx2};
    case_.program.parameters = fmt::format("seed={}", seed_);
  }

  Expected<void> a_kernel() {
    std::vector<const Kernel*> all;
    for (const auto& [name, kernel] : kernels()) {
      if (!kernel.reads_environment) all.push_back(&kernel);
    }
    const Kernel& kernel = *all[random_.below(all.size())];
    // Most drawings are legal; the defaults are always.
    for (int attempt = 0; attempt < 4; ++attempt) {
      if (place(kernel, attempt == 3 ? "" : parameters(kernel))) break;
    }
    if (case_.program.code.empty()) {
      random_code();
      return {};
    }
    const uint64_t length = std::max<uint64_t>(case_.program.per_iteration.instructions, 1);
    const uint64_t most = std::max<uint64_t>(kMostInstructions / length, 1);
    case_.iterations = 1 + random_.below(most);
    return {};
  }

  std::string parameters(const Kernel& kernel) {
    std::string text;
    for (const Parameter& p : kernel.parameters) {
      if (percent(40)) continue;
      const uint64_t low = p.words.empty() ? p.low : 0;
      const uint64_t high = p.words.empty() ? std::min(p.high, low + 64) : p.words.size() - 1;
      const uint64_t value = random_.between(low, high);
      if (!text.empty()) text += ',';
      text += p.words.empty() ? fmt::format("{}={}", p.name, value)
                              : fmt::format("{}={}", p.name, p.words[value]);
    }
    return text;
  }

  bool place(const Kernel& kernel, const std::string& text) {
    const auto params = Params::parse(kernel.parameters, text);
    if (!params || (kernel.check != nullptr && !kernel.check(*params))) return false;
    auto program = skidproof::generate(
        kernel, *params,
        {.code_address = case_.code.address, .data_address = case_.data.address, .seed = seed_});
    if (!program || program->code.size() > kCodeBytes || program->data_bytes > kDataBytes)
      return false;
    for (Isa isa : program->needs) {
      if (!extensions_.has(isa)) return false;
    }
    if (!prepare_data(kernel, *params, *program, case_.data.host, seed_)) return false;
    case_.program = std::move(*program);
    return true;
  }

  // --- Counters

  // Most are of what every program does; the rest may never come.
  static bool is_frequent(const Event& e) {
    return e.kind == EventKind::kLoadLatency || e.kind == EventKind::kPreciseStore ||
           e.signal == Signal::kInstructions || e.signal == Signal::kUops ||
           e.signal == Signal::kLoads || e.signal == Signal::kStores ||
           e.signal == Signal::kLoadsL1Hit || e.signal == Signal::kBranches ||
           e.signal == Signal::kConditional || e.signal == Signal::kNearTaken;
  }

  const Event* event(unsigned counter, bool pebs) {
    const bool frequent = percent(75);
    const Event* found = nullptr;
    uint64_t seen = 0;
    for (const Event& e : row_.events) {
      const unsigned where = pebs ? e.pebs_counters : e.counters;
      if (((where >> counter) & 1) == 0 || e.kind == EventKind::kFrontend) continue;
      if (frequent && !is_frequent(e)) continue;
      if (random_.below(++seen) == 0) found = &e;
    }
    return found;
  }

  void counters() {
    const unsigned counters = (machine_.cpuid(0xA, 0).eax >> 8) & 0xFF;
    std::vector<unsigned> free;
    for (unsigned n = 0; n < counters; ++n) free.push_back(n);
    const uint64_t used = 1 + random_.below(std::min(counters, 4u));
    const bool sampling = percent(90);
    for (uint64_t i = 0; i < used; ++i) {
      // The first of them samples, and so lies among those that can.
      const bool first = i == 0 && sampling;
      const size_t able =
          first ? std::min<size_t>(free.size(), std::popcount(row_.pebs_counters)) : free.size();
      const size_t at = random_.below(able);
      counter(free[at], first || (sampling && percent(60)));
      free.erase(free.begin() + static_cast<ptrdiff_t>(at));
    }
  }

  void counter(unsigned n, bool pebs) {
    pebs = pebs && ((row_.pebs_counters >> n) & 1) != 0;
    const Event* chosen = event(n, pebs);
    if (chosen == nullptr) return;
    const uint64_t least = std::max<uint64_t>(row_.minimum_period, 1);
    const bool interrupts = percent(pebs ? 5 : 50);
    const uint64_t period = interrupts    ? kBetweenInterrupts + random_.below(400)
                            : percent(70) ? least + random_.below(40)
                                          : least + random_.below(1000);
    CounterSetup setup = CounterSetup::of(n, *chosen, period, pebs);
    setup.interrupt = interrupts;
    if (!pebs) setup.load_latency = setup.precise_store = false;
    if (pebs && percent(20)) setup.initial = minus_period(1 + random_.below(300), row_.gp_width);
    if (percent(10)) setup.usr = false;
    if (percent(5)) setup.os = false;
    if (percent(15)) setup.adaptive = false;
    if (!pebs && percent(10)) setup.cmask = static_cast<uint8_t>(1 + random_.below(3));
    if (!pebs && percent(5)) setup.invert = setup.edge = true;
    case_.plan.counters.push_back(setup);
  }

  void fixed_counters() {
    for (unsigned i = 0; i < std::min<unsigned>(row_.fixed_counters, 3); ++i) {
      if (!percent(25)) continue;
      FixedSetup setup;
      setup.counter = i;
      setup.pebs = ((row_.pebs_fixed_counters >> i) & 1) != 0 && percent(40);
      setup.interrupt = !setup.pebs && percent(50);
      if (setup.pebs || setup.interrupt) {
        setup.period = kBetweenInterrupts + random_.below(2000);
      }
      case_.plan.fixed.push_back(setup);
    }
  }

  // --- The buffer, and what becomes of it

  void buffer() {
    SessionPlan& plan = case_.plan;
    plan.load_latency_threshold = 3 + random_.below(20);
    if (row_.pebs_baseline && percent(60)) {
      uint64_t groups = random_.next() & adaptive::kGroups;
      if ((groups & adaptive::kBranches) != 0) {
        groups |= random_.below(8) << adaptive::kBranchEntriesShift;
      }
      plan.pebs_data_cfg = groups;
    }
    plan.buffer_records = 8 + random_.below(56);
    if (percent(20)) plan.maximum_records = 1 + random_.below(*plan.buffer_records);
    plan.freeze_on_pmi = percent(25);
    plan.mask_interrupts = percent(5);
    PmiPolicy& pmi = plan.pmi;
    pmi.restore_global_ctrl = plan.freeze_on_pmi ? percent(75) : percent(25);
    pmi.clear_status = percent(80);
    if (!percent(60)) return;
    // Once past the threshold every record may interrupt: then the handler either makes room, for as many records
    // as it takes until the program has gone on, or is not interrupted again.
    uint64_t shortest = UINT64_MAX;
    for (const CounterSetup& c : plan.counters) {
      if (c.pebs) shortest = std::min(shortest, c.period);
    }
    const uint64_t fewest = shortest == UINT64_MAX ? 1 : kBetweenInterrupts / shortest + 1;
    if (percent(60) && fewest * 2 < *plan.buffer_records) {
      plan.threshold_records = fewest + random_.below(fewest);
      plan.maximum_records.reset();
      pmi.rewind_index = true;
    } else {
      plan.threshold_records = 1 + random_.below(*plan.buffer_records);
      pmi.unmask = false;
    }
  }

  void branches() {
    if (row_.branch_trace.messages == 0) return;
    BranchTraceSetup trace;
    trace.records = 64 + random_.below(512);
    trace.interrupt = percent(50);
    // As with records: a full store that interrupts is emptied, or interrupts once.
    if (trace.interrupt) {
      trace.threshold_records = 32 + random_.below(trace.records - 32);
      if (percent(70)) {
        case_.plan.pmi.rewind_branches = true;
      } else {
        case_.plan.pmi.unmask = false;
      }
    }
    case_.plan.branches = trace;
  }

  Machine& machine_;
  const Microarch& row_;
  const uint64_t seed_;
  const Extensions& extensions_;
  Random random_;
  Case case_;
};

}  // namespace

Expected<Case> make_case(Machine& machine, uint64_t seed, const Extensions& extensions) {
  return Generator(machine, seed, extensions).generate();
}

std::string describe(const Case& c) {
  std::string text = fmt::format("{} x {}:", c.program.id(), c.iterations);
  for (const CounterSetup& s : c.plan.counters) {
    text += fmt::format(" PMC{} {:#x}/{:#x}{}{}{}", s.counter, s.select & 0xFF, s.select >> 8,
                        s.pebs ? " PEBS" : "", s.interrupt ? " INT" : "",
                        s.period != 0 ? fmt::format(" period {}", s.period) : "");
  }
  for (const FixedSetup& s : c.plan.fixed) {
    text += fmt::format(" FIXED_CTR{}{}{}", s.counter, s.pebs ? " PEBS" : "",
                        s.interrupt ? " INT" : "");
  }
  if (c.plan.threshold_records) text += fmt::format(" threshold {}", *c.plan.threshold_records);
  if (c.plan.freeze_on_pmi) text += " freeze";
  if (c.plan.pmi.restore_global_ctrl) text += " restore";
  if (c.plan.pmi.rewind_index) text += " rewind";
  if (c.plan.branches) text += " BTS";
  return text;
}

uint32_t seed_of(uint64_t corpus, uint64_t n) {
  const uint64_t seed = derive_seed(corpus, fmt::format("cross.case{}", n).c_str());
  return static_cast<uint32_t>(seed >> 32);
}

}  // namespace skidproof::cross
