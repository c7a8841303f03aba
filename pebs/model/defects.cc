#include "pebs/model/defects.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pebs/arch/enumeration.h"
#include "pebs/arch/errata.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/near_match.h"
#include "pebs/arch/reserved.h"

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
bool samples_below_64(const Microarch& m) {
  return m.architectural_perfmon() && m.minimum_period < 64;
}
bool has_load_latency(const Microarch& m) { return m.load_latency_counters != 0; }
bool has_load_latency_enable(const Microarch& m) {
  return has_load_latency(m) && m.load_latency_enable != 0;
}
// Rows whose load latency event excludes every other PEBS event (R32).
bool load_latency_alone(const Microarch& m) {
  for (const arch::Event& e : m.events) {
    if (e.kind == arch::EventKind::kLoadLatency && e.taken_alone) return true;
  }
  return false;
}
bool has_four_pebs_counters(const Microarch& m) { return m.pebs_counters == 0x0F; }
bool has_several_slots(const Microarch& m) {
  return m.ds.resets > 1 &&
         (m.pebs_fixed_counters != 0 || (m.pebs_counters & (m.pebs_counters - 1)) != 0);
}
bool reaches_beyond(const Microarch& m) {
  return m.architectural_perfmon() && !m.threshold_by_equality;
}
bool coalesces(const Microarch& m) { return m.gp_counters_alone > m.gp_counters; }
bool everywhere(const Microarch&) { return true; }
bool has_tos(const Microarch& m) { return m.last_branches.tos != 0; }
bool filters_branches(const Microarch& m) { return m.branch_trace.cpl_qualified; }
bool tells_predicted(const Microarch& m) { return m.branch_trace.predicted; }
// Whether DS area and branch records are the same in every mode.
bool has_dtes64(const Microarch& m) { return m.dtes64; }
bool has_two_layouts(const Microarch& m) { return !m.dtes64; }
// A branch can be the sampled event.
bool samples_branches(const Microarch& m) {
  return std::any_of(m.events.begin(), m.events.end(), [](const arch::Event& e) {
    return e.signal == arch::Signal::kConditional && e.precise() && (e.pebs_counters & 1) != 0;
  });
}
// Counts all of these signals on IA32_PMC0, each by an event without qualifiers.
template <arch::Signal... kWanted>
bool counts(const Microarch& m) {
  auto one = [&](arch::Signal signal) {
    return std::any_of(m.events.begin(), m.events.end(), [&](const arch::Event& e) {
      return e.signal == signal && e.cmask == 0 && !e.invert && (e.counters & 1) != 0 &&
             e.kind <= arch::EventKind::kPebsOnly;
    });
  };
  return m.architectural_perfmon() && (one(kWanted) && ...);
}
// … and is stored besides: NetBurst samples those that are mispredicted.
bool samples_stored_branches(const Microarch& m) {
  return samples_branches(m) || !m.architectural_perfmon();
}
// R33 is asserted of these qualifiers together.
template <unsigned kQualifiers>
bool asserts(const Microarch& m) {
  return m.architectural_perfmon() && m.expectation(kQualifiers) == arch::Expectation::kMustHold;
}

bool is_netburst(const Microarch& m) { return !m.architectural_perfmon(); }
bool any_thread_counts_both(const Microarch& m) { return m.any_thread && m.hyper_threading; }
bool any_thread_exists(const Microarch& m) { return m.any_thread; }
bool asserts_any_thread(const Microarch& m) {
  return m.any_thread && asserts<arch::kQualifierAnyThread>(m);
}
bool reserves_any_thread(const Microarch& m) { return m.reserves_any_thread(); }
bool deprecates_any_thread(const Microarch& m) { return m.deprecates_any_thread(); }
bool has_uncore_status(const Microarch& m) {
  return (arch::status_bits(m, m.gp_counters) & arch::status::kOvfUncore) != 0;
}
bool has_smm_freeze(const Microarch& m) { return m.smm_freeze; }
bool takes_latency_threshold(const Microarch& m) { return m.load_latency_event != 0; }
bool has_eight(const Microarch& m) { return m.architectural_perfmon() && m.gp_counters_alone > 4; }
bool has_upper_aliases(const Microarch& m) { return has_eight(m) && m.full_width_writes; }
bool counts_fused_pairs(const Microarch& m) {
  return std::any_of(m.events.begin(), m.events.end(),
                     [](const arch::Event& e) { return e.signal == arch::Signal::kMacroFused; });
}

