// The microarch rows by name; one source file for each generation family defines them.
#ifndef SKIDPROOF_PEBS_ARCH_GENERATIONS_H_
#define SKIDPROOF_PEBS_ARCH_GENERATIONS_H_

#include "pebs/arch/microarch.h"

namespace skidproof::arch {

extern const Microarch kNetBurst;        // netburst.cc
extern const Microarch kCore2;           // core2.cc
extern const Microarch kNehalem;         // nehalem.cc
extern const Microarch kWestmere;        // nehalem.cc
extern const Microarch kSandyBridge;     // sandy_bridge.cc
extern const Microarch kIvyBridge;       // sandy_bridge.cc
extern const Microarch kHaswell;         // haswell.cc
extern const Microarch kBroadwell;       // haswell.cc
extern const Microarch kSkylake;         // skylake.cc
extern const Microarch kIceLake;         // ice_lake.cc
extern const Microarch kAlderLakeP;      // golden_cove.cc
extern const Microarch kSapphireRapids;  // golden_cove.cc
extern const Microarch kMeteorLakeP;     // golden_cove.cc
extern const Microarch kGraniteRapids;   // golden_cove.cc

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_GENERATIONS_H_
