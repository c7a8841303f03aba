// CPUID leaf 23H, "Architectural Performance Monitoring Extended", and what else came with architectural version 6.
//
// Source: Intel SDM Vol. 3 (325384-089), 21.2.6 "Architectural Performance Monitoring Version 6", 21.2.9 "Scalable
// Enumeration Architecture", 21.10.1 "Discovery and Interface". Subleaves 4 and 5: Intel SDM Vol. 1, "CPUID.23H.04H" and
// "CPUID.23H.05H" in chapter "Processor Identification and Feature Determination" of 2026.
#ifndef SKIDPROOF_PEBS_ARCH_EXTENDED_PERFMON_H_
#define SKIDPROOF_PEBS_ARCH_EXTENDED_PERFMON_H_

#include <cstdint>

namespace skidproof::arch {

// What one logical processor has, where leaf 0AH says what all of them have.
struct ExtendedPerfmon {
  bool leaf = false;    // CPUID.07H.01H:EAX[8]: leaf 23H exists
  uint32_t gp = 0;      // 23H.01H:EAX: bit n: IA32_PMC_GPn_CTR
  uint32_t fixed = 0;   // 23H.01H:EBX: bit m: IA32_PMC_FXm_CTR
  bool umask2 = false;  // 23H.00H:EBX[0]
  bool equal = false;   // 23H.00H:EBX[1]: the EQ flag
  uint8_t slots = 0;    // 23H.00H:ECX[7:0]: of TMA, each cycle; 0: not told
  uint32_t events = 0;  // 23H.03H:EAX: bit n: architectural event n
  // Auto counter reload, 23H.02H: which counters can be reloaded (EAX, EBX), and whose overflow can do it (ECX, EDX).
  uint32_t reloaded_gp = 0, reloaded_fixed = 0;
  uint32_t reloading_gp = 0, reloading_fixed = 0;
  // Architectural PEBS. 23H.04H:EBX has the bits of IA32_PMC_GPn_CFG_C[63:32] that choose what a record holds; 23H.05H which
  // counters have it (EAX, ECX), and which of them PDist (EBX, EDX).
  bool pebs = false;  // 23H.00H:EAX[5:4]: both subleaves exist
  uint32_t pebs_groups = 0;
  uint32_t pebs_gp = 0, pdist_gp = 0;
  uint32_t pebs_fixed = 0, pdist_fixed = 0;

  // ALLOW_IN_RECORD and the general-purpose counters.
  constexpr bool records_counters() const { return (pebs_groups & 0x18) == 0x18; }
  constexpr bool auto_reload() const { return (reloaded_gp | reloaded_fixed) != 0; }
  bool operator==(const ExtendedPerfmon&) const = default;
};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_EXTENDED_PERFMON_H_
