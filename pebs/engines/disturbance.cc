#include "pebs/engines/disturbance.h"

#include "pebs/arch/signal.h"
#include "pebs/model/predictor.h"
#include "pebs/model/retired.h"

namespace skidproof::engines {
namespace {

using arch::index;
using arch::Signal;

constexpr int kTrips = 64;
constexpr uint8_t kLength = 4;  // of each instruction
constexpr uint64_t kLoaded = 0x3'fe00;

}  // namespace

void run_handler(uint64_t address, model::Core& core, model::Pmu& pmu) {
  model::Registers registers;
  auto retire = [&](uint64_t ip, uint64_t next, model::Retired r) {
    r.ip = ip;
    r.length = kLength;
    r.counts[index(Signal::kInstructions)] = r.counts[index(Signal::kUops)] = 1;
    core.settle(r.counts, core.clock() + 1);
    r.cycle = core.cycle();
    r.tsc = core.tsc();
    registers.ip = next;
    r.after = &registers;
    pmu.retire(r);
  };
  const uint64_t load = address, sub = load + kLength, jump = sub + kLength;
  for (int trip = 1; trip <= kTrips; ++trip) {
    model::Retired loads;
    loads.counts[index(Signal::kLoads)] = loads.counts[index(Signal::kSimd)] = 1;
    loads.load = {.valid = true, .l1_hit = true, .source = 1, .latency = 4, .address = kLoaded};
    retire(load, sub, loads);
    retire(sub, jump, {});
    model::Retired branch;
    bool taken = trip < kTrips;
    branch.counts[index(Signal::kBranches)] = branch.counts[index(Signal::kConditional)] = 1;
    static_cast<void>(core.conditional(model::Predictor::key(jump), taken));
    retire(jump, taken ? load : jump + kLength, branch);
  }
}

}  // namespace skidproof::engines
