// Micro-fusion: what an indexed or RIP-relative address does to an instruction that is one uop of the
// fused domain with a plain one.
#include <cstdint>
#include <string>
#include <string_view>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::micro_fusion {
namespace {

using namespace suites;
using arch::IndexedFusion;
using arch::Signal;

constexpr uint64_t kIterations = 64, kCopies = 8;
constexpr char kNoSlots[] = "no event counts retirement slots";

// UOPS_RETIRED.RETIRE_SLOTS, later UOPS_RETIRED.SLOTS: the fused domain after un-lamination.
const arch::Event* slots_event(const arch::Microarch& microarch) {
  const arch::Event* event = microarch.event(0xC2, 0x02);
  return event != nullptr && event->signal == Signal::kUops ? event : nullptr;
}

std::string parameters(std::string_view operation, std::string_view address) {
  return "operation=" + std::string(operation) + ",address=" + std::string(address) +
         ",copies=" + std::to_string(kCopies);
}

}  // namespace

SKIDPROOF_SUITE(MicroFusion, kCount);

// Each side of a difference is a count with its own start and stop.
#define SKIDPROOF_EDGE (2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions)))

// Slots that an address costs more than a plain one, over all copies and iterations.
#define SKIDPROOF_EXTRA_SLOTS(event, operation, address)                                        \
  difference(need(count(machine(), 0, event,                                                    \
                        program("micro_fusion", parameters(operation, address)), kIterations)), \
             need(count(machine(), 0, event,                                                    \
                        program("micro_fusion", parameters(operation, "base")), kIterations)))

SKIDPROOF_TEST_OVER(MicroFusion, EndsWithAnIndexedAddress,
                    over::words({"add", "adc", "cmov", "vex", "store", "cmp_imm"}), clause::R73) {
  SKIDPROOF_REQUIRE(uarch().indexed_fusion == IndexedFusion::kNever,
                    SkipCategory::kNotOnThisMicroarch, "another rule for indexed addresses");
  const arch::Event* event = slots_event(uarch());
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoSlots);
  VERIFY_THAT(SKIDPROOF_EXTRA_SLOTS(*event, param().word(), "indexed"),
              within(kIterations * kCopies, SKIDPROOF_EDGE));
}

SKIDPROOF_TEST_OVER(MicroFusion, KeepsAnIndexedAddressWithTwoOperandsOnly,
                    over::words({"add", "adc", "cmov", "vex"}), clause::R74) {
  SKIDPROOF_REQUIRE(uarch().indexed_fusion == IndexedFusion::kTwoOperands,
                    SkipCategory::kNotOnThisMicroarch, "another rule for indexed addresses");
  const arch::Event* event = slots_event(uarch());
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoSlots);
  VERIFY_THAT(SKIDPROOF_EXTRA_SLOTS(*event, param().word(), "indexed"),
              within(param().word() == "add" ? 0 : kIterations * kCopies, SKIDPROOF_EDGE));
}

// RIP-relative alone stays fused; together with an immediate it cannot.
SKIDPROOF_TEST_OVER(MicroFusion, CannotHoldAnImmediateAndARipRelativeAddress,
                    over::words({"add", "cmp_imm"}), clause::R75) {
  const arch::Event* event = slots_event(uarch());
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoSlots);
  VERIFY_THAT(SKIDPROOF_EXTRA_SLOTS(*event, param().word(), "rip"),
              within(param().word() == "cmp_imm" ? kIterations * kCopies : 0, SKIDPROOF_EDGE));
}

}  // namespace skidproof::check::micro_fusion
