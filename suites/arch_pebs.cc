// Architectural PEBS: how it is enumerated, what its registers keep, where records go and how they interrupt, and that every
// counter has its own groups and reload value. What only one kernel's code tells is observed.
#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/architectural_record.h"
#include "pebs/arch/enumeration.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "suites/adaptive.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::arch_pebs {
namespace {

using namespace suites;
using arch::bit;
using arch::kBankStride;
using arch::Signal;
namespace adaptive = arch::adaptive;
namespace architectural = arch::architectural;
namespace cfg_c = arch::cfg_c;
namespace index_register = arch::pebs_index;

constexpr char kNot[] = "PEBS is not architectural";
constexpr char kNoEvent[] = "no precise event for this signal on this counter";
constexpr size_t kRecords = 3;

// The counters of a mask, lowest first.
std::vector<unsigned> counters_of(uint64_t mask) {
  std::vector<unsigned> counters;
  for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
    counters.push_back(static_cast<unsigned>(std::countr_zero(rest)));
  }
  return counters;
}

uint32_t gp_config(unsigned n) { return arch::IA32_PMC_GP0_CFG_C + kBankStride * n; }
uint32_t fixed_config(unsigned m) { return arch::IA32_PMC_FX0_CFG_C + kBankStride * m; }

// Jumps of the sparse kernel on a counter that arms.
struct Jumps {
  unsigned counter = 0;
  const arch::Event* event = nullptr;
  uint64_t period = 0;
};
Jumps jumps_of(const arch::Microarch& microarch) {
  const unsigned counter = arming_counter(microarch);
  return {counter, precise_event(microarch, Signal::kConditional, counter),
          usable_period(microarch, 40)};
}
SessionPlan plan_of(const Jumps& jumps) {
  return one_counter(jumps.counter, *jumps.event, jumps.period, 16);
}

// Choices of groups by MSR_PEBS_DATA_CFG's names. Of branches there are 8, 16, or as many as the depth.
struct Choice {
  std::string_view label;
  uint64_t groups;
  unsigned entries;
};
constexpr Choice kChoices[] = {
    {"basic", 0, 0},
    {"aux", adaptive::kMemory, 0},
    {"registers", adaptive::kGprs, 0},
    {"xmm", adaptive::kXmm, 0},
    {"branches", adaptive::kBranches, 8},
    {"aux+registers", kWithRegisters, 0},
    {"registers+branches", adaptive::kGprs | adaptive::kBranches, 16},
    {"all", adaptive::kGroups, 32},
};
uint64_t config_of(const Choice& choice) { return data_config(choice.groups, choice.entries); }
std::vector<Param> choices() {
  std::vector<Param> params;
  for (uint64_t i = 0; i < std::size(kChoices); ++i) {
    params.push_back({.label = std::string(kChoices[i].label), .numbers = {i}});
  }
  return params;
}

// The groups of a record in the same terms.
uint64_t groups_in(const Record& record) {
  using arch::RecordLayout;
  return (record.has(&RecordLayout::data_address) ? adaptive::kMemory : 0) |
         (record.has(&RecordLayout::ip) ? adaptive::kGprs : 0) |
         (record.has(&RecordLayout::xmm) ? adaptive::kXmm : 0) |
         (record.branches() != 0 ? adaptive::kBranches : 0);
}

// What counters hold that stand still, put back at the end: bits above 31, too.
constexpr uint64_t gp_value(unsigned n) { return (uint64_t{0x5A00} + n) << 32 | (0x100 + n); }
constexpr uint64_t fixed_value(unsigned m) { return (uint64_t{0x3C00} + m) << 32 | (0x200 + m); }

// The bits of a mask that a register takes, one by one.
Expected<uint64_t> taken_bits(Machine& machine, uint32_t msr, uint64_t mask) {
  uint64_t taken = 0;
  for (unsigned b : counters_of(mask)) {
    if (!SKIDPROOF_TRY(refuses(machine, msr, bit(b)))) taken |= bit(b);
  }
  return taken;
}

}  // namespace

SKIDPROOF_SUITE(PebsArchitectural, kOneRecord);

