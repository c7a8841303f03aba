// Load latency: records of loads slower than a threshold, with their address, latency and source.
#include <fmt/format.h>

#include "harness/check/check.h"
#include "pebs/arch/data_source.h"
#include "pebs/arch/msr.h"
#include "suites/sampling.h"

namespace skidproof {

SKIDPROOF_SUITE(PebsLoadLatency, kOneRecord);

namespace {

using namespace suites;
using arch::DataSource;
using arch::EventKind;
using check::Param;
using check::SkipCategory;
namespace over = check::over;

constexpr size_t kRecords = 50;
constexpr uint64_t kPeriod = 32;
constexpr uint64_t kLeastThreshold = 3;  // [SDM 18.8.1.2]
// Pointers that fit the L1 cache; that come from beyond it; one in each of 4096 pages.
constexpr char kResident[] = "bytes=8K";
constexpr char kSpread[] = "bytes=1M";
constexpr char kPages[] = "bytes=16M,granularity=4K,stagger=1";

constexpr char kNoFacility[] = "no load latency facility";

unsigned latency_counter(const arch::Microarch& microarch) {
  return static_cast<unsigned>(__builtin_ctz(microarch.load_latency_counters));
}

SessionPlan latency_plan(const arch::Microarch& microarch, unsigned counter, uint64_t threshold) {
  const arch::Event& event = *facility_event(microarch, EventKind::kLoadLatency);
  SessionPlan plan = one_counter(counter, event, usable_period(microarch, kPeriod), kRecords);
  plan.load_latency_threshold = threshold;
  return plan;
}

uint64_t iterations_of(const arch::Microarch& microarch, const calibrate::Figure& tagging) {
  return loads_for(kRecords, usable_period(microarch, kPeriod), tagging);
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
  unsigned counter = latency_counter(uarch());
  Session control = need(Session::open(machine(), latency_plan(uarch(), counter, kLeastThreshold)));
  need(control.run(chase, iterations_of(uarch(), SKIDPROOF_TAGGING)));
  VERIFY_GE(chase_records(chase, control.records()).size(), kRecords / 2)
      << "the control, with the least threshold";
  need(control.close());

  Sampled sampled = need(sample(machine(), latency_plan(uarch(), counter, threshold), chase,
                                iterations_of(uarch(), SKIDPROOF_TAGGING)));
  std::map<int64_t, uint64_t> latencies;
  for (Record record : sampled.records()) {
    VERIFY_GT(record.latency(), threshold) << "a load at " << record.data_address();
    ++latencies[static_cast<int64_t>(record.latency())];
  }
  histogram("latency", "cycles", latencies);
  evidence("threshold", threshold);
  evidence("outcome", latencies.empty() ? "nothing recorded" : "records");
}

// Chases from near to far, the furthest beyond most second levels.
constexpr const char* kChases[] = {kResident, kSpread, kPages, "bytes=32M,granularity=256"};

// What the machine itself takes for a load tells which chase is slower than a threshold, and must
// be recorded above it.
SKIDPROOF_TEST_OVER(PebsLoadLatency, RecordsLoadsThatAreSlowerThanTheThreshold,
                    over::numbers("above", {3, 4, 8, 16, 24, 32, 64, 256}), clause::P11,
                    clause::P12) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const uint64_t threshold = param().number();
  const uint64_t iterations = iterations_of(uarch(), SKIDPROOF_TAGGING);
  SessionPlan counting;
  counting.fixed = {{.counter = 1}};  // core cycles
  const Program* chase = nullptr;
  double cycles = 0;
  for (const char* parameters : kChases) {
    chase = &program("pointer_chase", parameters);
    // The second time: the first leaves in the caches what the sampled run will meet there, which is
    // longer and hence not faster.
    const uint64_t few = iterations / 4;
    for (int time = 0; time < 2; ++time) {
      cycles = static_cast<double>(need(sample(machine(), counting, *chase, few)).run.fixed[0]) /
               static_cast<double>(few);
    }
    // A quarter more, since each iteration has its start and stop and two instructions beside the load.
    if (cycles > 1.25 * static_cast<double>(threshold)) break;
  }
  evidence("chase", chase->parameters);
  evidence("cycles-a-load", cycles);
  SKIDPROOF_REQUIRE(cycles > 1.25 * static_cast<double>(threshold), SkipCategory::kMachineLimit,
                    "no chase is slow enough for this threshold on this machine");
  Sampled sampled = need(sample(
      machine(), latency_plan(uarch(), latency_counter(uarch()), threshold), *chase, iterations));
  const std::vector<Record> found = chase_records(*chase, sampled.records());
  evidence("records", found.size());
  VERIFY_GE(found.size(), kRecords / 4) << "loads of " << cycles << " cycles";
  for (const Record& record : found) VERIFY_GT(record.latency(), threshold);
}

SKIDPROOF_TEST(PebsLoadLatency, CountsFewerLoadsAboveAHigherThreshold, clause::P11) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const Program& chase = program("pointer_chase", kResident);
  std::vector<uint64_t> counts;
  for (uint64_t threshold : {kLeastThreshold, uint64_t{1000}}) {
    SessionPlan plan = latency_plan(uarch(), latency_counter(uarch()), threshold);
    plan.counters[0].initial = 0;  // counts, and overflows never
    Sampled counted =
        need(sample(machine(), plan, chase, iterations_of(uarch(), SKIDPROOF_TAGGING)));
    counts.push_back(counted.run.counters.at(0));
  }
  VERIFY_GE(counts[0], kRecords) << "loads in the L1 cache take more than 3 cycles";
  VERIFY_LE(counts[1], counts[0] / 20) << "and not 1000";
  evidence("above_3", counts[0]);
  evidence("above_1000", counts[1]);
}

