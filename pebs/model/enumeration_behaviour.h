// What CPUID says of performance monitoring, decision by decision: the part of Behaviour that the
// machine asks for, of which CPUID is. The PMU behind it does as its row says whatever CPUID does.
#ifndef SKIDPROOF_PEBS_MODEL_ENUMERATION_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_ENUMERATION_BEHAVIOUR_H_

#include <cstdint>

namespace skidproof::model {

struct EnumerationBehaviour {
  // Bits that say the opposite.
  uint32_t wrong_features_ecx = 0;   // of CPUID.01H:ECX (M4)
  uint32_t wrong_features_edx = 0;   // of CPUID.01H:EDX (M4)
  uint32_t wrong_perfmon_edx = 0;    // of CPUID.0AH:EDX (M48)
  bool always_perfmon_leaf = false;  // CPUID goes up to leaf 0AH on NetBurst, too (N1)
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_ENUMERATION_BEHAVIOUR_H_