// --- Enumeration

// By the row alone: where the leaves contradict one another no session can be opened.
SKIDPROOF_TEST(PebsArchitectural, IsEnumeratedByItsFormatAndByLeaf23H, clause::X1) {
  const uint64_t value = need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES));
  const uint64_t format = (value & arch::capabilities::kFormat) >> arch::capabilities::kFormatShift;
  evidence("format", format);
  SKIDPROOF_REQUIRE(row().architectural_pebs() || format == arch::kArchitecturalFormat,
                    SkipCategory::kNotOnThisMicroarch, kNot);
  namespace cpuid = arch::cpuid;
  const auto leaf = [&](uint32_t subleaf) {
    return machine().cpuid(cpuid::kExtendedPerfmon, subleaf);
  };
  constexpr uint32_t kBoth = 1U << cpuid::kExtendedPebs | 1U << cpuid::kExtendedPebsCounters;
  VERIFY_EQ(format, uint64_t{arch::kArchitecturalFormat});
  VERIFY_EQ(results::hex(leaf(cpuid::kExtendedMain).eax & kBoth), results::hex(kBoth));
  const auto there = leaf(cpuid::kExtendedCounters);
  const auto groups = leaf(cpuid::kExtendedPebs);
  const auto pebs = leaf(cpuid::kExtendedPebsCounters);
  evidence("groups", results::hex(groups.ebx));
  evidence("counters", results::hex(uint64_t{pebs.eax} | uint64_t{pebs.ecx} << 32));
  evidence("pdist", results::hex(uint64_t{pebs.ebx} | uint64_t{pebs.edx} << 32));
  VERIFY_NE(pebs.eax | pebs.ecx, 0u) << "some counter has PEBS";
  VERIFY_EQ(results::hex(pebs.eax & ~there.eax), results::hex(0)) << "counters that are not there";
  VERIFY_EQ(results::hex(pebs.ecx & ~there.ebx), results::hex(0)) << "fixed ones";
  VERIFY_EQ(results::hex(pebs.ebx & ~pebs.eax), results::hex(0)) << "PDist without PEBS";
  VERIFY_EQ(results::hex(pebs.edx & ~pebs.ecx), results::hex(0)) << "fixed ones";
  constexpr uint32_t kReserved = 0x9F00'FC87;
  VERIFY_EQ(results::hex(groups.ebx & kReserved), results::hex(0));
}

// --- Registers

SKIDPROOF_TEST(PebsArchitectural, HasAConfigurationForEachCounterThatIsListed, clause::X2) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const arch::ExtendedPerfmon& x = uarch().extended;
  const uint64_t groups = uint64_t{x.pebs_groups} << cfg_c::kGroupsShift;
  const auto check = [&](uint32_t msr) {
    Restore restore(machine(), {msr});
    std::vector<uint64_t> words = {0, random().next() & cfg_c::kReload, cfg_c::kReload,
                                   cfg_c::kEnable,
                                   cfg_c::kEnable | groups | (random().next() & cfg_c::kReload)};
    for (uint64_t rest = groups; rest != 0; rest &= rest - 1) words.push_back(rest & (0 - rest));
    for (uint64_t word : words) {
      const bool refused = need(refuses(machine(), msr, word));
      VERIFY_FALSE(refused) << results::hex(msr) << " of " << results::hex(word);
      if (refused) continue;
      need(machine().wrmsr(msr, word));
      VERIFY_EQ(results::hex(need(machine().rdmsr(msr))), results::hex(word));
    }
  };
  for (unsigned n : counters_of(x.pebs_gp)) check(gp_config(n));
  for (unsigned m : counters_of(x.pebs_fixed)) check(fixed_config(m));
}

