// Who errata are looked up for: one processor, or what an inventory says of one.
#ifndef SKIDPROOF_HARNESS_ERRATA_SUBJECT_H_
#define SKIDPROOF_HARNESS_ERRATA_SUBJECT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pebs/arch/errata.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/part.h"
#include "results/row.h"

namespace skidproof::errata {

struct Subject {
  std::string vendor;              // CPUID.0; empty: not said, and taken for Intel's
  std::optional<arch::Part> part;  // nullopt: not said; its microcode is 0 where it is not known
  arch::CoreType core = arch::CoreType::kUnstated;
  std::string hypervisor;  // empty: none is known
  bool played = false;     // by a model: it is what it says it is
  std::optional<bool> hyper_threading;
  std::string linux_release;  // "6.12.3-amd64"; empty: not known
};

// What a row says of the processor that answered.
Subject subject_of(const results::MachineRow& row);

// The configuration that the erratum needs and the processor is known not to have; empty: none is missing.
std::string lacks(const arch::Erratum& erratum, const Subject& subject);

// "P", "E", or empty.
std::string core_word(arch::CoreType core);
// The same back; anything else is kUnstated.
arch::CoreType core_of(std::string_view word);

}  // namespace skidproof::errata

#endif  // SKIDPROOF_HARNESS_ERRATA_SUBJECT_H_
