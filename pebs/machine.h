// The processor under test, as ring-0 software sees it. Everything above talks only to this
// interface.
#ifndef SKIDPROOF_PEBS_MACHINE_H_
#define SKIDPROOF_PEBS_MACHINE_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "base/mode.h"
#include "kernels/program.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/msr.h"

namespace skidproof {

enum class Provenance : uint8_t { kSilicon, kModel, kVirtualLab };

// Who answers. Every result row carries it; a model never looks like silicon.
struct Identity {
  std::string name;  // "direct", "native", "model:sandy-bridge", "virtual-lab:sandy-bridge"
  Provenance provenance = Provenance::kSilicon;
  std::string vendor;  // CPUID.0
  std::string brand;
  unsigned family = 0, model = 0, stepping = 0;
  uint32_t microcode = 0;                      // 0: not readable
  std::string hypervisor;                      // CPUID.40000000H signature; empty on bare metal
  std::string core_type;                       // "P", "E", or empty
  const arch::Microarch* microarch = nullptr;  // nullptr: no row covers this CPU
  bool pmu = false;                            // the MSRs answer
  bool sibling_thread = false;                 // a second logical processor shares the core
  bool instant_handler = false;                // PMIs are handled between two instructions
  std::vector<std::string> capabilities;       // ISA and PMU words for reports
  std::vector<Mode> modes = {Mode::kLong};     // of the programs that it runs

  bool runs(Mode mode) const { return std::find(modes.begin(), modes.end(), mode) != modes.end(); }
};

enum class MemoryUse : uint8_t { kData, kCode, kDebugStore };

struct MemoryRequest {
  size_t bytes = 4096;
  MemoryUse use = MemoryUse::kData;
  bool huge_pages = false;  // 2 MiB pages where the machine has them
  bool below_4g = false;    // what 32-bit code can reach
  // Of a debug store: ends at 4 GiB, and goes on in our view with one page more, which stands at
  // linear address 0, as addresses of 32 bits go on there. `bytes` is what lies below 4 GiB.
  bool across_4g = false;
  // Of a debug store: one piece of physical memory from a page on, for architectural PEBS. Machine::allocate() answers
  // kNotAvailable where the machine has no such memory, or cannot tell where it lies.
  bool physical = false;

