// Precise store: on PMC3, with PS_EN, the record holds the address and the status of a store.
//
// The programs store at addresses that the record's own registers tell, so that each record says by
// itself which address it ought to hold.
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>

#include "harness/check/check.h"
#include "pebs/arch/data_source.h"
#include "pebs/arch/msr.h"
#include "suites/sampling.h"

namespace skidproof::pebs_precise_store {

SKIDPROOF_SUITE(PebsPreciseStore, kOneRecord);

namespace {

using namespace suites;
using arch::EventKind;
using arch::Gpr;
using check::Param;
using check::SkipCategory;
namespace over = check::over;
namespace store_status = arch::store_status;

constexpr size_t kRecords = 200;
constexpr uint64_t kPeriod = 37;
constexpr char kAbsent[] = "this microarch has no precise store (Table 18-31)";

bool has_precise_store(const arch::Microarch& microarch) {
  return microarch.precise_store_counter != 0;
}
unsigned store_counter(const arch::Microarch& microarch) {
  return static_cast<unsigned>(__builtin_ctz(microarch.precise_store_counter));
}

SessionPlan store_plan(const arch::Microarch& microarch, unsigned counter) {
  const arch::Event& event = *facility_event(microarch, EventKind::kPreciseStore);
  return one_counter(counter, event, usable_period(microarch, kPeriod), kRecords);
}

// As many iterations as fill the buffer.
uint64_t iterations_of(const arch::Microarch& microarch, const Program& program,
                       const calibrate::Figure& arming) {
  const Expectations& each = program.per_iteration;
  return iterations_for(kRecords, usable_period(microarch, kPeriod), each.stores,
                        passing_events(arming, each.stores, each.instructions));
}
#define SKIDPROOF_ARMING calibrated(calibrate::Quantity::kArmingCycles)

Param on(const char* label, const char* kernel, const char* parameters) {
  return {.label = label, .words = {kernel, parameters}};
}

// i of the mark "name" (0) or "name.i".
std::optional<uint64_t> mark_number(std::string_view mark, std::string_view name) {
  if (mark == name) return 0;
  if (!mark.starts_with(name) || mark.size() <= name.size() + 1) return std::nullopt;
  std::string_view digits = mark.substr(name.size() + 1);
  uint64_t number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// The value of a number parameter, out of the program's own text.
uint64_t parameter(const Program& program, std::string_view name) {
  std::string text = "," + program.parameters;
  size_t at = text.find(fmt::format(",{}=", name));
  uint64_t value = 0;
  if (at == std::string::npos) return 0;
  const char* digits = text.data() + at + name.size() + 2;
  std::from_chars(digits, text.data() + text.size(), value);
  return value;
}

// The address that the store before the recorded IP wrote to, by the record's registers. Empty when
// that instruction is no store of the kernel's body.
std::optional<uint64_t> stored_address(const Program& program, const Instruction& store,
                                       const Record& record) {
  if (store.flow == Flow::kCall) return record.gpr(Gpr::kRsp);  // the pushed return address
  for (const auto& [mark, address] : program.marks) {
    if (address != store.address) continue;
    if (auto i = mark_number(mark, "store"); i && program.kernel == "store_stream") {
      return record.gpr(Gpr::kRsi) + record.gpr(Gpr::kRcx) + *i * parameter(program, "stride");
    }
    if (auto i = mark_number(mark, "rmw")) return record.gpr(Gpr::kRsi) + 64 * *i;
    if (mark == "event") return record.gpr(Gpr::kRsi);
  }
  return std::nullopt;
}

// Inside the program's data.
bool in_arena(const Program& program, uint64_t address) {
  return address >= program.data_address && address < program.data_address + program.data_bytes;
}

// --- Address

SKIDPROOF_TEST_OVER(PebsPreciseStore, RecordsTheAddressOfTheStore,
                    (std::vector<Param>{
                        on("lines", "store_stream", "width=8,stride=64,window=32K"),
                        on("dense", "store_stream", "width=8,stride=8,window=4K,unroll=8"),
                        on("pages", "store_stream", "width=8,stride=4K,window=1M,unroll=1"),
                        on("wide", "store_stream", "width=16,stride=16,window=8K"),
                        on("sparse", "sparse_event", "event=store,spacing=16"),
                        on("locked", "locked_rmw", "unroll=4"),
                        on("calls", "call_return", "depth=4"),
                    }),
                    clause::P9, clause::R10, clause::P7) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program(param().word(0), param().word(1));
  LoopPath path = LoopPath::of(loop, forward_jumps(true));
  Sampled sampled = need(sample(machine(), store_plan(uarch(), store_counter(uarch())), loop,
                                iterations_of(uarch(), loop, SKIDPROOF_ARMING)));
  uint64_t compared = 0, elsewhere = 0;
  for (Record record : sampled.records()) {
    std::optional<size_t> at = path.position(record.ip());
    if (!at || !path.before(*at, 1).stores) {
      ++elsewhere;
      continue;
    }
    std::optional<uint64_t> expected = stored_address(loop, path.before(*at, 1), record);
    VERIFY_TRUE(expected.has_value()) << path.before(*at, 1).text;
    if (!expected) break;
    VERIFY_EQ(record.data_address(), *expected) << "after " << path.before(*at, 1).text;
    ++compared;
  }
  VERIFY_GE(compared, kRecords * 9 / 10) << "too few records behind a store of the stream";
  VERIFY_LE(elsewhere, kForeignAllowed) << "records that are not behind a store";
  evidence("records", compared);
}

// Addresses of the stream come up, one as well as another, and none besides. From one record to the next it is
// a period of stores and those that pass while PEBS arms itself: a sum that may be whole rounds of the
// window. It is not for a period that is longer by one, too.
SKIDPROOF_TEST(PebsPreciseStore, RecordsNoAddressOutsideTheStream, clause::P9, clause::R10) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  constexpr uint64_t kWindow = 1024, kStride = 128;
  const Program& loop = program("store_stream", "stride=128,window=1K,unroll=1");
  std::map<int64_t, uint64_t> offsets;
  uint64_t records = 0, foreign_records = 0;
  constexpr uint64_t kPeriods = 2;
  for (uint64_t longer = 0; longer < kPeriods; ++longer) {
    SessionPlan plan = store_plan(uarch(), store_counter(uarch()));
    plan.counters[0].period += longer;
    Sampled sampled =
        need(sample(machine(), plan, loop, iterations_of(uarch(), loop, SKIDPROOF_ARMING)));
    records += sampled.records().size();
    for (Record record : sampled.records()) {
      if (foreign(loop, record.ip())) {
        ++foreign_records;
      } else {
        ++offsets[static_cast<int64_t>(record.data_address() - loop.data_address)];
      }
    }
  }
  for (auto [offset, count] : offsets) {
    VERIFY_TRUE(offset >= 0 && offset < static_cast<int64_t>(kWindow) && offset % kStride == 0)
        << count << " records hold offset " << offset;
  }
  VERIFY_GE(records, kPeriods * kRecords * 9 / 10);
  VERIFY_LE(foreign_records, kPeriods * kForeignAllowed);
  VERIFY_GE(offsets.size(), kWindow / kStride / 2) << "the same few stores again and again";
  histogram("offset", "bytes", offsets);
}

SKIDPROOF_TEST_OVER(PebsPreciseStore, WritesZeroAtTheLatencyField,
                    (std::vector<Param>{
                        on("lines", "store_stream", "stride=64,window=32K"),
                        on("pages", "store_stream", "stride=4K,window=1M,unroll=1"),
                        on("locked", "locked_rmw", ""),
                    }),
                    clause::P9) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program(param().word(0), param().word(1));
  Sampled sampled = need(sample(machine(), store_plan(uarch(), store_counter(uarch())), loop,
                                iterations_of(uarch(), loop, SKIDPROOF_ARMING)));
  VERIFY_GE(sampled.records().size(), kRecords * 9 / 10);
  for (Record record : sampled.records()) VERIFY_EQ(record.latency(), 0u);
}