bool fuses_something(const Microarch& m) {
  using arch::Condition;
  return m.fusion.fuses(arch::FusionFirst::kTest, Condition::kE, false, false, false);
}
bool fuses_cmp_signed(const Microarch& m) {
  return fuses_something(m) && (m.fusion.cmp & arch::internal::kSigned) != 0;
}
bool fuses_and(const Microarch& m) { return fuses_something(m) && m.fusion.logic_and != 0; }
bool fuses_inc(const Microarch& m) { return fuses_something(m) && m.fusion.inc_dec != 0; }
// What Sandy Bridge fuses and Ice Lake no longer does.
bool dropped_fusion(const Microarch& m) {
  return fuses_and(m) && !m.fusion.memory_operand && m.fusion.inc_dec == 0;
}
bool counts_slots(const Microarch& m) {
  const arch::Event* slots = m.event(0xC2, 0x02);
  return slots != nullptr && slots->signal == arch::Signal::kUops;
}

// A published id as a template argument.
struct Id {
  char text[16] = {};
  template <size_t kSize>
  consteval Id(const char (&id)[kSize]) {  // NOLINT(google-explicit-constructor)
    std::copy_n(id, kSize, text);
  }
};
// Whether the row's parts have that erratum.
template <Id kId>
bool listed(const Microarch& m) {
  return arch::has_erratum(m, kId.text);
}
// Whether they have none of those. Where a row lists an erratum that does the same, a general defect has the
// erratum's name and not its own.
template <Id... kIds>
bool unlisted(const Microarch& m) {
  return (!arch::has_erratum(m, kIds.text) && ...);
}

