// What the suites share: choosing events, sampling with one counter, and finding a recorded IP on
// the path that a kernel's loop executes.
#ifndef SKIDPROOF_SUITES_SAMPLING_H_
#define SKIDPROOF_SUITES_SAMPLING_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "base/mode.h"
#include "harness/calibrate/calibration.h"
#include "kernels/program.h"
#include "pebs/arch/event.h"
#include "pebs/arch/fusion.h"
#include "pebs/arch/microarch.h"
#include "pebs/record.h"
#include "pebs/session.h"

namespace skidproof::suites {

// --- Events

// The plain precise event (no CMASK, no INV, no facility of its own) that selects a signal on
// IA32_PMCn; nullptr where the microarch publishes none. Names and codes differ between
// generations, signals do not.
const arch::Event* precise_event(const arch::Microarch& microarch, arch::Signal signal,
                                 unsigned counter = 0);

// The precise event that comes with nearly every instruction: uops, or instructions where the
// microarch samples no uops; nullptr where neither is sampled on IA32_PMCn.
inline const arch::Event* dense_event(const arch::Microarch& microarch, unsigned counter = 0) {
  const arch::Event* uops = precise_event(microarch, arch::Signal::kUops, counter);
  return uops != nullptr ? uops : precise_event(microarch, arch::Signal::kInstructions, counter);
}

// The event of a facility: PDIR, precise store, load latency; nullptr where there is none.
const arch::Event* facility_event(const arch::Microarch& microarch, arch::EventKind kind);

// A period that an event on IA32_PMCn sustains (R41): the wish, or the next that does.
inline uint64_t usable_period(const arch::Microarch& microarch, unsigned counter,
                              const arch::Event& event, uint64_t wish) {
  return arch::sustained_period(microarch, counter, event, wish);
}
// The same of an ordinary event on a counter without PDist.
inline uint64_t usable_period(const arch::Microarch& microarch, uint64_t wish) {
  return std::max<uint64_t>(wish, microarch.minimum_period);
}

// The lowest PMCn whose overflow arms PEBS for the next event (R2): PDist records the event that
// overflows itself (R62). One that waits for that as others do (E1), where there is one.
inline unsigned arming_counter(const arch::Microarch& microarch) {
  return static_cast<unsigned>(__builtin_ctz(microarch.arming_counters()));
}
// What is known of arming by this event. It is measured with jumps, of which reduced skid tells nothing else where every
// counter has it.
inline calibrate::Figure arming_by(const arch::Microarch& microarch, const arch::Event& event,
                                   const calibrate::Figure& measured) {
  const bool told = microarch.distributes(event) ||
                    (microarch.arming_counters() & ~unsigned{microarch.reduced_skid_counters}) != 0;
  return told ? measured : calibrate::Figure{};
}
// Whether PDist records the overflowing event itself: such a counter never stands armed (R62). Of events it takes all
// but those that the row excepts, uops alone.
inline bool distributes(const arch::Microarch& microarch, unsigned counter) {
  return ((microarch.pdist_counters >> counter) & 1) != 0;
}
inline constexpr char kNeverArmed[] = "PDist on this counter: the record is that of the overflow";
// How many events pass from record to record.
inline uint64_t events_a_record(const arch::Microarch& microarch, unsigned counter,
                                uint64_t period) {
  return period + (distributes(microarch, counter) ? 0 : 1);
}
// Bytes of a record of a plan that says nothing about them.
inline size_t record_bytes(const arch::Microarch& microarch) {
  return SessionPlan{}.record_bytes(microarch);
}

// --- The two forms of PEBS

inline constexpr char kNoDsPebs[] =
    "PEBS is architectural: no field of the DS area and no IA32_PEBS_ENABLE says that";
// What switches PEBS of IA32_PMCn on and off, and nothing else of it.
inline Expected<MsrWrite> pebs_switch(Machine& machine, unsigned counter, bool on) {
  if (machine.identity().microarch->pebs_in_ds_area()) {
    return MsrWrite{arch::IA32_PEBS_ENABLE, on ? arch::bit(counter) : 0};
  }
  const uint32_t msr = arch::IA32_PMC_GP0_CFG_C + arch::kBankStride * counter;
  const uint64_t rest = SKIDPROOF_TRY(machine.rdmsr(msr)) & ~arch::cfg_c::kEnable;
  return MsrWrite{msr, rest | (on ? arch::cfg_c::kEnable : 0)};
}
// A period that no counter of a test comes near, eight of which a reset value can still say.
inline uint64_t far_period(const arch::Microarch& microarch) {
  return uint64_t{1} << (microarch.pebs_in_ds_area() ? 40 : 28);
}

// --- Modes

// By the words of a parameter.
inline constexpr std::initializer_list<const char*> kModeWords = {"64-bit", "32-bit"};
inline Mode mode_of(std::string_view word) {
  return word == "32-bit" ? Mode::kProtected32 : Mode::kLong;
}
inline constexpr char kNoSuchCode[] = "this machine runs no code of that mode";

// --- Sampling

// So many records, or as many as fit a PEBS buffer that is safe on this microarch.
inline size_t safe_records(const arch::Microarch& microarch, size_t wish) {
  const size_t limit = microarch.pebs_buffer_limit_bytes;
  return limit == 0 ? wish : std::min(wish, limit / record_bytes(microarch));
}

// One counter, room for this many records, no threshold interrupt.
SessionPlan one_counter(const CounterSetup& setup, size_t records);

// One PEBS counter on an event.
inline SessionPlan one_counter(unsigned counter, const arch::Event& event, uint64_t period,
                               size_t records) {
  return one_counter(CounterSetup::of(counter, event, period), records);
}

// How many events may pass while PEBS is being armed: so many of every `instructions`, where they come as
// fast as a core retires, or so many a cycle.
uint64_t passing_events(const calibrate::Figure& arming, uint64_t events = 1,
                        uint64_t instructions = 1, double a_cycle = 8);

// Iterations that fill a buffer of so many records: period + 1 events each (R2), an eighth more, and
// what passes before PEBS is armed.
inline uint64_t iterations_for(size_t records, uint64_t period, uint64_t events_per_iteration = 1,
                               uint64_t passing = 0) {
  return (records * (period + 2 + passing) * 9 / 8) / events_per_iteration + period + 16;
}

// The same for a loop of so many instructions, of which so many are events. `passing`: events while PEBS is being armed,
// where every instruction is one.
inline uint64_t loop_iterations(size_t records, uint64_t period, uint64_t instructions,
                                uint64_t events, uint64_t passing) {
  return iterations_for(records, period, events,
                        (passing * events + instructions - 1) / instructions);
}
// As many as suffice mostly, at two instructions a cycle.
inline uint64_t usual_iterations(size_t records, uint64_t period, uint64_t instructions,
                                 uint64_t events, const calibrate::Figure& arming) {
  return loop_iterations(records, period, instructions, events, passing_events(arming, 1, 1, 2));
}
// In any case, if no more than half of the events come, and arming takes twice as long. Where that could not be measured, four
// periods may pass.
inline uint64_t most_iterations(size_t records, uint64_t period, uint64_t instructions,
                                uint64_t events, const calibrate::Figure& arming) {
  return loop_iterations(records, period + period / 4, instructions,
                         std::max<uint64_t>(events / 2, 1),
                         arming.known() ? 2 * passing_events(arming) : 4 * period);
}

// Loads that fill a buffer of load latency: the hardware tags them at random, at a rate that is not
// published. Twice as many as a chase was measured to need; where that could not be, one tag in 8 is a
// beginning, and too few records then say nothing (suites/load_latency.h).
uint64_t loads_for(size_t records, uint64_t period, const calibrate::Figure& tagging);

// A session and the run that it has behind it. The records live as long as the session.
struct Sampled {
  Session session;
  SessionRun run;
  Records records() const { return session.records(); }
};

Expected<Sampled> sample(Machine& machine, const SessionPlan& plan, const Program& program,
                         uint64_t iterations);

// The same, until there are so many records: how many events pass while PEBS is being armed depends on how fast the
// program retires, so a run of too few iterations is followed by one of so many more as records were missing,
// up to `most`. `iterations` becomes what was needed.
Expected<Sampled> sample_until_full(Machine& machine, const SessionPlan& plan,
                                    const Program& program, size_t wanted, uint64_t& iterations,
                                    uint64_t most);

// What a record says of the counters behind it, as far as its format does: the status of formats 1
// and 2, masked by the PEBS counters (R23), or the applicable counters of format 3.
std::optional<uint64_t> recorded_counters(const arch::Microarch& microarch, const Record& record);

// --- Many short runs

// What overflows among the instructions around a program may leave no record, and then nothing loads the
// counter again: it counts on from zero for good. Software loads one that has passed zero and that no
// record came from for a few runs; one that is merely armed gives its record in the next.
class LostReloads {
 public:
  // `msr`: of a counter of so many bits, which is loaded below zero.
  LostReloads(uint32_t msr, unsigned width) : msr_(msr), width_(width) {}