// --- Status

// Iterations that touch each store's place once, and none of a stream's a second time: what the sampled
// run meets first would be near again.
Expected<uint64_t> one_pass(const Program& program) {
  if (program.kernel != "store_stream") return 1;
  const Kernel* kernel = SKIDPROOF_TRY(find_kernel(program.kernel));
  const Params params = SKIDPROOF_TRY(Params::parse(kernel->parameters, program.parameters));
  return std::max<uint64_t>(params["window"] / (params["stride"] * params["unroll"]), 1);
}

// What share of a program's records has each status bit, once its data have been touched.
struct StatusShares {
  uint64_t records = 0;
  double l1_hit = 0, stlb_miss = 0, locked = 0;
};

Expected<StatusShares> status_shares(Machine& machine, const Program& program,
                                     const calibrate::Figure& arming) {
  const arch::Microarch& microarch = *machine.identity().microarch;
  uint64_t iterations = iterations_of(microarch, program, arming);
  Session session =
      SKIDPROOF_TRY(Session::open(machine, store_plan(microarch, store_counter(microarch))));
  const uint64_t pass = SKIDPROOF_TRY(one_pass(program));
  SKIDPROOF_TRY(session.run(program, pass));
  session.rewind();  // what came before the caches were warm
  SKIDPROOF_TRY(session.run(program, iterations));
  StatusShares shares;
  uint64_t l1_hits = 0, stlb_misses = 0, locked = 0;
  for (Record record : session.records()) {
    if (foreign(program, record.ip())) continue;
    ++shares.records;
    l1_hits += (record.data_source() & store_status::kL1Hit) != 0;
    stlb_misses += (record.data_source() & store_status::kStlbMiss) != 0;
    locked += (record.data_source() & store_status::kLocked) != 0;
  }
  auto share = [&](uint64_t n) {
    return shares.records == 0 ? 0 : static_cast<double>(n) / static_cast<double>(shares.records);
  };
  shares.l1_hit = share(l1_hits);
  shares.stlb_miss = share(stlb_misses);
  shares.locked = share(locked);
  return shares;
}