  bool low() const { return below_4g || across_4g; }
};

// A block of memory with a guard page on both sides, freed with the last copy of its handle.
struct Memory {
  std::span<std::byte> host;  // our view
  uint64_t address = 0;       // what programs and the DS area see
  uint64_t physical = 0;    // where it stands in physical memory, of what was asked for so; else 0
  bool huge_pages = false;  // really backed by them
  std::shared_ptr<void> keep;  // frees on release
};

struct MsrWrite {
  uint32_t msr = 0;
  uint64_t value = 0;
  bool operator==(const MsrWrite&) const = default;
};

// What the interrupt handler does with a PMI after logging it.
struct PmiPolicy {
  uint32_t status_msr = arch::IA32_PERF_GLOBAL_STATUS;  // what it logs as the status
  std::vector<MsrWrite> acknowledge = {};               // what it writes before it unmasks
  bool unmask = true;                // clear the LVT mask bit, which delivery sets (R51)
  bool clear_status = true;          // write the status that it read to OVF_CTRL
  bool rewind_index = false;         // PEBS index := base (R49)
  bool rewind_branches = false;      // BTS index := base (B14)
  bool restore_global_ctrl = false;  // write back what freeze-on-PMI cleared (R52)
  size_t log_capacity = 4096;
};

enum class Ring : uint8_t { kKernel = 0, kUser = 3 };

// What happens to the processor from outside the program that it runs.
enum class Disturbance : uint8_t {
  kSmi,           // system-management interrupt: a handler runs in SMM, then the program goes on
  kMachineCheck,  // machine-check exception: a handler runs, then the program goes on
  kInit,          // the processor begins anew, and the program does not go on …
  kReset,         // … nor here
};
struct DisturbanceAt {
  Disturbance what = Disturbance::kSmi;
  uint64_t after = 0;  // instructions of the program
};

// One run: MSRs in, the program, MSRs out.
struct RunPlan {
  uint64_t iterations = 1;
  std::vector<MsrWrite> enable;   // in order, last before the program: GLOBAL_CTRL last
  std::vector<MsrWrite> disable;  // in order, first after it: GLOBAL_CTRL first
  std::vector<uint32_t> read;     // read after disabling; values in RunLog::read
  PmiPolicy pmi;
  Ring ring = Ring::kKernel;
  Mode mode = Mode::kLong;  // the program's
  // In order of `after`. A machine that cannot bring them about refuses the run with kNotAvailable.
  std::vector<DisturbanceAt> disturbances = {};
  uint64_t pebs_index_address = 0;  // where the handler finds the PEBS index and base; 0: none
  uint64_t pebs_base_address = 0;
  // Architectural PEBS instead: where the handler takes IA32_PEBS_INDEX to begin; 0: it does not read it. A machine whose
  // handler cannot refuses the run with kNotAvailable.
  uint64_t pebs_buffer_address = 0;
  uint64_t bts_index_address = 0;  // the same of the branch trace store
  uint64_t bts_base_address = 0;
  uint32_t pebs_field_bytes = 8;  // of all four: 4 in the 32-bit layout of the DS area
  bool keep_sibling_busy =
      false;  // the other thread of the core executes code meanwhile, where that can be
  std::chrono::milliseconds deadline{10'000};
};

// One performance monitoring interrupt, as the handler saw it.
struct Pmi {
  uint64_t tsc = 0;
  uint64_t ip = 0;             // the next instruction of the interrupted program
  uint64_t global_status = 0;  // on entry
  uint64_t global_ctrl = 0;    // on entry
  uint64_t pebs_index = 0;     // on entry, as an address; 0 without a DS area
  uint64_t bts_index = 0;      // on entry; 0 without a branch trace store
};

// What disturbed a run on real silicon; zero in the model.
struct Noise {
  uint64_t involuntary_switches = 0;
  uint64_t migrations = 0;
  uint64_t smi = 0;
  double steal_s = 0;
  uint64_t interrupted = 0;     // runs into which an interrupt came, where that can be told
  uint64_t machine_checks = 0;  // errors that the machine-check banks gained
  uint64_t foreign_nmis = 0;    // that came while the program ran and were not its PMIs
  uint64_t slices = 0;          // times that interrupts were let in during the program
  uint64_t repeats = 0;         // earlier tries that were thrown away, being disturbed
};

struct RunLog {
  std::vector<uint64_t> read;  // in the order of RunPlan::read
  std::vector<Pmi> pmis;
  uint64_t pmis_dropped = 0;  // beyond log_capacity
  uint64_t disturbances = 0;  // of the plan's, that came before the program's end
  bool abandoned = false;     // by kInit or kReset: the program did not return
  uint64_t result = 0;        // RAX on return
  uint64_t tsc = 0;           // ticks from before the call to after it
  bool sibling_busy = false;  // the other thread is known to have executed code meanwhile
  Noise noise;
};

// A run cut into pieces: its iterations in so many calls of the program, one right after the other, as even as can be. `onward`:
// each begins at the data that the last one's result points to, as a walk goes on; else all begin at the program's.
struct Laps {
  uint64_t count = 1;
  bool onward = false;
};
struct RunInLaps : RunLog {
  std::vector<uint64_t> laps;  // ticks of each; empty: it was one call
};

// One RDPMC: as executed at this privilege level, with CR4.PCE as given.
struct CounterRead {
  uint32_t index = 0;  // bit 30 selects fixed counters
  Ring ring = Ring::kKernel;
  bool cr4_pce = true;
};

class Machine {
 public:
  virtual ~Machine() = default;

  virtual const Identity& identity() const = 0;
  // CPUID as this machine reports it.
  struct CpuidResult {
    uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  };
  virtual CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const = 0;

  // #GP is an error of code kGeneralProtection; a machine without a PMU answers kNotAvailable.
  virtual Expected<uint64_t> rdmsr(uint32_t msr) = 0;
  virtual Expected<void> wrmsr(uint32_t msr, uint64_t value) = 0;

  // RDPMC; #GP is an error of code kGeneralProtection. kNotAvailable where the machine has no way to
  // execute it so.
  virtual Expected<uint64_t> rdpmc(const CounterRead& read) {
    static_cast<void>(read);
    return fail(ErrorCode::kNotAvailable, identity().name + " has no way to execute RDPMC",
                "use a machine with a PMU, for example --machine model:sandy-bridge");
  }

  virtual Expected<Memory> allocate(const MemoryRequest& request) = 0;

  // Places the program's bytes at program.code_address, which must lie in a code block that this
  // machine allocated, and runs it. Errors: kExecution when the program leaves its code or data or
  // meets an instruction that the engine does not know; kTimeout; kGeneralProtection from the
  // plan's writes.
  virtual Expected<RunLog> run(const Program& program, const RunPlan& plan) = 0;

  // run(), each lap timed by itself: what takes the CPU away for a few microseconds unseen, as a hypervisor does, is in some
  // of them. One call of all iterations on a machine that does not time laps.
  virtual Expected<RunInLaps> run_in_laps(const Program& program, const RunPlan& plan,
                                          const Laps& laps) {
    static_cast<void>(laps);
    Expected<RunLog> log = run(program, plan);
    if (!log) return tl::make_unexpected(std::move(log).error());
    return RunInLaps{*std::move(log), {}};
  }

  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
};

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_MACHINE_H_