// --- Address and source

SKIDPROOF_TEST_OVER(PebsLoadLatency, RecordsTheAddressOfALoadOfTheChase,
                    over::words({kResident, kSpread, kPages}), clause::P12, clause::R10) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const Program& chase = program("pointer_chase", param().word());
  Sampled sampled =
      need(sample(machine(), latency_plan(uarch(), latency_counter(uarch()), kLeastThreshold),
                  chase, iterations_of(uarch(), SKIDPROOF_TAGGING)));
  size_t found = chase_records(chase, sampled.records()).size();
  VERIFY_GE(found, kRecords / 2) << "records with an address of the chase";
  VERIFY_LE(sampled.records().size() - found, kForeignAllowed) << "records of other addresses";
  for (Record record : chase_records(chase, sampled.records())) {
    VERIFY_GT(record.latency(), kLeastThreshold);
  }
  evidence("records", found);
}

// The shares of the records by data source, and of those whose translation missed the STLB.
struct Sources {
  std::map<int64_t, uint64_t> bins;
  uint64_t records = 0;
  double l1_hit = 0, stlb_miss = 0, locked = 0;
};

enum class Before : uint8_t { kNothing, kTheSame };  // so that caches are warm
Expected<Sources> sources(Machine& machine, const Program& chase, const calibrate::Figure& tagging,
                          Before before = Before::kTheSame) {
  const arch::Microarch& microarch = *machine.identity().microarch;
  Session session = SKIDPROOF_TRY(
      Session::open(machine, latency_plan(microarch, latency_counter(microarch), kLeastThreshold)));
  if (before == Before::kTheSame) {
    SKIDPROOF_TRY(session.run(chase, iterations_of(microarch, tagging)));
    session.rewind();
  }
  SKIDPROOF_TRY(session.run(chase, iterations_of(microarch, tagging)));
  Sources out;
  uint64_t stlb_misses = 0, locked = 0;
  for (const Record& record : chase_records(chase, session.records())) {
    ++out.records;
    ++out.bins[static_cast<int64_t>(arch::data_source_of(record.data_source()))];
    stlb_misses += (record.data_source() & arch::data_source::kStlbMiss) != 0;
    locked += (record.data_source() & arch::data_source::kLocked) != 0;
  }
  double all = static_cast<double>(std::max<uint64_t>(out.records, 1));
  out.l1_hit = static_cast<double>(out.bins[static_cast<int64_t>(DataSource::kL1Hit)]) / all;
  out.stlb_miss = static_cast<double>(stlb_misses) / all;
  out.locked = static_cast<double>(locked) / all;
  return out;
}

constexpr double kNearlyAll = 0.8, kMost = 0.5, kHardlyAny = 0.2;

SKIDPROOF_TEST(PebsLoadLatency, NamesTheL1CacheForAChaseThatFitsIt, clause::P12, clause::P13) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  Sources found = need(sources(machine(), program("pointer_chase", kResident), SKIDPROOF_TAGGING));
  VERIFY_GE(found.records, kRecords / 2);
  VERIFY_GE(found.l1_hit, kNearlyAll) << "8 KiB fit";
  histogram("source", "Table 18-24", found.bins, {static_cast<int64_t>(DataSource::kL1Hit)});
}

