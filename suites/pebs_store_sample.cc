// Store samples, on PMC0 of Golden Cove and on every counter of Gracemont: the record holds a store's address, its latency,
// and where it went.
#include <cstdint>

#include "harness/check/check.h"
#include "pebs/arch/data_source.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_store_sample {
namespace {

using namespace suites;
using arch::DataSource;
using arch::EventKind;
using arch::Gpr;

constexpr size_t kRecords = 60;
constexpr uint64_t kPeriod = 37;
constexpr char kAbsent[] = "no store sample event";
constexpr double kNearlyAll = 0.8, kHardlyAny = 0.2;

unsigned store_counter(const arch::Microarch& microarch) {
  return static_cast<unsigned>(__builtin_ctz(microarch.store_sample_counter));
}
// That of the lowest counter, which wants the longer one, is every counter's.
uint64_t period_of(const arch::Microarch& microarch) {
  return usable_period(microarch, store_counter(microarch),
                       *facility_event(microarch, EventKind::kStoreSample), kPeriod);
}
SessionPlan store_plan(const arch::Microarch& microarch, unsigned counter) {
  const arch::Event& event = *facility_event(microarch, EventKind::kStoreSample);
  return one_counter(counter, event, period_of(microarch), kRecords);
}
uint64_t iterations_of(const arch::Microarch& microarch) {
  return iterations_for(kRecords, period_of(microarch));
}

struct Shares {
  uint64_t records = 0, known = 0, reserved = 0;
  double l1_hit = 0, stlb_miss = 0, locked = 0, slow = 0;

  // How often a processor may not know the source no text says (E8): by less than half of the records nothing is judged.
  bool tells_enough() const { return 2 * known >= records; }
};
Expected<Shares> shares_of(Machine& machine, const Program& program) {
  const arch::Microarch& microarch = *machine.identity().microarch;
  Session session =
      SKIDPROOF_TRY(Session::open(machine, store_plan(microarch, store_counter(microarch))));
  SKIDPROOF_TRY(session.run(program, iterations_of(microarch)));
  session.rewind();  // what came before the caches were warm
  SKIDPROOF_TRY(session.run(program, iterations_of(microarch)));
  Shares out;
  for (Record record : session.records()) {
    if (foreign(program, record.eventing_ip())) continue;
    ++out.records;
    const arch::AccessInfo& info = microarch.access;
    const bool known = !microarch.unknown_sources || info.tells_source(record.data_source());
    const auto source = info.source_of(record.data_source());
    out.known += known;
    out.l1_hit += source == DataSource::kL1Hit;
    out.reserved += known && static_cast<unsigned>(source) < 32 &&
                    (microarch.reserved_sources >> static_cast<unsigned>(source) & 1) != 0;
    out.stlb_miss += (record.data_source() & info.stlb_miss) != 0;
    out.locked += (record.data_source() & info.locked) != 0;
    out.slow += record.latency() > 30;
  }
  const double all = static_cast<double>(std::max<uint64_t>(out.records, 1));
  out.l1_hit /= static_cast<double>(std::max<uint64_t>(out.known, 1));
  out.stlb_miss /= all;
  out.locked /= all;
  out.slow /= all;
  return out;
}

}  // namespace

SKIDPROOF_SUITE(PebsStoreSample, kOneRecord);

