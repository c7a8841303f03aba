// DataLA: from Haswell on the records of many precise events hold the linear address of the sampled
// access at 98H, and of a store whether it hit the L1 data cache.
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "harness/check/check.h"
#include "pebs/arch/data_source.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::pebs_data_address {
namespace {

using namespace suites;
using arch::Gpr;
using arch::Signal;
using check::Param;
using check::SkipCategory;
namespace over = check::over;
namespace store_status = arch::store_status;

constexpr size_t kRecords = 200;
constexpr uint64_t kPeriod = 37;

// The precise event of a signal that has a data address, in a record of a fixed layout: adaptive
// records hold it only where they are asked to.
const arch::Event* address_event(const arch::Microarch& microarch, Signal signal,
                                 unsigned counter = 0) {
  if (microarch.record->adaptive()) return nullptr;
  const arch::Event* event = precise_event(microarch, signal, counter);
  return event != nullptr && event->data_address ? event : nullptr;
}
constexpr char kAbsent[] = "no event with a data linear address";

Expected<Sampled> sample_accesses(Machine& machine, unsigned counter, const arch::Event& event,
                                  const Program& program) {
  const uint64_t period = usable_period(*machine.identity().microarch, kPeriod);
  return sample(machine, one_counter(counter, event, period, kRecords), program,
                iterations_for(kRecords, period));
}

// What the stream's i-th access of an iteration touches, by the record's registers: RSI is the data,
// RCX the iteration's offset. `mark` is "load" or "store".
std::optional<uint64_t> stream_address(const Program& program, std::string_view mark,
                                       uint64_t stride, const Record& record) {
  for (uint64_t i = 0; i < 64; ++i) {
    std::string name = i == 0 ? std::string(mark) : fmt::format("{}.{}", mark, i);
    auto it = program.marks.find(name);
    if (it == program.marks.end()) return std::nullopt;
    if (it->second == record.eventing_ip()) {
      return record.gpr(Gpr::kRsi) + record.gpr(Gpr::kRcx) + i * stride;
    }
  }
  return std::nullopt;
}

}  // namespace

SKIDPROOF_SUITE(PebsDataAddress, kOneRecord);

SKIDPROOF_TEST_OVER(PebsDataAddress, IsTheSampledAccess,
                    over::product(over::counters({0, 1, 2, 3}), over::words({"load", "store"})),
                    clause::G3, clause::E4) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = address_event(uarch(), sparse_signal(param().word()), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("sparse_event", sparse_parameters(param().word(), 16));

  Sampled sampled = need(sample_accesses(machine(), counter, *event, loop));

  uint64_t elsewhere = 0;
  for (Record record : sampled.records()) {
    if (record.eventing_ip() != loop.mark("event")) {
      ++elsewhere;
      continue;
    }
    VERIFY_EQ(record.data_address(), loop.data_address);
    if (!uarch().reserved_access_fields) {
      VERIFY_EQ(record.latency(), 0u) << "A8H";
    }
  }
  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), kRecords);
  VERIFY_LE(elsewhere, kForeignAllowed);
}

SKIDPROOF_TEST_OVER(PebsDataAddress, FollowsAStream,
                    (std::vector<Param>{
                        {.label = "loads",
                         .numbers = {arch::index(Signal::kLoads), 64},
                         .words = {"load_stream", "stride=64,window=32K", "load"}},
                        {.label = "dense_loads",
                         .numbers = {arch::index(Signal::kLoads), 8},
                         .words = {"load_stream", "stride=8,window=4K,unroll=8", "load"}},
                        {.label = "stores",
                         .numbers = {arch::index(Signal::kStores), 64},
                         .words = {"store_stream", "stride=64,window=32K", "store"}},
                        {.label = "pages",
                         .numbers = {arch::index(Signal::kStores), 4096},
                         .words = {"store_stream", "stride=4K,window=1M,unroll=1", "store"}},
                    }),
                    clause::G3) {
  const arch::Event* event = address_event(uarch(), static_cast<Signal>(param().number(0)));
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program(param().word(0), param().word(1));

  Sampled sampled = need(sample_accesses(machine(), 0, *event, loop));

  uint64_t compared = 0;
  for (Record record : sampled.records()) {
    auto expected = stream_address(loop, param().word(2), param().number(1), record);
    if (!expected) continue;  // not an access of the stream
    VERIFY_EQ(record.data_address(), *expected);
    if (!uarch().reserved_access_fields) {
      VERIFY_EQ(record.latency(), 0u) << "A8H";
    }
    ++compared;
  }
  evidence("records", compared);
  VERIFY_GE(compared, kRecords * 9 / 10);
}