  // After each run: the counter, the PEBS index, and what the counter shall be loaded with. Errors: of WRMSR.
  Expected<void> mend(Machine& machine, uint64_t counter, uint64_t index, uint64_t load);

 private:
  uint32_t msr_;
  unsigned width_;
  unsigned silent_ = 0;
  uint64_t index_ = 0;
};

// --- Recorded IPs

// Outside the program: the machine's own code around it counts too, between GLOBAL_CTRL and the
// call. The address right behind the code still belongs to it, as the fall-through of its last
// instruction.
inline bool foreign(const Program& program, uint64_t ip) {
  return ip < program.code_address || ip > program.code_address + program.code.size();
}
// How many foreign records a run may hold: one on the way in, one on the way out.
inline constexpr uint64_t kForeignAllowed = 2;

// The index of the static instruction that starts at this address.
std::optional<size_t> instruction_index(const Program& program, uint64_t ip);

using InstructionTest = std::function<bool(const Instruction&)>;

// A loop's own jump goes back and is taken; every other conditional jump goes the same way.
inline InstructionTest forward_jumps(bool taken) {
  return [taken](const Instruction& i) { return i.target <= i.address || taken; };
}

// One iteration of a program's loop as the instructions that it executes, in that order, calls and
// returns followed. For kernels whose iteration executes each address once.
class LoopPath {
 public:
  // From loop.first until it comes back there; `taken` says which way a conditional jump goes.
  // Empty when the program has no loop or leaves its code.
  static LoopPath of(const Program& program, const InstructionTest& taken);