// The registers tell which address each store of the stream wrote to.
SKIDPROOF_TEST_OVER(PebsStoreSample, RecordsTheAddressOfTheStore,
                    over::words({"stride=64,window=32K,unroll=1", "stride=8,window=4K,unroll=1",
                                 "stride=4K,window=1M,unroll=1"}),
                    clause::A18, clause::A11) {
  SKIDPROOF_REQUIRE(uarch().store_sample_counter != 0, SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("store_stream", param().word());
  Sampled sampled = need(
      sample(machine(), store_plan(uarch(), store_counter(uarch())), loop, iterations_of(uarch())));
  uint64_t compared = 0;
  for (Record record : sampled.records()) {
    if (foreign(loop, record.eventing_ip())) continue;
    VERIFY_EQ(record.eventing_ip(), loop.mark("store"));
    VERIFY_EQ(results::hex(record.data_address()),
              results::hex(record.gpr(Gpr::kRsi) + record.gpr(Gpr::kRcx)));
    VERIFY_GT(record.latency(), 0u) << "a store takes its time";
    ++compared;
  }
  evidence("records", compared);
  VERIFY_GE(compared, kRecords * 9 / 10);
}

// … and so on every other counter for which it is published.
SKIDPROOF_TEST_OVER(PebsStoreSample, IsOnEveryCounterOfIts,
                    over::counters({0, 1, 2, 3, 4, 5, 6, 7}), clause::E5, clause::A18) {
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE((uarch().store_sample_counter >> counter & 1) != 0,
                    SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("store_stream", "stride=64,window=32K,unroll=1");
  Sampled sampled =
      need(sample(machine(), store_plan(uarch(), counter), loop, iterations_of(uarch())));
  uint64_t compared = 0;
  for (Record record : sampled.records()) {
    if (foreign(loop, record.eventing_ip())) continue;
    VERIFY_EQ(results::hex(record.data_address()),
              results::hex(record.gpr(Gpr::kRsi) + record.gpr(Gpr::kRcx)));
    ++compared;
  }
  evidence("records", compared);
  VERIFY_GE(compared, kRecords * 9 / 10);
}

SKIDPROOF_TEST(PebsStoreSample, SaysWhereStoresWent, clause::A18, clause::E6, clause::E7) {
  SKIDPROOF_REQUIRE(uarch().store_sample_counter != 0, SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Shares near = need(shares_of(machine(), program("store_stream", "window=4K,unroll=1")));
  const Shares pages =
      need(shares_of(machine(), program("store_stream", "stride=4K,window=16M,unroll=1")));
  const Shares locked = need(shares_of(machine(), program("locked_rmw", "unroll=4")));
  for (const Shares& shares : {near, pages, locked}) {
    VERIFY_GE(shares.records, kRecords * 9 / 10);
    VERIFY_EQ(shares.reserved, 0u) << "a data source that is reserved";
  }
  if (!uarch().access.source_published) {  // one kernel's reading of the word
    observe("l1-hit-4K", near.l1_hit);
    observe("stlb-misses-of-4096-pages", pages.stlb_miss);
    observe("locked-of-locked-stores", locked.locked);
    return;
  }
  VERIFY_GT(near.known + pages.known + locked.known, 0u) << "records that tell their source";
  if (near.tells_enough() && pages.tells_enough()) {
    VERIFY_GE(near.l1_hit, kNearlyAll) << "4 KiB fit";
    VERIFY_LE(pages.l1_hit, kHardlyAny) << "4096 lines share the ways of one set";
  } else {
    observe("records that tell their source", near.known + pages.known);
  }
  VERIFY_LE(near.slow, kHardlyAny);
  VERIFY_GE(pages.slow, kNearlyAll) << "they wait for memory";
  evidence("l1-hit-4K", near.l1_hit);
  evidence("l1-hit-pages", pages.l1_hit);
  if (!uarch().access.flags_published) return;  // no document says where the two flags stand
  VERIFY_LE(pages.locked, 0.0);
  VERIFY_LE(near.stlb_miss, kHardlyAny) << "one page or two";
  VERIFY_LE(near.locked, 0.0);
  VERIFY_GE(pages.stlb_miss, kNearlyAll) << "4096 pages are more than the STLB has entries";
  VERIFY_GE(locked.locked, 1.0) << "every store of the loop is locked";
}

SKIDPROOF_TEST_OVER(PebsStoreSample, IsOnNoOtherCounter, over::counters({1, 2, 3}), clause::A18) {
  SKIDPROOF_REQUIRE(uarch().store_sample_counter != 0, SkipCategory::kNotOnThisMicroarch, kAbsent);
  SKIDPROOF_REQUIRE((uarch().store_sample_counter >> param().number() & 1) == 0,
                    SkipCategory::kNotOnThisMicroarch, "it is published for this counter");
  const Program& loop = program("store_stream", "unroll=1");
  auto addresses = [&](unsigned counter) -> uint64_t {
    Sampled sampled =
        need(sample(machine(), store_plan(uarch(), counter), loop, iterations_of(uarch())));
    uint64_t found = 0;
    for (Record record : sampled.records()) {
      found += record.data_address() >= loop.data_address &&
               record.data_address() < loop.data_address + loop.data_bytes;
    }
    return found;
  };
  VERIFY_GE(addresses(store_counter(uarch())), kRecords * 9 / 10) << "the control on PMC0";
  VERIFY_EQ(addresses(static_cast<unsigned>(param().number())), 0u);
}

}  // namespace skidproof::check::pebs_store_sample