SKIDPROOF_TEST(PebsArchitectural, RecordsOnEachCounterThatIsListed, clause::X2) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  unsigned sampled_ones = 0;
  for (unsigned n : counters_of(uarch().extended.pebs_gp)) {
    const arch::Event* event = precise_event(uarch(), Signal::kConditional, n);
    if (event == nullptr) continue;
    const uint64_t period = usable_period(uarch(), n, *event, 40);
    const Sampled sampled = need(sample(machine(), one_counter(n, *event, period, 8), code,
                                        iterations_for_exactly(kRecords, period)));
    VERIFY_EQ(sampled.records().size(), kRecords) << "counter " << n;
    for (Record record : sampled.records()) {
      VERIFY_EQ(results::hex(record.applicable_counters()), results::hex(bit(n)));
    }
    ++sampled_ones;
  }
  evidence("counters", sampled_ones);
  SKIDPROOF_REQUIRE(sampled_ones > 0, SkipCategory::kNotOnThisMicroarch, kNoEvent);
}

SKIDPROOF_TEST(PebsArchitectural, KeepsTheBufferInItsRegisters, clause::X3, clause::X4) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  using arch::IA32_PEBS_BASE;
  using arch::IA32_PEBS_INDEX;
  Restore restore(machine(), {arch::IA32_PERF_GLOBAL_CTRL, IA32_PEBS_INDEX, IA32_PEBS_BASE});
  need(machine().wrmsr(arch::IA32_PERF_GLOBAL_CTRL, 0));
  // No page of it is written: nothing counts. Every physical address has 36 bits.
  const uint64_t pages = random().next() & (bit(36) - 1) & ~uint64_t{0xF'FFFF};
  const std::vector<std::pair<uint32_t, uint64_t>> words = {
      {IA32_PEBS_BASE, pages},
      {IA32_PEBS_BASE, pages | 1},
      {IA32_PEBS_BASE, pages | 4},
      {IA32_PEBS_BASE, 0},
      {IA32_PEBS_INDEX, index_register::kEnable},
      {IA32_PEBS_INDEX, index_register::kWrite},
      {IA32_PEBS_INDEX, index_register::kThreshold},
      {IA32_PEBS_INDEX, random().next() & (index_register::kWrite | index_register::kThreshold |
                                           index_register::kEnable)},
      {IA32_PEBS_INDEX, 0}};
  for (const auto& [msr, word] : words) {
    const bool refused = need(refuses(machine(), msr, word));
    VERIFY_FALSE(refused) << results::hex(msr) << " of " << results::hex(word);
    if (refused) continue;
    need(machine().wrmsr(msr, word));
    VERIFY_EQ(results::hex(need(machine().rdmsr(msr))), results::hex(word)) << results::hex(msr);
  }
}

// --- The buffer

SKIDPROOF_TEST(PebsArchitectural, AppendsRecordsWhereWrPoints, clause::X4, clause::X3) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const Jumps jumps = jumps_of(uarch());
  SKIDPROOF_REQUIRE(jumps.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));

  Sampled sampled =
      need(sample(machine(), plan_of(jumps), code, iterations_for_exactly(kRecords, jumps.period)));

  const uint64_t base = need(machine().rdmsr(arch::IA32_PEBS_BASE));
  const uint64_t index = need(machine().rdmsr(arch::IA32_PEBS_INDEX));
  evidence("base", results::hex(base));
  evidence("index", results::hex(index));
  VERIFY_EQ(sampled.records().size(), kRecords);
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u) << "what lies below WR are records";
  size_t bytes = 0;
  for (Record record : sampled.records()) bytes += record.bytes().size();
  VERIFY_EQ(sampled.session.index() - sampled.session.base(), bytes);
  VERIFY_EQ(bytes % index_register::kUnit, 0u);
  uint64_t written = 0;
  for (std::byte b : sampled.session.after_index()) written += b != Session::kFill ? 1 : 0;
  VERIFY_EQ(written, 0u) << "bytes behind WR";
  // One more begins there.
  const uint64_t before = sampled.session.index();
  need(sampled.session.resume(code, jumps.period + 1));
  VERIFY_EQ(sampled.records().size(), kRecords + 1);
  if (sampled.records().empty()) return;
  VERIFY_EQ(sampled.session.index() - before, sampled.records().back().bytes().size());
}

