// The virtual lab's processors: the PMU model and the core model beside each CPU of an emulated PC. Knows nothing
// of the emulator; bochs/instrument.cc is what connects the two.
#ifndef SKIDPROOF_PEBS_ENGINES_LAB_PROCESSOR_H_
#define SKIDPROOF_PEBS_ENGINES_LAB_PROCESSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/expected.h"
#include "pebs/arch/microarch.h"
#include "pebs/engines/journal.h"
#include "pebs/engines/observer.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/core.h"
#include "pebs/model/pmu.h"

namespace skidproof::lab {

// What the lab plays, chosen at start by variables of the environment: SKIDPROOF_LAB_MICROARCH,
// SKIDPROOF_LAB_DEFECTS (separated by commas), SKIDPROOF_LAB_ROUGH (a seed, or FIELD=VALUE,…),
// SKIDPROOF_LAB_SEED, SKIDPROOF_LAB_SIBLING (0 or 1).
struct Configuration {
  const arch::Microarch* microarch = nullptr;
  model::Rough rough;
  model::Behaviour behaviour;
  uint64_t seed = 1;
  bool sibling_thread = false;
  std::string words;  // what is played besides the row and its defects: "rough=7"; may be empty
};
Expected<Configuration> configuration_from_environment();
// Ids of defects, separated by commas.
Expected<model::Behaviour> behaviour_with(const arch::Microarch& microarch,
                                          std::string_view defects, const model::Rough& rough = {});

// What a processor asks of the emulated CPU that it belongs to.
class Host : public model::Bus, public engines::CodeMemory {
 public:
  virtual void registers(model::Registers& into) = 0;  // … and ip: the next instruction
  virtual void vectors(model::VectorRegisters& into) = 0;
  virtual uint64_t tsc() = 0;
  // Sets it, and that of every other CPU of the machine, to this, or to another's where that is further: software
  // takes them for one clock. Returns what it is now.
  virtual uint64_t set_tsc(uint64_t value) = 0;
  // The LVT entry for performance counters of the local APIC.
  virtual uint32_t lvt() = 0;
  virtual void set_lvt(uint32_t value) = 0;
  // Sends the CPU an interrupt as the LVT entry says.
  virtual void interrupt(uint32_t entry) = 0;
  // No interrupt comes before the next instruction.
  virtual void hold_interrupts() = 0;
};

// The outcome of a register access.
enum class Answer : uint8_t { kDone, kGeneralProtection, kNotMine };

class Processor {
 public:
  // `number` tells the processors of one machine apart: each has a core of its own.
  Processor(const Configuration& configuration, unsigned number, Host& host);

  // True while instructions matter: then before() and after() are to be called around each.
  bool watching() const { return watching_; }

  void before(uint64_t ip, bool user);
  void access(uint64_t address, uint32_t bytes, bool load, bool store);
  void branch_taken() { executed_.taken = true; }
  void repetition() { ++repetitions_; }
  // The instruction retired; `repeats`: it is REP-prefixed.
  void after(uint64_t next_ip, bool repeats);
  bool is_at(uint64_t ip) const { return begun_ && executed_.ip == ip; }
  // It did not: a REP-prefixed one that was interrupted.
  void interrupted_repetition() { begun_ = false, keeps_accesses_ = true; }
  // The CPU waits for an interrupt: until the next instruction time is the emulator's.
  void halt();
  void code_changed() { observer_.suspect_code(); }

  Answer rdmsr(uint32_t msr, uint64_t& value);
  Answer wrmsr(uint32_t msr, uint64_t value);
  // Software wrote the LVT entry, which keeps what the model lets it keep.
  void lvt_written();
  std::optional<uint64_t> rdpmc(uint32_t index, bool user, bool cr4_pce);
  // The emulated CPU's TSC takes up the time of the core model.
  void bring_tsc_up_to_date();

  void set_modes(bool ia32e, Mode code);
  void reset();
  void init();
  // As after power-on, with other choices of chance: what makes a case in the lab the same as one in process.
  void start_again(uint64_t seed);
  // Another processor of the same microarch, as after power-on: broken otherwise or not at all, with a sibling
  // thread or without.
  void become(const model::Behaviour& behaviour, bool sibling_thread);

  // From now on what others than the program execute is written down; it must outlive the processor.
  void keep(JournalWriter& journal) { journal_ = &journal; }

  const Configuration& configuration() const { return configuration_; }
  uint64_t retired() const { return retired_; }  // while watching

 private:
  void make_models(uint64_t seed);
  void step();
  void flush();
  void look_for_interrupt();
  void watch(bool on);
  bool programmed() const;
  void take_lvt();
  void write_down();

  static constexpr size_t kMostAccesses = 8;

  Configuration configuration_;
  const unsigned number_;
  Host& host_;
  std::optional<model::Core> core_;
  std::optional<model::Pmu> pmu_;
  engines::Observer observer_;
  JournalWriter* journal_ = nullptr;
  bool watching_ = false;
  bool programmed_ = false;  // since software wrote to the PMU the last time
  bool user_ = false;

  // The instruction that is being executed.
  bool begun_ = false;
  bool keeps_accesses_ = false;
  engines::Executed executed_;
  std::array<engines::SeenAccess, kMostAccesses> accesses_;
  size_t seen_ = 0;
  uint64_t repetitions_ = 0;
  uint64_t expected_ip_ = 0;  // where the last one led to; 0: unknown

  // Instructions that the core model has seen and the PMU has not: of none of them can anything come.
  uint64_t quiet_ = 0, stretch_ = 0;
  arch::SignalCounts counts_{};
  uint64_t clock_ = 0;

  // The TSC is the core clock while watching, and the emulator's own time otherwise.
  uint64_t tsc_offset_ = 0;
  bool halted_ = false;
  uint64_t retired_ = 0;
  uint64_t lvt_seen_ = 0;
  model::Registers registers_;
  model::VectorRegisters vectors_{};
  model::Retired step_;
  // Registers that Linux reads and writes and nothing here acts on: last branches, microcode.
  std::unordered_map<uint32_t, uint64_t> storage_;
};

}  // namespace skidproof::lab

#endif  // SKIDPROOF_PEBS_ENGINES_LAB_PROCESSOR_H_
