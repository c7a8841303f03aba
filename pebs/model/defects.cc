#include "pebs/model/defects.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "pebs/arch/msr.h"
#include "pebs/arch/near_match.h"

namespace skidproof::model {
namespace {

using arch::Gpr;
using arch::Microarch;

bool has_pdir(const Microarch& m) { return m.pdir_counter != 0; }
bool has_precise_store(const Microarch& m) { return m.precise_store_counter != 0; }
bool fuses_over_two(const Microarch& m) { return m.fused_pair_skid > 1; }
bool has_full_width(const Microarch& m) { return m.full_width_writes; }
// Rows that follow SDM 18.9.1: an event without room is skipped entirely (D10). Nehalem's text says
// only that nothing is written.
bool skips_entirely(const Microarch& m) { return m.full_buffer_sets_ovf; }
bool coalesces(const Microarch& m) { return m.gp_counters_alone > m.gp_counters; }
bool freezes_in_smm(const Microarch& m) { return m.smm_freeze; }
bool filters_branches(const Microarch& m) { return m.branch_trace.cpl_qualified; }
bool tells_predicted(const Microarch& m) { return m.branch_trace.predicted; }
bool has_wide_branches(const Microarch& m) { return m.branch_trace.record->bytes == 24; }
bool asserts_cmask(const Microarch& m) {
  return m.expectation(arch::kQualifierCmask) == arch::Expectation::kMustHold;
}

size_t slot(Gpr reg) { return static_cast<size_t>(reg); }

const Defect kDefects[] = {
#include "pebs/model/defects_bts.inc"
#include "pebs/model/defects_modes.inc"
#include "pebs/model/defects_promises.inc"
#include "pebs/model/defects_records.inc"
#include "pebs/model/defects_registers.inc"
};

}  // namespace

std::string_view name_of(Promise promise) {
  switch (promise) {
    case Promise::kSkid:
      return "skid";
    case Promise::kPdir:
      return "PDIR";
    case Promise::kPreciseStore:
      return "precise store";
    case Promise::kReset:
      return "counter reset";
    case Promise::kThreshold:
      return "threshold interrupt";
    case Promise::kQualifiers:
      return "qualifiers";
    case Promise::kBranchTrace:
      return "branch trace store";
    case Promise::kModes:
      return "modes";
    case Promise::kGround:
      return "ground";
  }
  return "";
}

std::span<const Defect> defects() { return kDefects; }

Expected<const Defect*> find_defect(std::string_view id) {
  std::vector<std::string_view> known;
  for (const Defect& d : kDefects) {
    if (d.id == id) return &d;
    known.push_back(d.id);
  }
  std::vector<std::string> near = arch::near_matches(id, known, 3);
  std::string advice = "`skidproof list defects` shows them all";
  if (!near.empty()) advice = fmt::format("did you mean {}? {}", fmt::join(near, ", "), advice);
  return fail(ErrorCode::kInvalidArgument, fmt::format("there is no defect named '{}'", id),
              advice);
}

}  // namespace skidproof::model