// Control and case in one: what fits names the L1 cache, what does not fit names something else.
SKIDPROOF_TEST(PebsLoadLatency, NamesAFurtherSourceForAChaseBeyondTheL1Cache, clause::P12,
               clause::P13) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  Sources near = need(sources(machine(), program("pointer_chase", kResident), SKIDPROOF_TAGGING));
  Sources beyond = need(sources(machine(), program("pointer_chase", kSpread), SKIDPROOF_TAGGING));
  VERIFY_GE(near.records, kRecords / 2);
  VERIFY_GE(beyond.records, kRecords / 2);
  VERIFY_LE(beyond.l1_hit, near.l1_hit / 2) << "1 MiB does not fit";
  // Table 18-24 reserves 9; 5 to 7 are disputed, and anything that it defines may be.
  VERIFY_EQ(beyond.bins[static_cast<int64_t>(DataSource::kReserved9)], 0u);
  VERIFY_EQ(beyond.bins[static_cast<int64_t>(DataSource::kIo)], 0u) << "it is memory";
  histogram("source", "Table 18-24", beyond.bins);
}

SKIDPROOF_TEST(PebsLoadLatency, TellsLoadsThatMissTheStlb, clause::P14, clause::P12) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  SKIDPROOF_REQUIRE(uarch().data_source_tlb_lock_bits, SkipCategory::kNotOnThisMicroarch,
                    "bit 4 of the data source is reserved on this microarch (Table 18-24)");
  Sources near = need(sources(machine(), program("pointer_chase", kResident), SKIDPROOF_TAGGING));
  // A run before it may have ended shortly behind the pages with which this one begins.
  Sources pages = need(
      sources(machine(), program("pointer_chase", kPages), SKIDPROOF_TAGGING, Before::kNothing));
  VERIFY_GE(near.records, kRecords / 2);
  VERIFY_GE(pages.records, kRecords / 2);
  VERIFY_LE(near.stlb_miss, kHardlyAny) << "two pages";
  VERIFY_GE(near.l1_hit, kNearlyAll) << "8 KiB fit";
  VERIFY_GE(pages.stlb_miss, kMost) << "4096 pages are more than the STLB has entries";
  evidence("two_pages", near.stlb_miss);
  evidence("4096_pages", pages.stlb_miss);
}

SKIDPROOF_TEST(PebsLoadLatency, TellsLockedLoads, clause::P14, clause::P12) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  SKIDPROOF_REQUIRE(uarch().data_source_tlb_lock_bits, SkipCategory::kNotOnThisMicroarch,
                    "bit 5 of the data source is reserved on this microarch (Table 18-24)");
  Sources plain = need(sources(machine(), program("pointer_chase", kResident), SKIDPROOF_TAGGING));
  Sources locked = need(sources(machine(), program("locked_rmw", "unroll=1"), SKIDPROOF_TAGGING));
  VERIFY_GE(plain.records, kRecords / 2);
  VERIFY_GE(locked.records, kRecords / 2);
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
  SessionPlan plan = latency_plan(uarch(), counter, kLeastThreshold);
  auto records = [&](uint64_t enable) -> uint64_t {
    plan.pebs_enable = enable;
    Sampled sampled =
        need(sample(machine(), plan, chase, iterations_of(uarch(), SKIDPROOF_TAGGING)));
    return chase_records(chase, sampled.records()).size();
  };
  uint64_t pebs = arch::bit(counter);
  uint64_t latency = arch::bit(arch::pebs_enable::kLoadLatencyShift + counter);
  VERIFY_GE(records(pebs | latency), kRecords / 2) << "the control with both bits";
  VERIFY_EQ(records(pebs), 0u) << "load addresses although LL_EN is clear";
  VERIFY_EQ(records(latency), 0u) << "records although PEBS_EN is clear";
}

// The published place is PMC3; one section speaks of any counter. Elsewhere the outcome is reported;
// where there are records, they keep to the threshold as those of the control do.
SKIDPROOF_TEST_OVER(PebsLoadLatency, IsReportedOnOtherCounters, over::counters({0, 1, 2}),
                    clause::P16, clause::P11) {
  SKIDPROOF_REQUIRE(uarch().load_latency_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    kNoFacility);
  const Program& chase = program("pointer_chase", kResident);
  constexpr uint64_t kThreshold = 24;  // no load in the L1 cache takes as long
  auto records_above = [&](unsigned counter, uint64_t threshold) -> uint64_t {
    Sampled sampled = need(sample(machine(), latency_plan(uarch(), counter, threshold), chase,
                                  iterations_of(uarch(), SKIDPROOF_TAGGING)));
    for (Record record : sampled.records()) VERIFY_GT(record.latency(), threshold);
    return chase_records(chase, sampled.records()).size();
  };
  VERIFY_GE(records_above(latency_counter(uarch()), kLeastThreshold), kRecords / 2)
      << "the control, on the published counter";
  VERIFY_LE(records_above(latency_counter(uarch()), kThreshold), kRecords / 2)
      << "the control, above its loads' latency";
  auto counter = static_cast<unsigned>(param().number(0));
  uint64_t found = records_above(counter, kLeastThreshold);
  evidence("outcome", found == 0 ? "no records" : "records");
  evidence("records", found);
}

}  // namespace
}  // namespace skidproof