// Nearly all, and hardly any: an interrupt may empty a cache now and then.
constexpr double kNearlyAll = 0.8, kHardlyAny = 0.2;

// 4 KiB stay in the L1; 2048 lines that share the ways of one set do not.
SKIDPROOF_TEST_OVER(PebsDataAddress, SaysWhetherAStoreHitTheL1Cache,
                    (std::vector<Param>{
                        {.label = "hits", .numbers = {1}, .words = {"stride=64,window=4K"}},
                        {.label = "misses", .numbers = {0}, .words = {"stride=4K,window=8M"}},
                    }),
                    clause::G4) {
  const arch::Event* event = address_event(uarch(), Signal::kStores);
  SKIDPROOF_REQUIRE(event != nullptr && event->l1_hit_bit, SkipCategory::kNotOnThisMicroarch,
                    kAbsent);
  const Program& loop = program("store_stream", param().word());
  const uint64_t period = usable_period(uarch(), kPeriod);
  Session session = need(Session::open(machine(), one_counter(0, *event, period, kRecords)));
  need(session.run(loop, iterations_for(kRecords, period)));
  session.rewind();  // what came before the caches were warm
  need(session.run(loop, iterations_for(kRecords, period)));

  uint64_t hits = 0, records = 0, undefined = 0;
  for (Record record : session.records()) {
    if (foreign(loop, record.ip())) continue;
    ++records;
    hits += record.data_source() & store_status::kL1Hit;
    undefined |= record.data_source() & ~store_status::kL1Hit;
  }
  observe("undefined-bits-of-A0H", results::hex(undefined));  // bit 0 alone is defined

  VERIFY_GE(records, kRecords * 9 / 10);
  const double share =
      static_cast<double>(hits) / static_cast<double>(std::max<uint64_t>(records, 1));
  evidence("share-of-hits", share);
  if (param().number() != 0) {
    VERIFY_GE(share, kNearlyAll);
  } else {
    VERIFY_LE(share, kHardlyAny);
  }
}

// Goldmont may store an address although the event is no access: each is that of the sampled instruction, or the
// outcome is reported.
SKIDPROOF_TEST(PebsDataAddress, IsReportedForEventsThatAreNoAccess, clause::E4) {
  SKIDPROOF_REQUIRE(uarch().data_address_of_any_event && !uarch().record->adaptive(),
                    SkipCategory::kNotOnThisMicroarch, "an address for accesses alone");
  const arch::Event* event = precise_event(uarch(), Signal::kNearCalls);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kAbsent);
  const Program& loop = program("call_return", "depth=1");

  Sampled sampled = need(sample_accesses(machine(), 0, *event, loop));

  uint64_t known = 0;
  for (Record record : sampled.records()) known += record.data_address() != 0;
  evidence("records", sampled.records().size());
  observe("records-with-an-address", known);
  VERIFY_EQ(sampled.records().size(), kRecords);
}

// Every listed memory event that the core model produces on this loop agrees about the address.
SKIDPROOF_TEST(PebsDataAddress, IsThereForEveryEventThatSupportsIt, clause::G3) {
  const Program& loop = program("locked_rmw", "unroll=4");
  uint64_t events = 0, records = 0;
  for (const arch::Event& event : uarch().events) {
    if (!event.data_address || uarch().record->adaptive()) continue;
    if (event.signal == Signal::kNone || event.signal == Signal::kUops) continue;
    if (event.kind != arch::EventKind::kPebs || (event.pebs_counters & 1) == 0) continue;
    Sampled sampled = need(sample_accesses(machine(), 0, event, loop));
    ++events;
    for (Record record : sampled.records()) {
      const Instruction* at = loop.at(record.eventing_ip());
      if (at == nullptr || !at->loads || !at->stores) continue;
      const uint64_t offset = record.data_address() - loop.data_address;
      VERIFY_LT(offset, loop.data_bytes) << event.name;
      VERIFY_EQ(offset % 64, 0u) << event.name << ": the locked words lie a line apart";
      ++records;
    }
  }
  SKIDPROOF_REQUIRE(events > 0, SkipCategory::kNotOnThisMicroarch, kAbsent);
  evidence("events", events);
  evidence("records", records);
  VERIFY_GE(records, kRecords);
}

}  // namespace skidproof::pebs_data_address