results::Json as_evidence(const StatusShares& shares) {
  return {{"records", shares.records},
          {"l1_hit", shares.l1_hit},
          {"stlb_miss", shares.stlb_miss},
          {"locked", shares.locked}};
}

// Nearly all, and hardly any: an interrupt may empty a cache now and then.
constexpr double kNearlyAll = 0.8, kHardlyAny = 0.2;

SKIDPROOF_TEST(PebsPreciseStore, SaysHitForStoresThatStayInTheL1Cache, clause::P9) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("store_stream", "stride=64,window=4K");
  StatusShares shares = need(status_shares(machine(), loop, SKIDPROOF_ARMING));
  VERIFY_GE(shares.records, kRecords * 9 / 10);
  VERIFY_GE(shares.l1_hit, kNearlyAll) << "4 KiB fit";
  VERIFY_LE(shares.stlb_miss, kHardlyAny) << "on a page or two";
  VERIFY_LE(shares.locked, 0.0) << "no store of the stream is locked";
  evidence("status", as_evidence(shares));
}

// One line in each of 64 pages: too many for a set of the L1 cache, and few for the STLB.
SKIDPROOF_TEST(PebsPreciseStore, SaysMissForStoresThatMissTheCacheAlone, clause::P9) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("store_stream", "stride=4K,window=256K,unroll=4");
  StatusShares shares = need(status_shares(machine(), loop, SKIDPROOF_ARMING));
  VERIFY_GE(shares.records, kRecords * 9 / 10);
  VERIFY_LE(shares.l1_hit, kHardlyAny) << "64 lines share the ways of one set";
  VERIFY_LE(shares.stlb_miss, kHardlyAny) << "64 pages fit";
  evidence("status", as_evidence(shares));
}

// One line in each of 4096 pages: they share one set of the L1 cache, and are eight times the entries of
// these parts' second-level TLB, and more than any has.
SKIDPROOF_TEST(PebsPreciseStore, SaysMissForStoresThatMissTheCacheAndTheStlb, clause::P9) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("store_stream", "stride=4K,window=16M,unroll=4");
  StatusShares shares = need(status_shares(machine(), loop, SKIDPROOF_ARMING));
  VERIFY_GE(shares.records, kRecords * 9 / 10);
  VERIFY_LE(shares.l1_hit, kHardlyAny) << "4096 lines share the ways of one set";
  VERIFY_GE(shares.stlb_miss, kNearlyAll) << "4096 pages";
  VERIFY_LE(shares.locked, 0.0) << "no store of the stream is locked";
  evidence("status", as_evidence(shares));
}

