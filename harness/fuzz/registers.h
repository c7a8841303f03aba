// What every PMU register must hold and refuse, out of the microarch's row: the fuzzer's own register
// file, independent of any machine.
#ifndef SKIDPROOF_HARNESS_FUZZ_REGISTERS_H_
#define SKIDPROOF_HARNESS_FUZZ_REGISTERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "pebs/arch/microarch.h"

namespace skidproof::fuzz {

class RegisterFile {
 public:
  // `gp_counters`: how many CPUID.0AH reports. Everything is as after a reset but the status and the
  // counters, which are 0.
  RegisterFile(const arch::Microarch& microarch, unsigned gp_counters);

  // Whether WRMSR must succeed; otherwise it must raise #GP (arch/reserved.h).
  bool accepts(uint32_t msr, uint64_t value) const;
  // The effect of an accepted write on every register.
  void write(uint32_t msr, uint64_t value);
  // What RDMSR must give; empty where it must raise #GP.
  std::optional<uint64_t> read(uint32_t msr) const;

  // What a run changed: taken over from the machine once it has been judged.
  void set(uint32_t msr, uint64_t value) { values_[canonical(msr)] = value; }
  uint64_t at(uint32_t msr) const;

  // Every register that cases touch, those that must be absent here among them.
  const std::vector<uint32_t>& watched() const { return watched_; }

  unsigned gp_counters() const { return gp_; }
  unsigned fixed_counters() const { return microarch_.fixed_counters; }
  const arch::Microarch& microarch() const { return microarch_; }

 private:
  bool exists(uint32_t msr) const;
  // IA32_A_PMCx is another name of IA32_PMCx.
  uint32_t canonical(uint32_t msr) const;
  std::optional<uint64_t> writable(uint32_t msr) const;

  const arch::Microarch& microarch_;
  const unsigned gp_;
  std::map<uint32_t, uint64_t> values_;
  std::vector<uint32_t> watched_;
};

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_REGISTERS_H_
