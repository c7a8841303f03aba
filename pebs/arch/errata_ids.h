// Which published PEBS errata concern a row, by the IDs of the specification updates for its parts.
//
// Source: an index of the specification updates (RemembERR's parse of them, client parts to 2022),
// and Linux 6.12 arch/x86/events/intel/core.c. Only what the model can express stands here: see
// pebs/model/defects_errata.inc, which says in words what each does.
#ifndef SKIDPROOF_PEBS_ARCH_ERRATA_IDS_H_
#define SKIDPROOF_PEBS_ARCH_ERRATA_IDS_H_

#include <array>
#include <string_view>

namespace skidproof::arch {

// Intel Core i7-900 Desktop Processor, AAJ.
inline constexpr std::array<std::string_view, 2> kNehalemErrata = {"AAJ74", "AAJ75"};
// 2nd Generation Intel Core Processor Family, Desktop, BJ.
inline constexpr std::array<std::string_view, 6> kSandyBridgeErrata = {"BJ58",  "BJ92",  "BJ97",
                                                                       "BJ101", "BJ103", "BJ106"};
// 3rd Generation Intel Core Processor Family, Desktop, BV.
inline constexpr std::array<std::string_view, 2> kIvyBridgeErrata = {"BV51", "BV85"};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_ERRATA_IDS_H_
