// MSR names for messages.
#ifndef SKIDPROOF_PEBS_ARCH_NAMES_H_
#define SKIDPROOF_PEBS_ARCH_NAMES_H_

#include <cstdint>
#include <string>

namespace skidproof::arch {

// The manual's name, with the counter's number: "IA32_PMC3". An address that msr.h does not have
// gives "MSR 123H".
std::string msr_name(uint32_t msr);

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_NAMES_H_
