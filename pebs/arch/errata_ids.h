// Which published errata of PEBS and of counting concern a row, by the IDs of the specification
// updates for its parts. An erratum of counting that several updates list stands under one of its
// numbers in every row.
//
// Source: an index of the specification updates (RemembERR's parse of them, client parts to 2022),
// Linux 6.12 arch/x86/events/intel/core.c, and the Errata fields of intel/perfmon. Only what the
// model can express stands here: see pebs/model/defects_errata.inc and defects_pmu_errata.inc, which
// say in words what each does.
#ifndef SKIDPROOF_PEBS_ARCH_ERRATA_IDS_H_
#define SKIDPROOF_PEBS_ARCH_ERRATA_IDS_H_

#include <array>
#include <string_view>

namespace skidproof::arch {

// NetBurst.
inline constexpr std::array<std::string_view, 1> kNetBurstErrata = {"N15"};
// Core 2, by the documents for Xeon 3000 (AR), Xeon 5100 (AG) and the class (W).
inline constexpr std::array<std::string_view, 6> kCore2Errata = {"AG69", "AR62", "AR63",
                                                                 "AR64", "W145", "W146"};
// Intel Core i7-900 Desktop Processor, AAJ. AAK100 is the Xeon's number of what Linux works around
// on every Nehalem; BD41 as AAJ73, BU10 as AAJ12.
inline constexpr std::array<std::string_view, 12> kNehalemErrata = {
    "AAJ74", "AAJ75",  "AAJ80",  "AAK100", "BD41",   "AAJ79",
    "AAJ86", "AAJ125", "AAJ128", "AAJ148", "AAJ143", "BU10"};
// Intel Core i5-600, i3-500 and their mobile parts, AAT: AAJ86 as AAT38, AAJ125 as AAT60, AAJ128 as AAT64, AAJ143 as AAT107, AAJ148 as
// AAT112, BU10 as AAT8; Intel Xeon 5600, BD.
inline constexpr std::array<std::string_view, 7> kWestmereErrata = {
    "BD41", "AAJ86", "AAJ125", "AAJ128", "AAJ148", "AAJ143", "BU10"};
// 2nd Generation Intel Core Processor Family, Desktop, BJ; BD41 as BJ13, AAJ128 as BJ28, AAJ148 as
// BJ74 and BJ109.
inline constexpr std::array<std::string_view, 14> kSandyBridgeErrata = {
    "BJ58",  "BJ91",  "BJ92", "BJ97",   "BJ101",  "BJ103", "BJ106",
    "BJ122", "BJ136", "BD41", "AAJ128", "AAJ148", "BJ77",  "BU10"};
// 3rd Generation Intel Core Processor Family, Desktop, BV, and mobile, BU; BJ122 as BV98, BJ136 as
// BV112, BJ77 as BV35, AAJ125 as BV43, AAJ128 as BV16, AAJ148 as BV72.
inline constexpr std::array<std::string_view, 11> kIvyBridgeErrata = {
    "BV51",   "BV85",   "BJ122", "BJ136", "BU10",  "AAJ125",
    "AAJ128", "AAJ148", "BJ77",  "BV80",  "AAJ143"};
// 4th Generation Intel Core Processor Family, Desktop, HSD; BJ122 as HSD29, BD41 as HSD8.
inline constexpr std::array<std::string_view, 14> kHaswellErrata = {
    "HSD73",  "HSD91",  "HSD110", "HSD140", "HSD143", "HSD159", "HSD167",
    "HSD169", "HSD171", "BJ122",  "BD41",   "HSD52",  "HSD76",  "HSD25"};
// 5th Generation Intel Core Processor Family, BDD, and the mobile parts, BDM; HSD91 as BDM38, HSD167 as BDD111, HSD140 as BDM61, SKL117
// as BDM120, BD41 as BDM8, HSD76 as BDM35.
inline constexpr std::array<std::string_view, 14> kBroadwellErrata = {
    "BDD102", "BDD113", "BDM50",  "BDM55", "BDM62",  "BDM126", "HSD91",
    "HSD140", "HSD167", "SKL117", "BD41",  "BDM130", "HSD76",  "BDM124"};
// 6th Generation Intel Processor Family, SKL; BDM50 as SKL18, HSD167 as SKL120, BDM130 as SKL161.
inline constexpr std::array<std::string_view, 12> kSkylakeErrata = {
    "SKL44",  "SKL90",  "SKL104", "SKL117", "SKL128", "BDM50",
    "HSD167", "HSD171", "BDM130", "SKL51",  "SKL88",  "SKL164"};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_ERRATA_IDS_H_