// What a fact of a row lets a defect apply to.
bool has_trace_status(const Microarch& m) { return m.streamlined_freeze() && m.processor_trace; }
bool has_interrupting_fixed(const Microarch& m) { return m.fixed_counters >= 3; }
bool interrupts_beside_a_sibling(const Microarch& m) {
  return has_interrupting_fixed(m) && m.hyper_threading;
}
bool counts_retired_memory(const Microarch& m) {  // D0H to D3H
  return std::any_of(m.events.begin(), m.events.end(), [](const arch::Event& e) {
    return e.code >= 0xD0 && e.code <= 0xD3 && e.signal != arch::Signal::kNone;
  });
}
bool counts_memory_beside_a_sibling(const Microarch& m) {
  return counts_retired_memory(m) && m.hyper_threading;
}
bool has_several_pebs_counters(const Microarch& m) {
  return (m.pebs_counters & (m.pebs_counters - 1)) != 0;
}
bool records_status(const Microarch& m) { return m.record->global_status != arch::kAbsent; }
bool clears_global_ctrl(const Microarch& m) {
  return m.architectural_perfmon() && !m.streamlined_freeze();
}
bool has_streamlined_freeze(const Microarch& m) { return m.streamlined_freeze(); }
bool has_eventing_ip(const Microarch& m) { return m.record->eventing_ip != arch::kAbsent; }
bool has_tx_field(const Microarch& m) { return m.record->tx_information != arch::kAbsent; }
bool names_counters(const Microarch& m) { return m.record->applicable_counters != arch::kAbsent; }
bool names_several_counters(const Microarch& m) {
  return names_counters(m) && has_several_pebs_counters(m);
}
bool has_time_stamp(const Microarch& m) { return m.record->tsc != arch::kAbsent; }
bool has_transactions(const Microarch& m) { return m.tsx; }
// DataLA: at all, and in a fixed-layout record.
bool has_data_address(const Microarch& m) {
  return std::any_of(m.events.begin(), m.events.end(), [](const arch::Event& e) {
    return e.data_address && e.kind <= arch::EventKind::kPebsOnly;
  });
}
bool has_fixed_data_address(const Microarch& m) {
  return has_data_address(m) && !m.record->adaptive() && !m.reserved_access_fields;
}
// Ice Lake and Golden Cove.
bool has_adaptive_records(const Microarch& m) { return m.pebs_baseline; }
bool splits_latency(const Microarch& m) { return m.record->cache_latency_shift != 0; }
bool has_no_ll_en(const Microarch& m) {
  return m.load_latency_event != 0 && m.load_latency_enable == 0;
}
bool has_no_retire_latency(const Microarch& m) { return m.pebs_baseline && !m.pebs_timing_info; }
bool samples_on_every_counter(const Microarch& m) { return (m.pebs_counters & 0xFF) == 0xFF; }
bool has_fixed_pebs(const Microarch& m) { return m.pebs_fixed_counters != 0; }
bool has_fixed_ds_pebs(const Microarch& m) { return has_fixed_pebs(m) && m.pebs_in_ds_area(); }
bool has_fixed_pdir(const Microarch& m) { return m.pdir_fixed_counter != 0; }
bool has_pdist(const Microarch& m) { return m.pdist_counters != 0; }
bool samples_any_event(const Microarch& m) { return m.pebs_any_event; }
bool samples_listed_events(const Microarch& m) {
  return m.architectural_perfmon() && !m.pebs_any_event;
}
// PEBS counters that load latency is not published for.
bool has_latency_elsewhere(const Microarch& m) {
  return has_load_latency(m) && (m.pebs_counters & ~m.load_latency_counters) != 0;
}
bool records_off_line(const Microarch& m) {
  return m.architectural_perfmon() && m.record->bytes % 64 != 0;
}
bool has_store_sample(const Microarch& m) { return m.store_sample_counter != 0; }
bool has_metrics(const Microarch& m) { return m.perf_metrics; }
bool is_version6(const Microarch& m) { return m.perfmon_version >= 6; }
bool counts_beyond_eight(const Microarch& m) { return (m.extended.gp >> 8) != 0; }
bool tells_slots(const Microarch& m) {
  return m.extended.slots != 0 && (arch::fixed_bits(m) >> 3 & 1) != 0;
}
bool has_umask2(const Microarch& m) { return m.extended.umask2; }
bool publishes_umask2(const Microarch& m) {
  return m.extended.umask2 &&
         std::any_of(m.events.begin(), m.events.end(), [](const arch::Event& e) {
           return e.umask2 != 0 && e.signal == arch::Signal::kConditional;
         });
}
bool has_equal(const Microarch& m) { return m.extended.equal; }
bool reloads_automatically(const Microarch& m) { return m.extended.auto_reload(); }
bool clears_metrics(const Microarch& m) { return m.metrics_clear; }
bool records_counters(const Microarch& m) { return m.pebs_counters_group; }
bool records_metrics(const Microarch& m) { return m.pebs_counters_group && m.perf_metrics; }
bool has_arch_pebs(const Microarch& m) { return m.architectural_pebs(); }
bool samples_into_ds_area(const Microarch& m) { return m.pebs_in_ds_area(); }
bool has_ds_pebs(const Microarch& m) { return m.architectural_perfmon() && m.pebs_in_ds_area(); }
bool samples_branches_into_ds_area(const Microarch& m) {
  return samples_branches(m) && m.pebs_in_ds_area();
}
// E-cores.
bool has_reduced_skid(const Microarch& m) { return m.reduced_skid_counters != 0; }
bool signals_out_of_bounds(const Microarch& m) { return m.out_of_bounds_signalled; }
bool loads_several(const Microarch& m) {
  return (m.load_latency_counters & (m.load_latency_counters - 1)) != 0;
}
bool loads_on_the_second(const Microarch& m) {
  return loads_several(m) && (m.load_latency_counters >> 1 & 1) != 0;
}
bool stores_several(const Microarch& m) {
  return (m.store_sample_counter & (m.store_sample_counter - 1)) != 0;
}
bool tells_of_accesses(const Microarch& m) {
  return has_load_latency(m) && m.data_source_tlb_lock_bits && m.access.flags_published;
}
bool tells_sources(const Microarch& m) { return has_load_latency(m) && m.access.source_published; }
bool tells_sources_of_stores(const Microarch& m) {
  return has_store_sample(m) && m.access.source_published;
}
bool records_accesses(const Microarch& m) {
  return has_adaptive_records(m) && (has_load_latency(m) || has_store_sample(m));
}
// A counter stands armed for a while before it records.
bool arms_for_a_while(const Microarch& m) {
  return (m.arming_counters() & ~unsigned{m.reduced_skid_counters}) != 0;
}
bool publishes_fusion(const Microarch& m) {
  return m.architectural_perfmon() && m.fusion_published;
}
bool tells_of_stores(const Microarch& m) { return has_store_sample(m) && m.access.flags_published; }
bool reserves_sources(const Microarch& m) {
  return has_store_sample(m) && (m.reserved_sources >> 0xB & 1) != 0;
}
bool has_fixed_pebs_of_format_3(const Microarch& m) {
  return m.pebs_fixed_counters != 0 && !m.record->adaptive();
}

