// The affected parts by the documents that list an erratum, and the table.
//
// Which document is whose: W, AG, AJ, AR of 06_0FH; AAJ, AAK of 06_1AH, AAP of 06_1EH; AAT of 06_25H, BD
// of 06_2CH; BJ, BK of 06_2AH; BV, BU of 06_3AH; HSD of 06_3CH, HSM of 06_3CH, 45H and 46H; BDM of 06_3DH
// and 47H, BDD of 06_47H; SKL of 06_4EH and 5EH, KBL of 06_8EH and 9EH, CML of 06_A5H and A6H. Server
// parts have documents of their own, of which only what Linux works around is known here.
//
// Sources: an index of the specification updates (RemembERR's parse of them, client parts to 2022),
// Linux 6.12 arch/x86/events/intel/core.c, the Errata fields of intel/perfmon.
#include "pebs/arch/errata.h"

#include <algorithm>

namespace skidproof::arch {
namespace {

constexpr AffectedParts kConroe[] = {{.model = 0x0F}};
constexpr AffectedParts kBloomfield[] = {{.model = 0x1A}};
// Linux 6.12 core.c intel_pmu_nhm_workaround: AAK100, AAP53, BD53.
constexpr AffectedParts kMagicSelects[] = {{.model = 0x1A}, {.model = 0x1E}, {.model = 0x2C}};
// Linux 6.12 p4.c writes every counter twice on all of them.
constexpr AffectedParts kNetBurst[] = {
    {.family = 15, .model = 3}, {.family = 15, .model = 4}, {.family = 15, .model = 6}};
constexpr AffectedParts kNehalemAndWestmereClient[] = {{.model = 0x1A}, {.model = 0x25}};
constexpr AffectedParts kNehalemToIvyBridgeClient[] = {
    {.model = 0x1A}, {.model = 0x25}, {.model = 0x2A}, {.model = 0x3A}};
constexpr AffectedParts kNehalemWestmereAndIvyBridgeClient[] = {
    {.model = 0x1A}, {.model = 0x25}, {.model = 0x3A}};
constexpr AffectedParts kAfterSmm[] = {{.model = 0x1A}, {.model = 0x25}, {.model = 0x2C},
                                       {.model = 0x2A}, {.model = 0x3C}, {.model = 0x45},
                                       {.model = 0x46}, {.model = 0x3D}, {.model = 0x47}};
constexpr AffectedParts kSandyBridgeClient[] = {{.model = 0x2A}};
constexpr AffectedParts kIvyBridgeClient[] = {{.model = 0x3A}};
constexpr AffectedParts kSandyAndIvyBridgeClient[] = {{.model = 0x2A}, {.model = 0x3A}};
// By the documents the client parts; Linux' hsw_limit_period and bdw_limit_period serve the servers too.
constexpr AffectedParts kPdirBelow100[] = {{.model = 0x2A}, {.model = 0x3C}, {.model = 0x3F},
                                           {.model = 0x45}, {.model = 0x46}, {.model = 0x3D},
                                           {.model = 0x47}, {.model = 0x4F}, {.model = 0x56}};
// Linux 6.12 core.c intel_ht_bug: BJ122, BV98, HSD29, and the servers of the three generations.
constexpr AffectedParts kSiblingLeak[] = {{.model = 0x2A}, {.model = 0x2D}, {.model = 0x3A},
                                          {.model = 0x3E}, {.model = 0x3C}, {.model = 0x3F},
                                          {.model = 0x45}, {.model = 0x46}};
constexpr AffectedParts kHaswellClient[] = {{.model = 0x3C}, {.model = 0x45}, {.model = 0x46}};
constexpr AffectedParts kBroadwellClient[] = {{.model = 0x3D}, {.model = 0x47}};
constexpr AffectedParts kHaswellAndBroadwellClient[] = {
    {.model = 0x3C}, {.model = 0x45}, {.model = 0x46}, {.model = 0x3D}, {.model = 0x47}};
// Linux 6.12 core.c bdw_limit_period: every Broadwell.
constexpr AffectedParts kBroadwell[] = {
    {.model = 0x3D}, {.model = 0x47}, {.model = 0x4F}, {.model = 0x56}};
constexpr AffectedParts kSkylakeClient[] = {{.model = 0x4E}, {.model = 0x5E}};
constexpr AffectedParts kBroadwellAndSkylakeClient[] = {
    {.model = 0x3D}, {.model = 0x47}, {.model = 0x4E}, {.model = 0x5E}};
// A stepping for which Linux 6.12 core.c isolation_ucodes has a revision is mended from it on.
constexpr AffectedParts kRecordAfterDisable[] = {
    {.model = 0x3C, .last_stepping = 2},
    {.model = 0x3C, .first_stepping = 3, .last_stepping = 3, .fixed_from = 0x1F},
    {.model = 0x3C, .first_stepping = 4},
    {.model = 0x45, .last_stepping = 0},
    {.model = 0x45, .first_stepping = 1, .last_stepping = 1, .fixed_from = 0x1E},
    {.model = 0x45, .first_stepping = 2},
    {.model = 0x46, .last_stepping = 0},
    {.model = 0x46, .first_stepping = 1, .last_stepping = 1, .fixed_from = 0x15},
    {.model = 0x46, .first_stepping = 2},
    {.model = 0x3D, .last_stepping = 3},
    {.model = 0x3D, .first_stepping = 4, .last_stepping = 4, .fixed_from = 0x23},
    {.model = 0x3D, .first_stepping = 5},
    {.model = 0x47, .last_stepping = 0},
    {.model = 0x47, .first_stepping = 1, .last_stepping = 1, .fixed_from = 0x14},
    {.model = 0x47, .first_stepping = 2},
    {.model = 0x4E, .last_stepping = 2},
    {.model = 0x4E, .first_stepping = 3, .last_stepping = 3, .fixed_from = 0x7C},
    {.model = 0x4E, .first_stepping = 4},
    {.model = 0x5E, .last_stepping = 2},
    {.model = 0x5E, .first_stepping = 3, .last_stepping = 3, .fixed_from = 0x7C},
    {.model = 0x5E, .first_stepping = 4}};
constexpr AffectedParts kHaswellToCometLakeClient[] = {
    {.model = 0x3C}, {.model = 0x45}, {.model = 0x46}, {.model = 0x3D},
    {.model = 0x47}, {.model = 0x4E}, {.model = 0x5E}, {.model = 0x8E},
    {.model = 0x9E}, {.model = 0xA5}, {.model = 0xA6}};
constexpr AffectedParts kWrongAtNotTaken[] = {{.model = 0x3D}, {.model = 0x47}, {.model = 0x4E},
                                              {.model = 0x5E}, {.model = 0x8E}, {.model = 0x9E},
                                              {.model = 0xA5}, {.model = 0xA6}};
constexpr AffectedParts kSkylakeToCometLakeClient[] = {{.model = 0x4E}, {.model = 0x5E},
                                                       {.model = 0x8E}, {.model = 0x9E},
                                                       {.model = 0xA5}, {.model = 0xA6}};
constexpr AffectedParts kLoadLatencyWithSibling[] = {
    {.model = 0x3C}, {.model = 0x45}, {.model = 0x46}, {.model = 0x8E},
    {.model = 0x9E}, {.model = 0xA5}, {.model = 0xA6}};

constexpr Erratum kErrata[] = {
#include "pebs/arch/errata_tests.inc"
};

const AffectedParts* parts_of(const Erratum& erratum, const Part& part) {
  const auto found = std::find_if(erratum.parts.begin(), erratum.parts.end(),
                                  [&](const AffectedParts& parts) { return parts.covers(part); });
  return found == erratum.parts.end() ? nullptr : &*found;
}

}  // namespace

bool Erratum::listed_for(const Part& part) const {
  const AffectedParts* affected = parts_of(*this, part);
  if (affected == nullptr) return false;
  return affected->fixed_from == 0 || part.microcode == 0 || part.microcode < affected->fixed_from;
}

bool Erratum::microcode_matters(const Part& part) const {
  const AffectedParts* affected = parts_of(*this, part);
  return affected != nullptr && affected->fixed_from != 0;
}

std::span<const Erratum> errata() { return kErrata; }

const Erratum* find_erratum(std::string_view id) {
  for (const Erratum& erratum : kErrata) {
    if (erratum.id == id) return &erratum;
  }
  return nullptr;
}

}  // namespace skidproof::arch
