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
bool asserts_cmask(const Microarch& m) {
  return m.expectation(arch::kQualifierCmask) == arch::Expectation::kMustHold;
}

size_t slot(Gpr reg) { return static_cast<size_t>(reg); }

// clang-format off
const Defect kDefects[] = {
    // Skid.
    {"skid-one-too-many", "the recorded IP lies two instructions after the eventing one", Promise::kSkid, &clause::R12, nullptr,
     [](Behaviour& b) { b.skid_instructions = 2; }},
    {"skid-none", "the recorded IP is the eventing instruction itself, as if fault-like", Promise::kSkid, &clause::R5, nullptr,
     [](Behaviour& b) { b.skid_instructions = 0; }},
    {"skid-now-and-then", "one record in 32 lies one instruction too far", Promise::kSkid, &clause::R12, nullptr,
     [](Behaviour& b) { b.skid_jitter = 32; }},
    {"skid-fused-three", "after a micro+macro-fused pair the IP lies three instructions on", Promise::kSkid, &clause::R12, fuses_over_two,
     [](Behaviour& b) { b.fused_extra_skid = 1; }},
    {"skid-fused-two", "a fused pair is recorded two instructions on where the table publishes one", Promise::kSkid, &clause::R12,
     [](const Microarch& m) { return !fuses_over_two(m); },
     [](Behaviour& b) { b.fused_pair_skid = 2; }},
    {"skid-taken-falls-through", "after a taken branch the IP is the fall-through, not the target", Promise::kSkid, &clause::R9, nullptr,
     [](Behaviour& b) { b.taken_branch_ip_is_target = false; }},

    // PDIR.
    {"pdir-on-pmc0", "PMC0 gives the precise distribution too", Promise::kPdir, &clause::P5, has_pdir,
     [](Behaviour& b) { b.pdir_counters |= 1; }},
    {"pdir-on-every-counter", "PMC0 to PMC3 all give the precise distribution", Promise::kPdir, &clause::P5, has_pdir,
     [](Behaviour& b) { b.pdir_counters = 0x0F; }},
    {"pdir-on-pmc3-instead", "PMC3 gives the precise distribution, PMC1 does not", Promise::kPdir, &clause::P5, has_pdir,
     [](Behaviour& b) { b.pdir_counters = 0x08; }},
    {"pdir-absent", "PREC_DIST on PMC1 is sampled like any other event", Promise::kPdir, &clause::R13, has_pdir,
     [](Behaviour& b) { b.pdir_counters = 0; }},

    // Precise store.
    {"precise-store-on-pmc0", "PMC0 records precise stores too", Promise::kPreciseStore, &clause::P7, has_precise_store,
     [](Behaviour& b) { b.precise_store_counters |= 1; }},
    {"precise-store-on-any-counter", "PMC0 to PMC3 all record precise stores", Promise::kPreciseStore, &clause::P7, has_precise_store,
     [](Behaviour& b) { b.precise_store_counters = 0x0F; }},
    {"precise-store-without-ps-en", "PS_EN is ignored", Promise::kPreciseStore, &clause::P8, has_precise_store,
     [](Behaviour& b) { b.precise_store_needs_enable = false; }},
    {"precise-store-previous-address", "the record holds the address of the store before", Promise::kPreciseStore, &clause::R10, has_precise_store,
     [](Behaviour& b) { b.precise_store_lag = -1; }},
    {"precise-store-no-address", "the data linear address is zero", Promise::kPreciseStore, &clause::P9, has_precise_store,
     [](Behaviour& b) { b.precise_store_address = false; }},
    {"precise-store-no-status", "the store status is always zero", Promise::kPreciseStore, &clause::P9, has_precise_store,
     [](Behaviour& b) { b.precise_store_status = false; }},
    {"precise-store-status-inverted", "the L1D hit bit says the opposite", Promise::kPreciseStore, &clause::P9, has_precise_store,
     [](Behaviour& b) { b.precise_store_status_inverted = true; }},
    {"precise-store-latency", "A8H holds a latency instead of zero", Promise::kPreciseStore, &clause::P9, has_precise_store,
     [](Behaviour& b) { b.precise_store_zero_latency = false; }},

    // Counter reset.
    {"reset-next-slot", "counter n is loaded from slot n+1", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload_slot_offset = 1; }},
    {"reset-to-zero", "the counter is loaded with zero", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload_zero = true; }},
    {"reset-never", "the counter is not reloaded", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload = Reload::kNone; }},
    {"reset-only-once", "the counter is reloaded after the first record only", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload = Reload::kOnlyOnce; }},
    {"reset-off-by-one", "the counter is loaded with one more than its slot holds", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload_bias = 1; }},
    {"reset-every-enabled-counter", "PEBS counters that did not overflow are reloaded too", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload = Reload::kEnabled; }},
    {"reset-counters-without-pebs", "overflowed counters without PEBS are reloaded too", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload = Reload::kAnyOverflowed; }},
    {"reset-lowest-only", "of several overflowed counters only the lowest is reloaded", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload = Reload::kLowestOnly; }},
    {"reset-32-bits", "only 32 bits of the slot are used", Promise::kReset, &clause::R19, nullptr,
     [](Behaviour& b) { b.reload_truncates_32 = true; }},

    // Threshold.
    {"pmi-one-record-early", "the threshold interrupt comes one record early", Promise::kThreshold, &clause::R44, nullptr,
     [](Behaviour& b) { b.threshold = ThresholdTest::kOneEarly; }},
    {"pmi-one-record-late", "the threshold is compared before the index moves: one record late", Promise::kThreshold, &clause::R44, nullptr,
     [](Behaviour& b) { b.threshold = ThresholdTest::kBeforeUpdate; }},
    {"pmi-never", "the threshold raises no interrupt", Promise::kThreshold, &clause::R44, nullptr,
     [](Behaviour& b) { b.threshold = ThresholdTest::kNever; }},
    {"pmi-every-record", "each record raises an interrupt", Promise::kThreshold, &clause::R44, nullptr,
     [](Behaviour& b) { b.threshold = ThresholdTest::kEveryRecord; }},
    {"pmi-when-full", "the interrupt comes with the full buffer, not with the threshold", Promise::kThreshold, &clause::R44, nullptr,
     [](Behaviour& b) { b.threshold = ThresholdTest::kWhenFull; }},
    {"pmi-full-without-threshold", "a full buffer interrupts although the threshold lies past the maximum", Promise::kThreshold, &clause::R50, nullptr,
     [](Behaviour& b) { b.full_interrupts = true; }},
    {"ovf-buffer-not-set", "the threshold does not set OvfBuffer", Promise::kThreshold, &clause::R21, nullptr,
     [](Behaviour& b) { b.threshold_sets_ovf_buffer = false; b.full_sets_ovf_buffer = false; }},
    {"ovf-buffer-clears-itself", "OvfBuffer goes with the next record", Promise::kThreshold, &clause::R22, nullptr,
     [](Behaviour& b) { b.ovf_buffer_sticky = false; b.threshold = ThresholdTest::kAfterUpdate; }},
    {"ovf-buffer-not-clearable", "OVF_CTRL does not clear OvfBuffer", Promise::kThreshold, &clause::R22, nullptr,
     [](Behaviour& b) { b.ovf_buffer_clears = false; }},
    {"pmi-ignores-lvt-mask", "a masked LVT entry delivers all the same", Promise::kThreshold, &clause::R51, nullptr,
     [](Behaviour& b) { b.lvt_mask_honoured = false; }},
    {"pmi-leaves-lvt-unmasked", "delivery does not mask the LVT entry", Promise::kThreshold, &clause::R51, nullptr,
     [](Behaviour& b) { b.delivery_masks_lvt = false; }},
    {"pmi-for-each-pebs-overflow", "PEBS overflows interrupt although INT is clear", Promise::kThreshold, &clause::R35, nullptr,
     [](Behaviour& b) { b.pebs_overflow_interrupts = true; }},
    {"freeze-absent", "FREEZE_PERFMON_ON_PMI does not clear GLOBAL_CTRL", Promise::kThreshold, &clause::R52, nullptr,
     [](Behaviour& b) { b.freeze_clears_global_ctrl = false; }},
    {"freeze-always", "every PMI clears GLOBAL_CTRL", Promise::kThreshold, &clause::R52, nullptr,
     [](Behaviour& b) { b.freeze_always = true; }},

    // Qualifiers.
    {"any-thread-ignored", "a PEBS counter with AnyThread still records", Promise::kQualifiers, &clause::R33, nullptr,
     [](Behaviour& b) { b.ignored_qualifiers = arch::kQualifierAnyThread; }},
    {"edge-ignored", "a PEBS counter with Edge still records", Promise::kQualifiers, &clause::R33, nullptr,
     [](Behaviour& b) { b.ignored_qualifiers = arch::kQualifierEdge; }},
    {"invert-ignored", "a PEBS counter with Invert still records", Promise::kQualifiers, &clause::R33, nullptr,
     [](Behaviour& b) { b.ignored_qualifiers = arch::kQualifierInvert; }},
    {"cmask-ignored", "a PEBS counter with CMask still records", Promise::kQualifiers, &clause::R33, asserts_cmask,
     [](Behaviour& b) { b.ignored_qualifiers = arch::kQualifierCmask; }},
    {"qualifiers-ignored", "no qualifier invalidates PEBS", Promise::kQualifiers, &clause::R33, nullptr,
     [](Behaviour& b) { b.ignored_qualifiers = 0xF; }},

    // The ground: arming and triggering.
    {"record-on-overflow", "the record belongs to event N instead of N+1", Promise::kGround, &clause::R2, nullptr,
     [](Behaviour& b) { b.record_on_overflow = true; }},
    {"record-one-event-late", "the record belongs to event N+2", Promise::kGround, &clause::R2, nullptr,
     [](Behaviour& b) { b.extra_events = 1; }},
    {"record-without-event", "after the overflow the next instruction is recorded, whatever it is", Promise::kGround, &clause::R3, nullptr,
     [](Behaviour& b) { b.record_without_event = true; }},
    {"pebs-without-enable", "records although PEBS_EN_PMCn is clear", Promise::kGround, &clause::R19, nullptr,
     [](Behaviour& b) { b.pebs_without_enable = true; }},
    {"pebs-on-pmc4", "PEBS_ENABLE takes bit 4, and PMC4 records", Promise::kGround, &clause::R36, coalesces,
     [](Behaviour& b) { b.pebs_counters |= 0x10; }},

    // The ground: record contents.
    {"record-swaps-rbx-rcx", "RBX and RCX change places", Promise::kGround, &clause::P3, nullptr,
     [](Behaviour& b) { std::swap(b.gpr_source[slot(Gpr::kRbx)], b.gpr_source[slot(Gpr::kRcx)]); }},
    {"record-r8-in-r15", "R15's slot holds R8", Promise::kGround, &clause::P3, nullptr,
     [](Behaviour& b) { b.gpr_source[slot(Gpr::kR15)] = static_cast<uint8_t>(Gpr::kR8); }},
    {"record-without-flags", "the flags are zero", Promise::kGround, &clause::P3, nullptr,
     [](Behaviour& b) { b.flags_recorded = false; }},
    {"record-registers-before", "the registers are those before the instruction", Promise::kGround, &clause::R5, nullptr,
     [](Behaviour& b) { b.registers_after = false; }},
    {"record-status-after-assist", "the status is taken after the assist", Promise::kGround, &clause::R16, nullptr,
     [](Behaviour& b) { b.status_before_assist = false; }},
    {"record-status-pebs-only", "the status shows PEBS-enabled counters only", Promise::kGround, &clause::R16, nullptr,
     [](Behaviour& b) { b.status_all_counters = false; }},

    // The ground: index and maximum.
    {"index-stands-still", "the index is not advanced", Promise::kGround, &clause::D2, nullptr,
     [](Behaviour& b) { b.index_updates = false; }},
    {"index-steps-too-far", "the index advances by eight bytes too many", Promise::kGround, &clause::D2, nullptr,
     [](Behaviour& b) { b.index_step = 8; }},
    {"writes-past-maximum", "the maximum is not checked", Promise::kGround, &clause::R48, nullptr,
     [](Behaviour& b) { b.bounds = Bounds::kNone; }},
    {"last-record-hangs-over", "a record that begins below the maximum may end past it", Promise::kGround, &clause::R48, nullptr,
     [](Behaviour& b) { b.bounds = Bounds::kIndexAtMaximum; }},
    {"buffer-wraps", "a full buffer starts again at its base", Promise::kGround, &clause::R47a, nullptr,
     [](Behaviour& b) { b.wraps_when_full = true; }},
    {"skip-reloads", "a skipped event reloads its counter", Promise::kGround, &clause::D10, skips_entirely,
     [](Behaviour& b) { b.skip_reloads = true; }},
    {"skip-clears-status", "a skipped event clears its status bit", Promise::kGround, &clause::R46, skips_entirely,
     [](Behaviour& b) { b.skip_clears_status = true; }},
    {"rewind-does-not-resume", "after a full buffer a rewound index records nothing more", Promise::kGround, &clause::R49, nullptr,
     [](Behaviour& b) { b.resumes_after_rewind = false; }},

    // The ground: counters and their MSRs.
    {"write-no-sign-extension", "a legacy counter write is zero-extended", Promise::kGround, &clause::M6, nullptr,
     [](Behaviour& b) { b.legacy_write_sign_extends = false; }},
    {"write-takes-edx", "a legacy counter write takes EDX", Promise::kGround, &clause::M6, nullptr,
     [](Behaviour& b) { b.legacy_write_takes_edx = true; }},
    {"full-width-32-bits", "a full-width write takes 32 bits", Promise::kGround, &clause::M7, has_full_width,
     [](Behaviour& b) { b.full_width_bits = 32; }},
    {"full-width-excess-accepted", "bits above the counter's width are accepted", Promise::kGround, &clause::M8, has_full_width,
     [](Behaviour& b) { b.excess_bits_fault = false; }},
    {"reserved-bits-accepted", "reserved bits of control registers are accepted", Promise::kGround, &clause::M12, nullptr,
     [](Behaviour& b) { b.reserved_bits_fault = false; }},
    {"absent-counters-answer", "PMC4 to PMC7 answer although CPUID reports four counters", Promise::kGround, &clause::M10, coalesces,
     [](Behaviour& b) { b.absent_counters_fault = false; }},
    {"absent-global-bits-accepted", "bits 7:4 of GLOBAL_CTRL and OVF_CTRL are accepted with four counters", Promise::kGround, &clause::M11, coalesces,
     [](Behaviour& b) { b.absent_global_bits_fault = false; }},
    {"status-writable", "GLOBAL_STATUS can be written", Promise::kGround, &clause::M14, nullptr,
     [](Behaviour& b) { b.status_write_faults = false; }},
    {"upper-counters-absent", "CPUID reports eight counters, PMC4 to PMC7 do not answer", Promise::kGround, &clause::R37, coalesces,
     [](Behaviour& b) { b.answering_counters = 4; }},
    {"upper-counters-stand-still", "PMC4 to PMC7 do not count", Promise::kGround, &clause::M1, coalesces,
     [](Behaviour& b) { b.running_counters = 4; }},
    {"fixed-counter-absent", "CPUID reports three fixed counters, the last does not answer", Promise::kGround, &clause::M3, nullptr,
     [](Behaviour& b) { b.answering_fixed = 2; }},
    {"fixed-counters-swapped", "fixed counter 0 counts cycles, fixed counter 1 instructions", Promise::kGround, &clause::M18, nullptr,
     [](Behaviour& b) { b.fixed_counters_swapped = true; }},
    {"capabilities-say-fault-like", "IA32_PERF_CAPABILITIES announces fault-like PEBS", Promise::kGround, &clause::M5, nullptr,
     [](Behaviour& b) { b.hidden_capabilities = arch::capabilities::kPebsTrap; }},
    {"pebs-announced-unavailable", "IA32_MISC_ENABLE says that there is no PEBS", Promise::kGround, &clause::M25, nullptr,
     [](Behaviour& b) { b.pebs_announced = false; }},
    {"lvt-status-writable", "the delivery status of the LVT entry can be written", Promise::kGround, &clause::M26, nullptr,
     [](Behaviour& b) { b.lvt_status_read_only = false; }},
    {"counts-lose-events", "a general-purpose counter misses one event in sixteen", Promise::kGround, &clause::M13, nullptr,
     [](Behaviour& b) { b.lost_events = 16; }},
    {"privilege-ignored", "USR and OS do not filter", Promise::kGround, &clause::M27, nullptr,
     [](Behaviour& b) { b.privilege_filters = false; }},
    {"global-ctrl-ignored", "counters count without their GLOBAL_CTRL bit", Promise::kGround, &clause::M13, nullptr,
     [](Behaviour& b) { b.enable_needs_global = false; }},
    {"interrupt-absent", "an overflow with INT raises no interrupt", Promise::kGround, &clause::M30, nullptr,
     [](Behaviour& b) { b.overflow_interrupts = false; }},

    // The ground: status.
    {"status-not-set", "an overflow does not set its status bit", Promise::kGround, &clause::R4, nullptr,
     [](Behaviour& b) { b.overflow_sets_status = false; }},
    {"status-survives-record", "a record does not clear the status bit", Promise::kGround, &clause::R17, nullptr,
     [](Behaviour& b) { b.record_clears_status = false; }},
    {"record-clears-every-status", "a record clears the status of counters without PEBS too", Promise::kGround, &clause::R17, nullptr,
     [](Behaviour& b) { b.record_clears_all_status = true; }},
    {"ovf-ctrl-clears-nothing", "OVF_CTRL clears nothing", Promise::kGround, &clause::M15, nullptr,
     [](Behaviour& b) { b.ovf_ctrl_clears = false; }},
    {"ovf-ctrl-clears-everything", "any write to OVF_CTRL clears every bit", Promise::kGround, &clause::M15, nullptr,
     [](Behaviour& b) { b.ovf_ctrl_clears_all = true; }},

    // The ground: load latency.
    {"load-latency-threshold-ignored", "loads below the threshold are recorded", Promise::kGround, &clause::P11, nullptr,
     [](Behaviour& b) { b.load_latency_threshold = false; }},
    {"load-latency-no-source", "the data source is zero", Promise::kGround, &clause::P12, nullptr,
     [](Behaviour& b) { b.load_latency_source = false; }},
};
// clang-format on

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
