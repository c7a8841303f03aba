// The PMU as the manual words it. An engine tells it what retired; it answers as silicon would.
#ifndef SKIDPROOF_PEBS_MODEL_PMU_H_
#define SKIDPROOF_PEBS_MODEL_PMU_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/expected.h"
#include "base/mode.h"
#include "base/random.h"
#include "pebs/arch/microarch.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

// Linear memory as the PEBS assist sees it: the DS area and the buffer. False: not mapped.
class Bus {
 public:
  virtual ~Bus() = default;
  virtual bool read(uint64_t address, std::span<std::byte> into) = 0;
  virtual bool write(uint64_t address, std::span<const std::byte> from) = 0;
  // To physical memory, whatever the page tables say; without any both are one.
  virtual bool write_physical(uint64_t address, std::span<const std::byte> from) {
    return write(address, from);
  }
};

// Who shares the core: decides between 4 and 8 counters (R37).
struct Topology {
  bool sibling_thread = true;
};

class NetBurst;

class Pmu {
 public:
  Pmu(const arch::Microarch& microarch, Topology topology, Bus& bus, const Behaviour& behaviour,
      uint64_t seed);
  ~Pmu();
  Pmu(const Pmu&) = delete;
  Pmu& operator=(const Pmu&) = delete;

  // Ring-0 access. #GP is an error of code kGeneralProtection and changes nothing.
  Expected<uint64_t> rdmsr(uint32_t msr) const;
  Expected<void> wrmsr(uint32_t msr, uint64_t value);
  // RDPMC at this privilege level, with CR4.PCE as given. It may clear the metrics that it reads.
  Expected<uint64_t> rdpmc(uint32_t index, bool user = false, bool cr4_pce = true);

  void set_mode(Mode mode);  // what the code that retires next is: IA-32e mode or not
  void set_user(bool user);  // CPL 3 (true) or CPL 0 for what retires next
  void reset();              // power-on, and RESET
  void init();               // INIT
  // System-management mode: DS recording is off from SMI to RSM, and counters stand still where
  // FREEZE_WHILE_SMM_EN says so (R56). The boundary of an instruction that between_instructions()
  // denies is none: no interrupt comes between the halves of a fused pair.
  void enter_smm();
  void leave_smm();
  bool between_instructions() const;
  void machine_check();  // a machine-check exception is generated (R57)

  // One instruction, in program order.
  void retire(const Retired& retired);
  // The instruction of the last wrmsr(), which retires behind its effect: the counters that it started do
  // not see it, whatever else counts. What a processor lets them see is a rough machine's `start_wrmsr`.
  void retire_write(const Retired& retired);
  // Many instructions at once, of which none can overflow, record or interrupt: at most
  // quiet_instructions() of them. `counts` is what they added together.
  void advance(const arch::SignalCounts& counts, uint64_t instructions);
  // How many instructions can retire before anything can overflow, record or be delivered, when none of
  // them has more than `most_uops` uops, and of the code that they belong to the bounds hold, where there are any.
  uint64_t quiet_instructions(uint64_t most_uops = max_per_instruction(arch::Signal::kUops),
                              const CodeBounds* code = nullptr) const;
  // True when a PMI is to be delivered at this instruction boundary; the LVT is masked by the call
  // (R51).
  bool take_interrupt();
  bool interrupt_pending() const;  // raised, not yet delivered
  // Cycles that records have taken since the last call, to be given to the core model before the next
  // instruction. The counters have them already.
  uint64_t take_stall();
  // Control goes from one instruction to another without a branch of the program: into an interrupt
  // handler, or out of one. The branch trace store notes it (B19).
  void transfer(uint64_t from, uint64_t to);
  // True when some counter counts, PEBS waits or branches are traced: an engine may skip the PMU
  // altogether while false.
  bool active() const;

 private:
  struct State;
  std::unique_ptr<State> state_;        // one of the two
  std::unique_ptr<NetBurst> netburst_;  // where there is no architectural performance monitoring
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_PMU_H_