SKIDPROOF_TEST(PebsPreciseStore, SaysLockedForLockedStores, clause::P9) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("locked_rmw", "unroll=4");
  StatusShares shares = need(status_shares(machine(), loop, SKIDPROOF_ARMING));
  VERIFY_GE(shares.records, kRecords * 9 / 10);
  VERIFY_GE(shares.locked, 1.0) << "every store of the loop is locked";
  evidence("status", as_evidence(shares));
}

// --- Where and when there is none

// How many records of a plan there are, and how many hold the address of a store of the program, or of
// one that ran before it.
struct Addresses {
  uint64_t records = 0, own = 0, stale = 0;
};
Expected<Addresses> addresses_recorded(Machine& machine, const Program& program,
                                       const SessionPlan& plan, const calibrate::Figure& arming,
                                       const Program* before = nullptr) {
  uint64_t iterations = iterations_of(*machine.identity().microarch, program, arming);
  Sampled sampled = SKIDPROOF_TRY(sample(machine, plan, program, iterations));
  Addresses found;
  for (Record record : sampled.records()) {
    ++found.records;
    found.own += in_arena(program, record.data_address());
    found.stale += before != nullptr && in_arena(*before, record.data_address());
  }
  return found;
}

// What 98H holds without the facility is not promised, and may be what was latched there last. So the
// control stores elsewhere: what is an address of the program's own was recorded now.
constexpr char kOtherArena[] = "window=16K";

SKIDPROOF_TEST_OVER(PebsPreciseStore, RecordsNothingOnAnotherCounter, over::counters({0, 1, 2}),
                    clause::P7) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& before = program("store_stream", kOtherArena);
  const Program& loop = program("store_stream");
  SessionPlan control = store_plan(uarch(), store_counter(uarch()));
  SessionPlan other = store_plan(uarch(), static_cast<unsigned>(param().number(0)));
  VERIFY_GE(need(addresses_recorded(machine(), before, control, SKIDPROOF_ARMING)).own,
            kRecords * 9 / 10)
      << "the control on PMC" << store_counter(uarch());
  const Addresses found =
      need(addresses_recorded(machine(), loop, other, SKIDPROOF_ARMING, &before));
  VERIFY_EQ(found.own, 0u) << "store addresses from another counter";
  observe("records", found.records);
  observe("stale-addresses", found.stale);
}

SKIDPROOF_TEST(PebsPreciseStore, RecordsNoAddressWithoutItsEnableBit, clause::P8) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& before = program("store_stream", kOtherArena);
  const Program& loop = program("store_stream");
  SessionPlan plan = store_plan(uarch(), store_counter(uarch()));
  VERIFY_GE(need(addresses_recorded(machine(), before, plan, SKIDPROOF_ARMING)).own,
            kRecords * 9 / 10)
      << "the control with both bits";
  plan.pebs_enable = arch::bit(store_counter(uarch()));
  const Addresses found =
      need(addresses_recorded(machine(), loop, plan, SKIDPROOF_ARMING, &before));
  VERIFY_EQ(found.own, 0u) << "store addresses although PS_EN is clear";
  observe("records", found.records);
  observe("stale-addresses", found.stale);
}

SKIDPROOF_TEST(PebsPreciseStore, RecordsNothingWithoutTheCountersEnableBit, clause::P8) {
  SKIDPROOF_REQUIRE(has_precise_store(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("store_stream");
  SessionPlan plan = store_plan(uarch(), store_counter(uarch()));
  VERIFY_GE(need(addresses_recorded(machine(), loop, plan, SKIDPROOF_ARMING)).own,
            kRecords * 9 / 10)
      << "the control with both bits";
  plan.pebs_enable = arch::pebs_enable::kPreciseStore;
  Sampled sampled =
      need(sample(machine(), plan, loop, iterations_of(uarch(), loop, SKIDPROOF_ARMING)));
  VERIFY_EQ(sampled.records().size(), 0u) << "records although PEBS_EN_PMC3 is clear";
}

}  // namespace
}  // namespace skidproof::pebs_precise_store