// A buffer of whole records that is 4096 << SIZE bytes long, at whose end nothing more is recorded.
SKIDPROOF_TEST_OVER(PebsArchitectural, EndsWhereSizeSays, over::numbers("records=", {4, 40}),
                    clause::X3) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const Jumps jumps = jumps_of(uarch());
  SKIDPROOF_REQUIRE(jumps.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  SessionPlan plan = plan_of(jumps);
  plan.buffer_records = param().number();

  Sampled sampled = need(
      sample(machine(), plan, code, iterations_for_exactly(param().number() + 2, jumps.period)));

  const uint64_t end = sampled.session.maximum() - sampled.session.base();
  evidence("room", end);
  VERIFY_LE(sampled.session.index(), sampled.session.maximum());
  const std::span<const std::byte> behind =
      sampled.session.after_index().subspan(sampled.session.maximum() - sampled.session.index());
  uint64_t written = 0;
  for (std::byte b : behind) written += b != Session::kFill ? 1 : 0;
  VERIFY_EQ(written, 0u) << "bytes behind the buffer";
}

// --- The threshold

SKIDPROOF_TEST_OVER(PebsArchitectural, SetsBit54AndNoOtherAtTheThreshold,
                    over::numbers("threshold=", {1, 3}), clause::X5, clause::X4) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const Jumps jumps = jumps_of(uarch());
  SKIDPROOF_REQUIRE(jumps.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const uint64_t threshold = param().number();
  SessionPlan plan = plan_of(jumps);
  plan.threshold_records = threshold;
  plan.pmi.clear_status = false;
  constexpr uint64_t kBuffer =
      arch::status::kPebsThreshold | arch::status::kOvfBuffer | arch::status::kTraceToPa;

  Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(threshold, jumps.period)));

  VERIFY_EQ(sampled.records().size(), threshold);
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_EQ(results::hex(pmi.global_status & kBuffer),
              results::hex(arch::status::kPebsThreshold));
    VERIFY_EQ(pmi.pebs_index, sampled.session.threshold());
  }
  VERIFY_EQ(results::hex(sampled.run.global_status & kBuffer),
            results::hex(arch::status::kPebsThreshold));
}

// --- Groups

// The other counter, which overflows never together with the first, chooses others.
SKIDPROOF_TEST_OVER(PebsArchitectural, HasTheGroupsOfItsOwnCounter, choices(), clause::X6,
                    clause::X2) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const unsigned arms = uarch().arming_counters();
  SKIDPROOF_REQUIRE(std::popcount(arms) > 1, SkipCategory::kNotOnThisMicroarch,
                    "PEBS arms on one counter alone");
  const std::vector<unsigned> two = counters_of(arms);
  const arch::Event* event = precise_event(uarch(), Signal::kConditional, two[0]);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Choice& first = kChoices[param().number()];
  const Choice& second = kChoices[(param().number() + 5) % std::size(kChoices)];
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  // An overflow of the first is a third of a period from one of the second, and more than 32 iterations from the beginning.
  const uint64_t period = usable_period(uarch(), 180);
  SessionPlan plan = one_counter(two[0], *event, period, 16);
  plan.counters.push_back(CounterSetup::of(two[1], *event, period));
  plan.counters[1].initial = minus_period(period / 3, uarch().gp_width);
  plan.counters[1].reset = minus_period(period, uarch().gp_width);
  plan.counters[0].groups = config_of(first);
  plan.counters[1].groups = config_of(second);

  const Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(kRecords, period)));

  std::map<unsigned, unsigned> records;
  for (Record record : sampled.records()) {
    for (unsigned i = 0; i < 2; ++i) {
      if (record.applicable_counters() != bit(two[i])) continue;
      ++records[i];
      const Choice& choice = i == 0 ? first : second;
      VERIFY_EQ(groups_in(record), choice.groups) << "counter " << two[i];
      VERIFY_EQ(record.branches(), choice.entries);
      VERIFY_EQ(record.eventing_ip(), code.mark("loop.jnz"));
      if (choice.groups & adaptive::kGprs) {
        VERIFY_EQ(record.gpr(arch::Gpr::kRsi), code.data_address);
        VERIFY_EQ(record.ip(), code.mark("loop.first"));
      }
      for (unsigned b = 0; b < record.branches(); ++b) {
        VERIFY_EQ(record.branch(b).from, code.mark("loop.jnz")) << "entry " << b;
        VERIFY_EQ(record.branch(b).to, code.mark("loop.first")) << "entry " << b;
      }
    }
  }
  evidence("records", records[0]);
  evidence("records-of-the-other", records[1]);
  VERIFY_GE(records[0], kRecords);
  VERIFY_GE(records[1], kRecords);
}