// The third level holds so much more than the second that a working set can be its own.
bool has_a_third_level(const Microarch& m) { return m.caches.l3_bytes >= 4 * m.caches.l2_bytes; }
// A figure of this level is published.
template <uint8_t kLevel>
bool publishes_latency(const Microarch& m) {
  return m.fastest_latency(kLevel) != nullptr;
}

bool counts_far_loads(const Microarch& m) {
  return counts<arch::Signal::kLoadsL3Hit, arch::Signal::kLoadsL3Miss>(m) &&
         counts<arch::Signal::kLoadsFillBuffer>(m);
}
// Samples an event that comes with nearly every instruction on IA32_PMC0.
bool samples_dense(const Microarch& m) {
  return m.architectural_perfmon() &&
         std::any_of(m.events.begin(), m.events.end(), [](const arch::Event& e) {
           return (e.signal == arch::Signal::kUops || e.signal == arch::Signal::kInstructions) &&
                  e.kind == arch::EventKind::kPebs && e.cmask == 0 && !e.invert &&
                  (e.pebs_counters & 1) != 0;
         });
}
// Public practice samples cycles by CMASK with INV, against R33.
bool samples_cycles(const Microarch& m) {
  return m.architectural_perfmon() &&
         m.expectation(arch::kQualifierInvert | arch::kQualifierCmask) ==
             arch::Expectation::kClassify;
}

size_t slot(Gpr reg) { return static_cast<size_t>(reg); }

const Defect kDefects[] = {
#include "pebs/model/defects_adaptive.inc"
#include "pebs/model/defects_arch_pebs.inc"
#include "pebs/model/defects_bts.inc"
#include "pebs/model/defects_company.inc"
#include "pebs/model/defects_counting.inc"
#include "pebs/model/defects_efficient.inc"
#include "pebs/model/defects_errata.inc"
#include "pebs/model/defects_generations.inc"
#include "pebs/model/defects_legacy_mode.inc"
#include "pebs/model/defects_modes.inc"
#include "pebs/model/defects_netburst.inc"
#include "pebs/model/defects_pmu_errata.inc"
#include "pebs/model/defects_promises.inc"
#include "pebs/model/defects_records.inc"
#include "pebs/model/defects_registers.inc"
#include "pebs/model/defects_timing.inc"
#include "pebs/model/defects_version6.inc"
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
    case Promise::kTiming:
      return "timing";
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

Expected<PlayedDefect> parse_defect(std::string_view words) {
  const size_t at = words.find('@');
  PlayedDefect played{.defect = SKIDPROOF_TRY(find_defect(words.substr(0, at)))};
  if (at == std::string_view::npos) return played;
  const std::string_view share = words.substr(at + 1);
  const auto [end, error] =
      std::from_chars(share.data(), share.data() + share.size(), played.share);
  if (error != std::errc() || end != share.data() + share.size() || !(played.share > 0) ||
      played.share > 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no share of the overflows", share),
                "above 0, and 1 at the most: skid-one-too-many@0.01");
  }
  return played;
}

Expected<Behaviour> behaviour_with(const arch::Microarch& microarch,
                                   std::span<const std::string> ids, const Rough& rough) {
  Behaviour behaviour = behaviour_of(microarch, rough);
  std::optional<PlayedDefect> rare;
  for (const std::string& id : ids) {
    const PlayedDefect played = SKIDPROOF_TRY(parse_defect(id));
    const Defect* defect = played.defect;
    if (!defect->applies_to(row_of(microarch, rough))) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the defect '{}' does not apply to {}", id, microarch.name),
                  fmt::format("it breaks {}, which {} does not promise", defect->clause->id,
                              microarch.title));
    }
    if (played.share == 1) {
      defect->break_it(behaviour);
    } else if (rare) {
      return fail(ErrorCode::kInvalidArgument, "two defects of a share each",
                  "one at a time may show rarely");
    } else {
      rare = played;
    }
  }
  if (rare) {
    auto otherwise = std::make_shared<const Behaviour>(behaviour);
    rare->defect->break_it(behaviour);
    behaviour.share = rare->share;
    behaviour.otherwise = std::move(otherwise);
  }
  return behaviour;
}

}  // namespace skidproof::model
