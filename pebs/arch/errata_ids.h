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

// Intel Core 2, by the documents for Xeon 3000 (AR) and Xeon 5100 (AG).
inline constexpr std::array<std::string_view, 3> kCore2Errata = {"AG69", "AR63", "AR64"};
// 4th Generation Intel Core Processor Family, Desktop, HSD.
inline constexpr std::array<std::string_view, 5> kHaswellErrata = {"HSD91", "HSD110", "HSD159",
                                                                   "HSD169", "HSD171"};
// 5th Generation Intel Core Processor Family, BDD, and the mobile parts, BDM.
inline constexpr std::array<std::string_view, 5> kBroadwellErrata = {"BDD38", "BDD102", "BDD113",
                                                                     "BDD116", "BDM55"};
// 6th Generation Intel Core Processor Family, SKL.
inline constexpr std::array<std::string_view, 2> kSkylakeErrata = {"SKL104", "SKL128"};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_ERRATA_IDS_H_