  size_t size() const { return steps_.size(); }
  bool empty() const { return steps_.empty(); }
  // How many of these instructions there are.
  size_t count(const InstructionTest& which) const {
    return static_cast<size_t>(std::count_if(
        steps_.begin(), steps_.end(), [&](const Instruction* step) { return which(*step); }));
  }
  // Cyclic: step(size()) is step(0).
  const Instruction& step(size_t i) const { return *steps_[i % steps_.size()]; }
  // Where an address stands on the path.
  std::optional<size_t> position(uint64_t ip) const;
  // The instruction executed `distance` before the one at a position.
  const Instruction& before(size_t at, size_t distance) const {
    return step(at + size() - distance % size());
  }
  // How many instructions, along the path, the recorded IP lies behind the nearest instruction
  // before it that can have caused the event: 1 to size(). Empty where the IP is not on the path,
  // or nothing on it causes the event.
  std::optional<size_t> skid(uint64_t ip, const InstructionTest& causes) const;

 private:
  std::vector<const Instruction*> steps_;
  std::unordered_map<uint64_t, size_t> position_;
};

// Which instructions of a path cause an event.
InstructionTest causes(arch::Signal signal, const InstructionTest& taken);
// How many events an iteration has at least, and one: a conditional jump may be one uop with the instruction before it.
uint64_t events_of(const LoopPath& path, arch::Signal signal, const InstructionTest& taken);

// Whether a microarch fuses an instruction with the conditional jump behind it, by its own rules
// (R64 to R69). The static list knows Sandy Bridge's, which no row exceeds; where no source gives rules it may.
bool first_of_fused_pair(const arch::Microarch& microarch, const Program& program,
                         const Instruction& first);
// Records two behind a fused pair where a row reads 1. Table 18-31 reads 1 for Westmere, whose pairs fuse as well, and
// no source says it of E-cores: that it means 1 behind a pair, too, is a guess, and what is seen is observed.
inline constexpr char kTwoBehindAPair[] = "two-behind-a-fused-pair";

// Where the records of one or more runs lie.
struct Placing {
  std::map<int64_t, uint64_t> skid;   // distance from the eventing instruction -> records
  std::map<uint64_t, uint64_t> hits;  // IP on the path -> records
  uint64_t on_path = 0;
  uint64_t off_path = 0;  // inside the program, but never executed by the loop
  uint64_t foreign = 0;   // outside the program
  uint64_t at_exit = 0;   // behind the loop's last, untaken jump: one in a run at most
  uint64_t runs = 0;

  Placing& operator+=(const Placing& other);
};

Placing place(const Program& program, const LoopPath& path, const Records& records,
              const InstructionTest& causes);

}  // namespace skidproof::suites

#endif  // SKIDPROOF_SUITES_SAMPLING_H_