SKIDPROOF_TEST(PebsArchitectural, HasTheAddressOfAnAccessInItsAuxGroup, clause::X6, clause::G3) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = precise_event(uarch(), Signal::kStores, counter);
  SKIDPROOF_REQUIRE(event != nullptr && event->data_address, SkipCategory::kNotOnThisMicroarch,
                    "no event of stores with an address");
  const Program& code = program("sparse_event", sparse_parameters("store"));
  const uint64_t period = usable_period(uarch(), 40);
  const Sampled sampled = need(sample(machine(), one_counter(counter, *event, period, 16), code,
                                      iterations_for_exactly(kRecords, period)));
  VERIFY_GE(sampled.records().size(), kRecords);
  for (Record record : sampled.records()) {
    if (foreign(code, record.eventing_ip())) continue;
    VERIFY_EQ(record.eventing_ip(), code.mark("event"));
    VERIFY_EQ(results::hex(record.data_address()), results::hex(code.data_address));
  }
}

SKIDPROOF_TEST_OVER(PebsArchitectural, HasTheCountersThatAllowIt,
                    over::words({"one", "others", "fixed", "all"}), clause::X7) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  constexpr uint64_t kNeeded =
      (cfg_c::kAllow | cfg_c::kCountersGp | cfg_c::kCountersFixed) >> cfg_c::kGroupsShift;
  SKIDPROOF_REQUIRE((uarch().extended.pebs_groups & kNeeded) == kNeeded,
                    SkipCategory::kNotOnThisMicroarch, "no record has counters");
  const Jumps jumps = jumps_of(uarch());
  SKIDPROOF_REQUIRE(jumps.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const std::string& which = param().word();
  const uint64_t own = bit(jumps.counter);
  const uint64_t every_gp = uarch().extended.pebs_gp;
  const uint64_t gp = which == "one"     ? own
                      : which == "fixed" ? 0
                      : which == "all"   ? every_gp
                                         : every_gp & ~own & 0x0F;
  const uint64_t fixed =
      which == "fixed" || which == "all" ? uint64_t{uarch().extended.pebs_fixed} : 0;
  Restore restore(machine(), {});
  for (unsigned n : counters_of(every_gp)) {
    const uint32_t msr = arch::counter_msr(uarch(), n);
    const uint32_t full = msr == arch::IA32_PMC0 + n ? arch::IA32_A_PMC0 + n : msr;
    restore.add(full);
    need(machine().wrmsr(full, gp_value(n)));
  }
  for (unsigned m : counters_of(uarch().extended.pebs_fixed)) {
    restore.add(arch::fixed_counter_msr(uarch(), m));
    need(machine().wrmsr(arch::fixed_counter_msr(uarch(), m), fixed_value(m)));
  }
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  SessionPlan plan = plan_of(jumps);
  plan.pebs_data_cfg =
      adaptive::kCounters | gp << adaptive::kIncludeShift | fixed << adaptive::kIncludeFixedShift;

  const Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(kRecords, jumps.period)));

  VERIFY_EQ(sampled.records().size(), kRecords);
  for (Record record : sampled.records()) {
    const auto vectors = record.snapshot();
    VERIFY_TRUE(vectors.has_value()) << "a group of counters";
    if (!vectors) return;
    VERIFY_EQ(results::hex(vectors->gp), results::hex(gp));
    VERIFY_EQ(results::hex(vectors->fixed), results::hex(fixed));
    unsigned at = 0;
    for (unsigned n : counters_of(gp)) {
      const uint64_t value = record.snapshot_value(at++);
      if (n == jumps.counter) {
        VERIFY_LT(value, jumps.period) << "it has overflowed and is not loaded yet";
      } else {
        VERIFY_EQ(results::hex(value), results::hex(gp_value(n))) << "counter " << n;
      }
    }
    for (unsigned m : counters_of(fixed)) {
      VERIFY_EQ(results::hex(record.snapshot_value(at++)), results::hex(fixed_value(m)))
          << "fixed counter " << m;
    }
  }
}

