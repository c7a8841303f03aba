// The fields beside the registers: addresses as linear addresses are, the load that the record is
// of, and what is promised for load latency alone.
#include <cstdint>
#include <map>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/reserved.h"
#include "pebs/capabilities.h"
#include "suites/exact.h"
#include "suites/load_latency.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_fields {
namespace {

using namespace suites;
using arch::EventKind;
using arch::Signal;

constexpr size_t kRecords = 50;
constexpr uint64_t kPeriod = 32;

constexpr char kNoLatency[] = "no load latency on a general-purpose counter";

bool has_load_latency(const arch::Microarch& microarch) {
  return microarch.load_latency_counters != 0 &&
         facility_event(microarch, EventKind::kLoadLatency) != nullptr;
}

SessionPlan latency_plan(const arch::Microarch& microarch) {
  return suites::latency_plan(microarch, latency_counter(microarch), kRecords);
}
#define SKIDPROOF_TAGGING calibrated(calibrate::Quantity::kLoadsATag)

}  // namespace

SKIDPROOF_SUITE(PmuPlacement, kCount);
SKIDPROOF_SUITE(PebsFields, kOneRecord);

// --- Addresses

// A linear address is sign-extended wherever it stands, from the highest bit of the processor's width.
// [SDM Vol. 1, 3.3.7.1 "Canonical Addressing"]
SKIDPROOF_TEST_OVER(PebsFields, HoldCanonicalAddresses, over::words({"bytes=8K", "bytes=1M"}),
                    clause::P12, clause::D1) {
  SKIDPROOF_REQUIRE(has_load_latency(uarch()), SkipCategory::kNotOnThisMicroarch, kNoLatency);
  const Program& chase = program("pointer_chase", param().word());

  const unsigned bits = arch::linear_address_bits(capabilities_of(machine()).la57);

  TaggedLoads sampled =
      need(sample_tagged(machine(), latency_plan(uarch()), chase, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(sampled);

  uint64_t inside = 0;
  for (Record record : sampled.records()) {
    VERIFY_TRUE(arch::canonical(record.data_address(), bits))
        << results::hex(record.data_address());
    const uint64_t offset = record.data_address() - chase.data_address;
    inside += offset < chase.data_bytes;
  }
  evidence("data", results::hex(chase.data_address));
  VERIFY_GE(inside, kRecords / 2) << "records of the chase's own loads";
}

// The same where there is something to extend. Erratum AAJ75 leaves the upper bits of such an address zero.
SKIDPROOF_TEST(PebsFields, ExtendAddressesOfTheUpperHalf, clause::P12, clause::D1) {
  SKIDPROOF_REQUIRE(has_load_latency(uarch()), SkipCategory::kNotOnThisMicroarch, kNoLatency);
  const Program& chase = program("pointer_chase", "bytes=8K");
  const unsigned bits = arch::linear_address_bits(capabilities_of(machine()).la57);
  SKIDPROOF_REQUIRE((chase.data_address >> (bits - 1) & 1) != 0, SkipCategory::kMachineLimit,
                    "this machine gives memory in the lower half of the addresses alone");

  TaggedLoads sampled =
      need(sample_tagged(machine(), latency_plan(uarch()), chase, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(sampled);

  evidence("data", results::hex(chase.data_address));
  uint64_t upper = 0;
  for (Record record : sampled.records()) {
    VERIFY_TRUE(arch::canonical(record.data_address(), bits))
        << results::hex(record.data_address());
    upper += record.data_address() >> (bits - 1) & 1;
  }
  VERIFY_GE(upper, kRecords / 2) << "records of the chase's own loads";
}

// Four loads at four addresses, other instructions between them: the recorded address is that of
// the load right before the recorded IP, the last that retired before the assist.
SKIDPROOF_TEST(PebsFields, HoldTheAddressOfTheLoadBeforeTheIp, clause::P12, clause::R10) {
  SKIDPROOF_REQUIRE(has_load_latency(uarch()), SkipCategory::kNotOnThisMicroarch, kNoLatency);
  const Program& code = program("mixed", "loads=4,stores=2,alu=8,taken=2,not_taken=2");
  std::map<uint64_t, uint64_t> address_of;  // by the IP behind a load
  for (unsigned i = 0; i < 4; ++i) {
    const std::string mark = i == 0 ? "load" : "load." + std::to_string(i);
    const Instruction* load = code.at(code.mark(mark));
    if (load == nullptr) continue;
    address_of[load->end()] = code.data_address + 64 * i;
    address_of[load->address] = code.data_address + 64 * i;  // where the record has the load's own
  }
  VERIFY_EQ(address_of.size(), 8u);

  TaggedLoads sampled =
      need(sample_tagged(machine(), latency_plan(uarch()), code, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(sampled);

  uint64_t known = 0;
  for (Record record : sampled.records()) {
    auto expected = address_of.find(record.ip());
    if (expected == address_of.end()) continue;
    ++known;
    VERIFY_EQ(record.data_address(), expected->second);
  }
  evidence("records", known);
  VERIFY_GE(known, kRecords / 2) << "records right behind a load";
}

// --- What load latency needs, and what it alone promises

// With CMASK or INV load latency is undefined (P15): reported. Without them it records.
SKIDPROOF_TEST_OVER(PebsFields, AreThoseOfLoadLatencyOnlyWithoutCmaskAndInv,
                    over::words({"CMask", "Invert", "CMask+Invert"}), clause::P15, clause::P17) {
  SKIDPROOF_REQUIRE(has_load_latency(uarch()), SkipCategory::kNotOnThisMicroarch, kNoLatency);
  const Program& chase = program("pointer_chase", "bytes=8K");
  SessionPlan plan = latency_plan(uarch());
  TaggedLoads plain = need(sample_tagged(machine(), plan, chase, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(plain);
  for (Record record : plain.records()) VERIFY_GT(record.latency(), least_threshold(uarch()));
  need(plain.session.close());
  const std::string& word = param().word();
  plan.counters[0].cmask = word.starts_with("CMask") ? 1 : 0;
  plan.counters[0].invert = word.ends_with("Invert");

  Sampled sampled = need(sample(machine(), plan, chase, plain.iterations));

  observe("records", sampled.records().size());
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
}

// In format 1 an ordinary event's record promises nothing at 98H, A0H and A8H: what stands there is
// reported, beside a load latency record of the same program that has them all.
SKIDPROOF_TEST(PebsFields, AreFilledForLoadLatency, clause::P17, clause::P12) {
  SKIDPROOF_REQUIRE(has_load_latency(uarch()), SkipCategory::kNotOnThisMicroarch, kNoLatency);
  SKIDPROOF_REQUIRE(uarch().record->format == 1, SkipCategory::kNotOnThisMicroarch,
                    "the record has another format");
  const Program& chase = program("pointer_chase", "bytes=1M");
  {
    TaggedLoads latency =
        need(sample_tagged(machine(), latency_plan(uarch()), chase, SKIDPROOF_TAGGING));
    SKIDPROOF_REQUIRE_TAGS(latency);
    for (Record record : latency.records()) {
      VERIFY_NE(record.data_address(), 0u);
      VERIFY_NE(record.data_source(), 0u) << "0 is an unknown miss of the L3 cache";
      VERIFY_GT(record.latency(), least_threshold(uarch()));
    }
    need(latency.session.close());
  }
  const arch::Event* event = precise_event(uarch(), Signal::kLoads);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no precise load event");
  Sampled plain = need(sample(machine(), one_counter(0, *event, kPeriod, 4), chase, 1000));
  if (plain.records().empty()) return;
  evidence("98H", results::hex(plain.records().front().data_address()));
  evidence("A0H", results::hex(plain.records().front().data_source()));
  evidence("A8H", results::hex(plain.records().front().latency()));
}

// --- Events of some counters only

// An event published for the lower counters counts there and, programmed on another, nothing.
SKIDPROOF_TEST_OVER(PmuPlacement, CountsAnEventWhereItIsPublishedOnly, over::counters({4, 5, 6, 7}),
                    clause::P18) {
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE(uarch().gp_counters_alone > counter, SkipCategory::kNotOnThisMicroarch,
                    "there is no such counter");
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kNeedsNoSibling,
                    "a sibling thread has the upper four counters");
  const arch::Event* event = counting_event(uarch(), Signal::kLoads);
  SKIDPROOF_REQUIRE(event != nullptr && ((event->counters >> counter) & 1) == 0,
                    SkipCategory::kNotOnThisMicroarch, "the load event counts on every counter");
  const Program& code = program("sparse_event", sparse_parameters("load"));

  const uint64_t lower = need(count(machine(), 0, *event, code, 100));
  const uint64_t upper = need(count(machine(), counter, *event, code, 100));

  evidence("event", event->name);
  evidence("count", upper);
  VERIFY_GE(lower, code.total(100).loads);
  VERIFY_EQ(upper, 0u);
}

}  // namespace skidproof::check::pebs_fields
