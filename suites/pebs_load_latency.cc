// Load latency: records of loads slower than a threshold, with their address, latency and source.
#include <fmt/format.h>

#include "harness/check/check.h"
#include "pebs/arch/data_source.h"
#include "pebs/arch/msr.h"
#include "suites/load_latency.h"
#include "suites/sampling.h"

namespace skidproof::pebs_load_latency {

SKIDPROOF_SUITE(PebsLoadLatency, kOneRecord);

namespace {

using namespace suites;
using arch::DataSource;
using arch::EventKind;
using check::Param;
using check::SkipCategory;
namespace over = check::over;

constexpr size_t kRecords = 50;
constexpr size_t kFewRecords = 24;  // where each of them is judged by itself
// Pointers that fit the L1 cache; that come from beyond it; one in each of 4096 pages.
constexpr char kResident[] = "bytes=8K";
constexpr char kSpread[] = "bytes=1M";
constexpr char kPages[] = "bytes=16M,granularity=4K,stagger=1";
constexpr char kFar[] = "bytes=@beyond-l3,granularity=4K";

constexpr char kNoFacility[] = "no load latency facility";

SessionPlan plan_above(const arch::Microarch& microarch, uint64_t threshold,
                       size_t records = kRecords) {
  return latency_plan(microarch, latency_counter(microarch), records, threshold);
}
#define SKIDPROOF_TAGGING calibrated(calibrate::Quantity::kLoadsATag)

// The address of a pointer of the chase.
bool in_chase(const Program& program, uint64_t address) {
  return address >= program.data_address && address < program.data_address + program.data_bytes &&
         address % 8 == 0;
}

// Loads of the machine's own code around the program are recorded too; those of the chase are known
// by their address.
std::vector<Record> chase_records(const Program& program, const Records& records) {
  std::vector<Record> out;
  for (Record record : records) {
    if (in_chase(program, record.data_address())) out.push_back(record);
  }
  return out;
}

// --- Threshold

std::vector<Param> thresholds() {
  return over::product(over::words({kResident, kSpread}),
                       over::numbers("above", {3, 4, 8, 16, 24, 32, 64, 256}));
}

SKIDPROOF_TEST_OVER(PebsLoadLatency, RecordsOnlyLoadsAboveTheThreshold, thresholds(), clause::P11,
                    clause::P12) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const Program& chase = program("pointer_chase", param().word());
  uint64_t threshold = param().number();
  TaggedLoads control =
      need(sample_tagged(machine(), plan_above(uarch(), least_threshold(uarch()), kFewRecords),
                         chase, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(control);
  VERIFY_GE(chase_records(chase, control.records()).size(), kFewRecords / 2)
      << "the control, with the least threshold";
  need(control.session.close());

  Sampled sampled = need(
      sample(machine(), plan_above(uarch(), threshold, kFewRecords), chase, control.iterations));
  std::map<int64_t, uint64_t> latencies;
  for (Record record : sampled.records()) {
    VERIFY_GT(record.latency(), threshold) << "a load at " << record.data_address();
    ++latencies[static_cast<int64_t>(record.latency())];
  }
  histogram("latency", "cycles", latencies);
  evidence("threshold", threshold);
  evidence("outcome", latencies.empty() ? "nothing recorded" : "records");
}

// Chases from near to far: of lines in L1; of more lines of one L1 set than it has ways, which L2 has; of lines
// that are flushed behind each load. Their few pages stay in the first-level TLB, so that what a load takes
// are the caches and memory.
constexpr const char* kDistances[] = {kResident, "bytes=96K,granularity=4K",
                                      "bytes=64K,granularity=4K,flush=1"};

// Cycles of an iteration.
Expected<double> cycles_a_load(Machine& machine, const Program& chase, uint64_t iterations) {
  SessionPlan counting;
  counting.fixed = {{.counter = 1}};  // core cycles
  const Sampled sampled = SKIDPROOF_TRY(sample(machine, counting, chase, iterations));
  return static_cast<double>(sampled.run.fixed.at(0)) / static_cast<double>(iterations);
}

// What of a recorded latency the caches took.
uint64_t cache_share(const Record& record) {
  return record.cache_latency() != 0 ? record.cache_latency() : record.latency();
}

// Loads that the least threshold records as slower than a threshold are recorded above it, too. What the
// threshold is compared with no text says: the whole latency, or the caches' share of it. So what counts
// is loads whose share alone lies well above.
SKIDPROOF_TEST_OVER(PebsLoadLatency, RecordsLoadsThatAreSlowerThanTheThreshold,
                    over::numbers("above", {3, 4, 8, 16, 24, 32, 64, 256}), clause::P11,
                    clause::P12) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const auto threshold = static_cast<double>(param().number());
  const Program* chase = nullptr;
  size_t found_by_control = 0, slower = 0;
  const uint64_t least_loads = std::min(
      loads_for(kFewRecords, usable_period(uarch(), 32), SKIDPROOF_TAGGING), kMostTaggedLoads);
  uint64_t iterations = least_loads;
  for (const char* distance : kDistances) {
    chase = &program("pointer_chase", distance);
    // A load waits for the one before: at this rate hardly one takes as long as the threshold.
    if (need(cycles_a_load(machine(), *chase, least_loads)) < threshold / 2) continue;
    TaggedLoads control =
        need(sample_tagged(machine(), plan_above(uarch(), least_threshold(uarch()), kFewRecords),
                           *chase, SKIDPROOF_TAGGING));
    SKIDPROOF_REQUIRE_TAGS(control);
    iterations = control.iterations;
    const std::vector<Record> found = chase_records(*chase, control.records());
    found_by_control = found.size();
    VERIFY_GE(found_by_control, kFewRecords / 2) << "the control, with the least threshold";
    slower = static_cast<size_t>(std::count_if(found.begin(), found.end(), [&](const Record& each) {
      return static_cast<double>(cache_share(each)) > 1.25 * threshold;
    }));
    need(control.session.close());
    if (2 * slower >= found_by_control) break;
  }
  evidence("chase", chase->parameters);
  evidence("records-of-the-control", found_by_control);
  evidence("slower", slower);
  SKIDPROOF_REQUIRE(slower > 0 && 2 * slower >= found_by_control, SkipCategory::kMachineLimit,
                    "no chase is slow enough for this threshold on this machine");
  Sampled sampled = need(
      sample(machine(), plan_above(uarch(), param().number(), kFewRecords), *chase, iterations));
  const std::vector<Record> found = chase_records(*chase, sampled.records());
  evidence("records", found.size());
  // Half of the control's at the least; of so few as these, a quarter of that is chance.
  VERIFY_GT(found.size(), 0u);
  VERIFY_GE(found.size(), found_by_control / 8);
  for (const Record& record : found) VERIFY_GT(record.latency(), param().number());
}

SKIDPROOF_TEST(PebsLoadLatency, CountsFewerLoadsAboveAHigherThreshold, clause::P11, clause::P15) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const Program& chase = program("pointer_chase", kResident);
  // Counted from zero, without an overflow.
  auto counted = [&](uint64_t threshold, uint64_t iterations) {
    SessionPlan plan = plan_above(uarch(), threshold);
    plan.counters[0].initial = 0;
    return need(sample(machine(), plan, chase, iterations)).run.counters.at(0);
  };
  uint64_t iterations = std::min(loads_for(kRecords, 1, SKIDPROOF_TAGGING), kMostTaggedLoads);
  const uint64_t most =
      SKIDPROOF_TAGGING.known() ? std::min(64 * iterations, kMostTaggedLoads) : kMostTaggedLoads;
  uint64_t above_least = counted(least_threshold(uarch()), iterations);
  while (above_least < kRecords && iterations < most) {
    iterations = std::min(8 * iterations, most);
    above_least = counted(least_threshold(uarch()), iterations);
  }
  evidence("loads", iterations);
  evidence("above_least", above_least);
  if (above_least == 0) {
    // How many are tagged is open; a facility that counts not one of so many counts none.
    VERIFY_GT(above_least, 0u) << "loads in the L1 cache take more cycles than the least threshold";
    return;
  }
  if (above_least < kRecords) {
    observe("tagging", "too sparse");
    return;
  }
  const uint64_t above_many = counted(1000, iterations);
  evidence("above_1000", above_many);
  VERIFY_LE(above_many, above_least / 20) << "loads in the L1 cache take no 1000 cycles";
}

// --- Address and source

SKIDPROOF_TEST_OVER(PebsLoadLatency, RecordsTheAddressOfALoadOfTheChase,
                    over::words({kResident, kSpread, kPages}), clause::P12, clause::R10) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const Program& chase = program("pointer_chase", param().word());
  TaggedLoads sampled = need(sample_tagged(machine(), plan_above(uarch(), least_threshold(uarch())),
                                           chase, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(sampled);
  size_t found = chase_records(chase, sampled.records()).size();
  VERIFY_GE(found, kRecords / 2) << "records with an address of the chase";
  VERIFY_LE(sampled.records().size() - found, kForeignAllowed) << "records of other addresses";
  for (Record record : chase_records(chase, sampled.records())) {
    VERIFY_GT(record.latency(), least_threshold(uarch()));
  }
  evidence("records", found);
}

// The shares of the records that tell a source by data source, and of all those whose translation missed the STLB.
struct Sources {
  TaggedLoads loads;
  std::map<int64_t, uint64_t> bins = {};
  uint64_t records = 0, known = 0;
  double l1_hit = 0, stlb_miss = 0, locked = 0;

  // How often a processor may not know no text says (E8): by less than half of the records nothing is judged.
  bool tells_enough() const { return 2 * known >= records; }
};

enum class Before : uint8_t { kNothing, kTheSame };  // so that caches are warm
Expected<Sources> sources(Machine& machine, const Program& chase, const calibrate::Figure& tagging,
                          Before before = Before::kTheSame) {
  const arch::Microarch& microarch = *machine.identity().microarch;
  Sources out{.loads = SKIDPROOF_TRY(sample_tagged(
                  machine, plan_above(microarch, least_threshold(microarch)), chase, tagging))};
  Session& session = out.loads.session;
  // What is near takes less time, and where tags come by time it has fewer of them.
  for (uint64_t times = 1; before == Before::kTheSame && out.loads.enough() && times <= 64;
       times *= 4) {
    session.rewind();
    SKIDPROOF_TRY(session.run(chase, std::min(times * out.loads.iterations, kMostTaggedLoads)));
    if (session.records().size() >= out.loads.wanted) break;
  }
  out.loads.recorded = session.records().size();
  uint64_t stlb_misses = 0, locked = 0;
  for (const Record& record : chase_records(chase, session.records())) {
    const arch::AccessInfo& info = microarch.access;
    stlb_misses += (record.data_source() & info.stlb_miss) != 0;
    locked += (record.data_source() & info.locked) != 0;
    ++out.records;
    // What the processor could not tell says nothing. (E8)
    if (microarch.unknown_sources && !info.tells_source(record.data_source())) continue;
    ++out.known;
    ++out.bins[static_cast<int64_t>(info.source_of(record.data_source()))];
  }
  const auto share = [](uint64_t part, uint64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<uint64_t>(whole, 1));
  };
  out.l1_hit = share(out.bins[static_cast<int64_t>(DataSource::kL1Hit)], out.known);
  out.stlb_miss = share(stlb_misses, out.records);
  out.locked = share(locked, out.records);
  SKIDPROOF_CHECK(session.close());
  return out;
}

constexpr double kNearlyAll = 0.8, kMost = 0.5, kHardlyAny = 0.2;

SKIDPROOF_TEST(PebsLoadLatency, NamesTheL1CacheForAChaseThatFitsIt, clause::P12, clause::P13,
               clause::V15) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  Sources found = need(sources(machine(), program("pointer_chase", kResident), SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(found.loads);
  VERIFY_GE(found.records, kRecords / 2);
  if (!uarch().access.source_published) {
    observe("L1 hits where Linux reads the source, of a chase that fits", found.l1_hit);
    return;
  }
  if (!found.tells_enough()) {
    observe("records that tell their source, of a chase that fits", found.known);
    return;
  }
  VERIFY_GE(found.l1_hit, kNearlyAll) << "8 KiB fit";
  histogram("source", "Table 18-24", found.bins, {static_cast<int64_t>(DataSource::kL1Hit)});
}

// Control and case in one: what fits names the L1 cache, what does not fit names something else.
SKIDPROOF_TEST(PebsLoadLatency, NamesAFurtherSourceForAChaseBeyondTheL1Cache, clause::P12,
               clause::P13, clause::E7, clause::E8, clause::V15) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  Sources near = need(sources(machine(), program("pointer_chase", kResident), SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(near.loads);
  Sources beyond = need(sources(machine(), program("pointer_chase", kSpread), SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(beyond.loads);
  VERIFY_GE(near.records, kRecords / 2);
  VERIFY_GE(beyond.records, kRecords / 2);
  if (!uarch().access.source_published) {
    observe("L1 hits where Linux reads the source, of a chase that does not fit", beyond.l1_hit);
    return;
  }
  VERIFY_GT(near.known + beyond.known, 0u) << "records that tell their source";
  if (near.tells_enough() && beyond.tells_enough()) {
    VERIFY_LE(beyond.l1_hit, near.l1_hit / 2) << "1 MiB does not fit";
  } else {
    observe("records that tell their source, of both chases", near.known + beyond.known);
  }
  // Table 18-24 reserves 9, Table 21-55 others; 5 to 7 of the former are disputed, and anything that a table defines may
  // be.
  for (const auto& [source, count] : beyond.bins) {
    if (source >= 32 || (uarch().reserved_sources >> source & 1) == 0) continue;
    VERIFY_EQ(count, 0u) << "source " << source << " is reserved";
  }
  VERIFY_EQ(beyond.bins[static_cast<int64_t>(DataSource::kIo)], 0u) << "it is memory";
  histogram("source", "Table 18-24", beyond.bins);
}

// Where the table reserves encodings, what comes from memory has none of them either.
SKIDPROOF_TEST(PebsLoadLatency, NamesADefinedSourceForWhatComesFromMemory, clause::E7,
               clause::P12) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  SKIDPROOF_REQUIRE(uarch().access.source_published && uarch().reserved_sources != 0,
                    SkipCategory::kNotOnThisMicroarch, "no table reserves an encoding");
  Sources far =
      need(sources(machine(), program("pointer_chase", kFar), SKIDPROOF_TAGGING, Before::kNothing));
  SKIDPROOF_REQUIRE_TAGS(far.loads);
  VERIFY_LE(far.l1_hit, kHardlyAny) << "no level holds it";
  for (const auto& [source, count] : far.bins) {
    if (source >= 32 || (uarch().reserved_sources >> source & 1) == 0) continue;
    VERIFY_EQ(count, 0u) << "source " << source << " is reserved";
  }
  histogram("source", "the row's table", far.bins);
}

// Each load of a chase waits for the one before, so that the line of none is on its way already. What an encoding of an
// older core would call so is the second level here.
SKIDPROOF_TEST(PebsLoadLatency, NamesNoLineOnItsWayInAChase, clause::V15, clause::P12) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  SKIDPROOF_REQUIRE(!uarch().access.encodings.empty(), SkipCategory::kNotOnThisMicroarch,
                    "the encodings are those of Table 18-24");
  Sources beyond = need(sources(machine(), program("pointer_chase", kSpread), SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(beyond.loads);
  VERIFY_GE(beyond.records, kRecords / 2);
  if (!beyond.tells_enough()) {
    observe("records that tell their source, of a chase that does not fit", beyond.known);
    return;
  }
  const auto share = [&](DataSource source) {
    return static_cast<double>(beyond.bins[static_cast<int64_t>(source)]) /
           static_cast<double>(beyond.known);
  };
  VERIFY_LE(share(DataSource::kFillBuffer), kHardlyAny);
  VERIFY_LE(share(DataSource::kReserved9), 0.0) << "an encoding that the table does not have";
  histogram("source", "Table 21-107", beyond.bins);
}

SKIDPROOF_TEST(PebsLoadLatency, TellsLoadsThatMissTheStlb, clause::P14, clause::P12, clause::E6) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  SKIDPROOF_REQUIRE(uarch().data_source_tlb_lock_bits, SkipCategory::kNotOnThisMicroarch,
                    "bit 4 of the data source is reserved on this microarch (Table 18-24)");
  Sources near = need(sources(machine(), program("pointer_chase", kResident), SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(near.loads);
  // A run before it may have ended shortly behind the pages with which this one begins.
  Sources pages = need(
      sources(machine(), program("pointer_chase", kPages), SKIDPROOF_TAGGING, Before::kNothing));
  SKIDPROOF_REQUIRE_TAGS(pages.loads);
  VERIFY_GE(near.records, kRecords / 2);
  VERIFY_GE(pages.records, kRecords / 2);
  if (uarch().access.source_published && near.tells_enough()) {
    VERIFY_GE(near.l1_hit, kNearlyAll) << "8 KiB fit";
  }
  evidence("two_pages", near.stlb_miss);
  evidence("4096_pages", pages.stlb_miss);
  if (!uarch().access.flags_published) {
    observe("a flag of STLB misses where Linux reads one",
            pages.stlb_miss >= kMost && near.stlb_miss <= kHardlyAny);
    return;
  }
  VERIFY_LE(near.stlb_miss, kHardlyAny) << "two pages";
  VERIFY_GE(pages.stlb_miss, kMost) << "4096 pages are more than the STLB has entries";
  VERIFY_LE(pages.locked, 0.0) << "no load of the loop is locked";
}

SKIDPROOF_TEST(PebsLoadLatency, TellsLockedLoads, clause::P14, clause::P12, clause::E6) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  SKIDPROOF_REQUIRE(uarch().data_source_tlb_lock_bits, SkipCategory::kNotOnThisMicroarch,
                    "bit 5 of the data source is reserved on this microarch (Table 18-24)");
  Sources plain = need(sources(machine(), program("pointer_chase", kResident), SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(plain.loads);
  Sources locked = need(sources(machine(), program("locked_rmw", "unroll=1"), SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(locked.loads);
  VERIFY_GE(plain.records, kRecords / 2);
  VERIFY_GE(locked.records, kRecords / 2);
  if (!uarch().access.flags_published) {
    observe("a flag of locked loads where Linux reads one",
            plain.locked <= 0.0 && locked.locked >= 1.0);
    return;
  }
  VERIFY_LE(plain.locked, 0.0);
  VERIFY_GE(locked.locked, 1.0) << "every load of the loop is locked";
}

// --- Where and when there is none

SKIDPROOF_TEST(PebsLoadLatency, NeedsBothOfItsEnableBits, clause::P10) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  SKIDPROOF_REQUIRE(uarch().load_latency_enable != 0, SkipCategory::kNotOnThisMicroarch,
                    "there is no LL_EN");
  const Program& chase = program("pointer_chase", kResident);
  unsigned counter = latency_counter(uarch());
  SessionPlan plan = plan_above(uarch(), least_threshold(uarch()));
  uint64_t pebs = arch::bit(counter);
  uint64_t latency = arch::bit(arch::pebs_enable::kLoadLatencyShift + counter);
  plan.pebs_enable = pebs | latency;
  TaggedLoads both = need(sample_tagged(machine(), plan, chase, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(both);
  VERIFY_GE(chase_records(chase, both.records()).size(), kRecords / 2)
      << "the control with both bits";
  need(both.session.close());
  auto records = [&](uint64_t enable) -> uint64_t {
    plan.pebs_enable = enable;
    Sampled sampled = need(sample(machine(), plan, chase, both.iterations));
    return chase_records(chase, sampled.records()).size();
  };
  VERIFY_EQ(records(pebs), 0u) << "load addresses although LL_EN is clear";
  VERIFY_EQ(records(latency), 0u) << "records although PEBS_EN is clear";
}

// Every counter for which it is published: loads of the chase, above the threshold.
SKIDPROOF_TEST_OVER(PebsLoadLatency, WorksOnEveryCounterOfIts,
                    over::counters({0, 1, 2, 3, 4, 5, 6, 7}), clause::E5, clause::P16) {
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE((uarch().load_latency_counters >> counter & 1) != 0,
                    SkipCategory::kNotOnThisMicroarch,
                    "load latency is not published for this counter");
  const Program& chase = program("pointer_chase", kResident);
  TaggedLoads found = need(sample_tagged(machine(), latency_plan(uarch(), counter, kFewRecords),
                                         chase, SKIDPROOF_TAGGING));
  // How many loads are tagged no document says, but not that a counter sees none where another sees many.
  for (unsigned other = 0; found.recorded == 0 && other < 8; ++other) {
    if (other == counter || (uarch().load_latency_counters >> other & 1) == 0) continue;
    SessionPlan plan = latency_plan(uarch(), other, kFewRecords);
    plan.counters[0].period = found.period;
    Sampled control = need(sample(machine(), plan, chase, found.iterations));
    if (control.records().size() < found.wanted) continue;
    VERIFY_GT(found.recorded, 0u) << "counter " << other << " recorded "
                                  << control.records().size();
    return;
  }
  SKIDPROOF_REQUIRE_TAGS(found);
  VERIFY_GE(chase_records(chase, found.records()).size(), kFewRecords / 2);
  for (Record record : found.records()) VERIFY_GT(record.latency(), least_threshold(uarch()));
}

// The published place is PMC3; one section speaks of any counter. Elsewhere the outcome is reported;
// where there are records, they keep to the threshold as those of the control do.
SKIDPROOF_TEST_OVER(PebsLoadLatency, IsReportedOnOtherCounters, over::counters({0, 1, 2}),
                    clause::P16, clause::P11) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const Program& chase = program("pointer_chase", kResident);
  constexpr uint64_t kThreshold = 24;  // no load in the L1 cache takes as long
  TaggedLoads control = need(sample_tagged(machine(), plan_above(uarch(), least_threshold(uarch())),
                                           chase, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(control);
  VERIFY_GE(chase_records(chase, control.records()).size(), kRecords / 2)
      << "the control, on the published counter";
  need(control.session.close());
  auto records_above = [&](unsigned counter, uint64_t threshold) -> uint64_t {
    Sampled sampled = need(sample(machine(), latency_plan(uarch(), counter, kRecords, threshold),
                                  chase, control.iterations));
    for (Record record : sampled.records()) VERIFY_GT(record.latency(), threshold);
    return chase_records(chase, sampled.records()).size();
  };
  VERIFY_LE(records_above(latency_counter(uarch()), kThreshold), kRecords / 2)
      << "the control, above its loads' latency";
  auto counter = static_cast<unsigned>(param().number(0));
  uint64_t found = records_above(counter, least_threshold(uarch()));
  evidence("outcome", found == 0 ? "no records" : "records");
  evidence("records", found);
}

}  // namespace
}  // namespace skidproof::pebs_load_latency