// --- Reload

SKIDPROOF_TEST_OVER(PebsArchitectural, LoadsTheReloadValueOfItsOwnCounter,
                    over::numbers("value=", {0x8000'0000, 0x7FFF'0000, 0x0123'4560, 0xFFFF'0001}),
                    clause::X8) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const Jumps jumps = jumps_of(uarch());
  SKIDPROOF_REQUIRE(jumps.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const uint64_t iterations = iterations_for_exactly(3, jumps.period);
  const uint64_t events = need(count(machine(), jumps.counter, *jumps.event, code, iterations));
  SessionPlan plan = plan_of(jumps);
  const uint64_t loaded = (param().number() | ~cfg_c::kReload) & arch::gp_counter_mask(uarch());
  plan.counters[0].reset = loaded;

  const Sampled sampled = need(sample(machine(), plan, code, iterations));

  evidence("counter", results::hex(sampled.run.counters[0]));
  VERIFY_EQ(sampled.records().size(), 1u);
  VERIFY_EQ(results::hex(sampled.run.counters[0]),
            results::hex(loaded + events - events_a_record(uarch(), jumps.counter, jumps.period)))
      << "the value and the events since the record";
}

// --- What only one kernel's code tells

SKIDPROOF_TEST(PebsArchitectural, ObservesHowRecordsAreLaidOut, clause::X9) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  const Jumps jumps = jumps_of(uarch());
  SKIDPROOF_REQUIRE(jumps.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  for (const Choice& choice : kChoices) {
    SessionPlan plan = plan_of(jumps);
    plan.pebs_data_cfg = config_of(choice);
    const Sampled sampled =
        need(sample(machine(), plan, code, iterations_for_exactly(1, jumps.period)));
    if (sampled.records().empty()) continue;
    const Record record = sampled.records().front();
    const size_t summed = architectural::record_bytes(record.groups(), uarch().last_branches.depth);
    observe(choice.label, {{"bytes", record.bytes().size()},
                           {"sum of the groups", summed},
                           {"header", results::hex(record.header())},
                           {"continued", architectural::continued(record.header())}});
  }
}

SKIDPROOF_TEST(PebsArchitectural, ObservesWhatElseItsRegistersDo, clause::X10, clause::X11,
               clause::X12) {
  SKIDPROOF_REQUIRE(uarch().architectural_pebs(), SkipCategory::kNotOnThisMicroarch, kNot);
  observe("IA32_PEBS_ENABLE is refused", need(refuses_to_read(machine(), arch::IA32_PEBS_ENABLE)));
  observe("MSR_PEBS_DATA_CFG is refused",
          need(refuses_to_read(machine(), arch::MSR_PEBS_DATA_CFG)));
  {
    Restore restore(machine(), {arch::IA32_PERF_GLOBAL_CTRL, arch::IA32_PEBS_INDEX});
    need(machine().wrmsr(arch::IA32_PERF_GLOBAL_CTRL, 0));
    observe("reserved bits that IA32_PEBS_INDEX takes",
            results::hex(
                need(taken_bits(machine(), arch::IA32_PEBS_INDEX, ~index_register::kDefined))));
    const uint32_t config = gp_config(arming_counter(uarch()));
    restore.add(config);
    observe("reserved bits that CFG_C takes",
            results::hex(need(taken_bits(machine(), config, cfg_c::kReserved))));
  }
  const Jumps jumps = jumps_of(uarch());
  SKIDPROOF_REQUIRE(jumps.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  SessionPlan plan = plan_of(jumps);
  plan.buffer_records = 2;
  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(4, jumps.period)));
  const uint64_t index = need(machine().rdmsr(arch::IA32_PEBS_INDEX));
  observe("records where there is room for two", sampled.records().size());
  observe("FULL behind them", (index & index_register::kFull) != 0);
}

}  // namespace skidproof::check::arch_pebs
