// The end of the linear address space, 4 GiB outside IA-32e mode: an absolute maximum just below it holds as it does
// elsewhere.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/exact.h"
#include "suites/netburst_sampling.h"
#include "suites/sampling.h"

namespace skidproof::check::ds_address_space {
namespace {

using namespace suites;

constexpr Mode k32 = Mode::kProtected32;
constexpr char kNo32[] = "this machine runs no 32-bit code";
constexpr char kNoEvent[] = "no precise event on this counter";
constexpr char kSoftwaresDuty[] =
    "a record overruns a maximum that is no whole number of records elsewhere, too: alignment is "
    "software's duty";

constexpr size_t kWhole = 4;  // records below the maximum
// From their end to 4 GiB: less than any record takes, and it keeps the base aligned. The maximum lies in between.
constexpr size_t kToEnd = 8;

// What a run with more records than there is room for left.
struct Stored {
  size_t past_maximum = 0;    // bytes at the maximum and behind it that something was written to
  uint64_t index_moved = 0;   // bytes
  bool index_inside = false;  // not below the base, not past the maximum
};

// `all`: the buffer from its base on.
Stored stored_in(std::span<const std::byte> all, uint64_t base, uint64_t index, uint64_t maximum) {
  const std::span<const std::byte> past = all.subspan(maximum - base);
  const auto untouched = std::count(past.begin(), past.end(), Session::kFill);
  return {.past_maximum = past.size() - static_cast<size_t>(untouched),
          .index_moved = index - base,
          .index_inside = index >= base && index <= maximum};
}

// With a maximum so many bytes past the last whole record: somewhere below 4 GiB, or at its end.
std::optional<size_t> bytes_to_4g(bool at_end, size_t bytes_over) {
  return at_end ? std::optional(kToEnd - bytes_over) : std::nullopt;
}

Expected<Stored> store_branches(Machine& machine, const arch::Microarch& m, const Program& code,
                                size_t bytes_over, bool at_end) {
  const SessionPlan plan =
      trace_plan({.records = kWhole + 8,
                  .maximum_bytes = kWhole * m.branch_record_in(k32).bytes + bytes_over,
                  .bytes_to_4g = bytes_to_4g(at_end, bytes_over)},
                 k32);
  Session session = SKIDPROOF_TRY(Session::open(machine, plan));
  SKIDPROOF_CHECK(session.run(code, 10));
  const uint64_t index = session.branch_index();
  session.set_branch_index(session.branch_base());
  return stored_in(session.after_branch_index(), session.branch_base(), index,
                   session.branch_maximum());
}

// The plan says of what, without its buffer.
Expected<Stored> store_records(Machine& machine, const arch::Microarch& m, SessionPlan plan,
                               const Program& code, size_t bytes_over, bool at_end) {
  plan.mode = k32;
  plan.buffer_records = kWhole + 4;
  plan.maximum_bytes = kWhole * plan.record_bytes(m) + bytes_over;
  plan.bytes_to_4g = bytes_to_4g(at_end, bytes_over);
  const uint64_t iterations = iterations_for_exactly(kWhole + 3, plan.counters[0].period);
  Sampled sampled = SKIDPROOF_TRY(sample(machine, plan, code, iterations));
  Session& session = sampled.session;
  const uint64_t index = session.index();
  session.set_index(session.base());
  return stored_in(session.after_index(), session.base(), index, session.maximum());
}

}  // namespace

SKIDPROOF_SUITE(DsAddressSpace, kEdges);

// By the wording of B8 a maximum one byte past the last record is as it should be.
SKIDPROOF_COMMON_TEST_OVER(DsAddressSpace, KeepsBranchRecordsBelowAMaximumAtItsEnd,
                           over::numbers("bytes-over=", {0, 1, 4}), clause::B8) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const size_t over = param().number();
  const Program& code = program("branch_stream", "trips=3", k32);
  const Stored elsewhere = need(store_branches(machine(), uarch(), code, over, false));
  SKIDPROOF_REQUIRE(aligned_maximum(over) || elsewhere.past_maximum == 0, SkipCategory::kNoPromise,
                    kSoftwaresDuty);
  VERIFY_EQ(elsewhere.past_maximum, 0u) << "elsewhere";

  const Stored at_end = need(store_branches(machine(), uarch(), code, over, true));

  evidence("index-moved", at_end.index_moved);
  VERIFY_EQ(at_end.past_maximum, 0u);
  VERIFY_TRUE(at_end.index_inside);
  VERIFY_EQ(at_end.index_moved, elsewhere.index_moved) << "as many records as elsewhere";
}

SKIDPROOF_COMMON_TEST_OVER(DsAddressSpace, KeepsPebsRecordsBelowAMaximumAtItsEnd,
                           over::numbers("bytes-over=", {0, 1, 4}), clause::R48) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const size_t over = param().number();
  const bool netburst = !uarch().architectural_perfmon();
  const arch::Event* event = netburst ? nullptr : sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(netburst || event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program(
      "sparse_event", netburst ? netburst_kernel() : sparse_parameters(uarch(), "taken"), k32);
  const SessionPlan plan =
      netburst ? netburst_loads(uarch(), k32, kWhole)
               : one_counter(0, *event, usable_period(uarch(), 0, *event, 40), kWhole);
  const Stored elsewhere = need(store_records(machine(), uarch(), plan, code, over, false));
  SKIDPROOF_REQUIRE(aligned_maximum(over) || elsewhere.past_maximum == 0, SkipCategory::kNoPromise,
                    kSoftwaresDuty);
  VERIFY_EQ(elsewhere.past_maximum, 0u) << "elsewhere";

  const Stored at_end = need(store_records(machine(), uarch(), plan, code, over, true));

  evidence("index-moved", at_end.index_moved);
  VERIFY_EQ(at_end.past_maximum, 0u);
  VERIFY_TRUE(at_end.index_inside);
  VERIFY_EQ(at_end.index_moved, elsewhere.index_moved) << "as many records as elsewhere";
}

}  // namespace skidproof::check::ds_address_space
