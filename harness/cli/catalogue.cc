// The entries, gathered from the registries.
#include "harness/cli/catalogue.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

#include "harness/check/check.h"
#include "harness/cli/event_entries.h"
#include "harness/cli/machines.h"
#include "harness/cli/text.h"
#include "harness/cli/tracing.h"
#include "kernels/kernel.h"
#include "pebs/arch/clause.h"
#include "pebs/arch/errata.h"
#include "pebs/arch/microarch.h"
#include "pebs/model/defects.h"
#include "pebs/model/rough.h"

namespace skidproof::cli {
namespace {

std::vector<std::string> clause_ids(std::span<const Clause* const> clauses) {
  std::vector<std::string> ids;
  for (const Clause* clause : clauses) ids.emplace_back(clause->id);
  return ids;
}

std::vector<std::string> microarchs_of(const model::Defect& defect) {
  std::vector<std::string> names;
  for (const arch::Microarch* microarch : arch::microarchs()) {
    if (defect.applies_to(*microarch)) names.emplace_back(microarch->name);
  }
  return names;
}

std::string range_of(const Parameter& parameter) {
  if (!parameter.words.empty()) {
    return fmt::format("{} (default {})", joined(parameter.words),
                       parameter.words.at(parameter.fallback));
  }
  const std::string high =
      parameter.high == UINT64_MAX ? "" : fmt::format(" to {}", parameter.high);
  return fmt::format("{}{} (default {})", parameter.low, high.empty() ? " and more" : high,
                     parameter.fallback);
}

std::vector<Entry> kernel_entries() {
  std::vector<Entry> entries;
  for (const auto& [name, kernel] : kernels()) {
    Entry entry{.id = name, .columns = {kernel.brief}, .brief = kernel.brief, .details = {}};
    for (const Parameter& parameter : kernel.parameters) {
      entry.details.push_back(
          {"parameter " + parameter.name, {parameter.brief, range_of(parameter)}});
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<std::string> tests_citing(const Clause& clause) {
  std::set<std::string> names;
  for (const check::TestInfo& info : check::tests()) {
    const auto& cited = info.clauses;
    if (std::find(cited.begin(), cited.end(), &clause) == cited.end()) continue;
    names.insert(without_label(info.id()));
  }
  return {names.begin(), names.end()};
}

std::vector<Entry> clause_entries() {
  std::vector<Entry> entries;
  for (const Clause* clause : clauses()) {
    Entry entry{.id = std::string(clause->id),
                .columns = {std::string(name_of(clause->agreement)), std::string(clause->text)},
                .brief = std::string(clause->text),
                .details = {{"source", {std::string(clause->citation)}},
                            {"agreement", {std::string(name_of(clause->agreement))}}}};
    std::vector<std::string> broken_by;
    for (const model::Defect& defect : model::defects()) {
      if (defect.clause == clause) broken_by.emplace_back(defect.id);
    }
    if (auto tests = tests_citing(*clause); !tests.empty()) {
      entry.details.push_back({"tests", std::move(tests)});
    }
    if (!broken_by.empty()) entry.details.push_back({"broken by", std::move(broken_by)});
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<Entry> test_entries() {
  std::vector<Entry> entries;
  for (const check::TestInfo& info : check::tests()) {
    Entry entry{
        .id = info.id(), .columns = {joined(clause_ids(info.clauses))}, .brief = {}, .details = {}};
    for (const Clause* clause : info.clauses) {
      entry.details.push_back(
          {std::string(clause->id), {fmt::format("{} [{}]", clause->text, clause->citation)}});
    }
    entry.details.push_back({"stage", {name_of(info.stage)}});
    entry.details.push_back({"where", {fmt::format("{}:{}", source_of(info), info.line)}});
    entry.details.push_back({"run it", {fmt::format("skidproof run --filter '{}'", info.id())}});
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string counters_text(unsigned mask) {
  std::vector<std::string> names;
  for (unsigned n = 0; n < 16; ++n) {
    if ((mask >> n & 1) != 0) names.push_back(fmt::format("PMC{}", n));
  }
  return names.empty() ? "none" : joined(names);
}

std::vector<std::string> models_text(const arch::Microarch& microarch) {
  std::vector<std::string> models;
  for (const arch::CpuModel& model : microarch.models) {
    std::string line = fmt::format("family {} model {:#04x}", model.family, model.model);
    if (model.stepping >= 0) line += fmt::format(" stepping {}", model.stepping);
    if (model.minimum_microcode != 0) {
      line += fmt::format(", microcode {:#x} or newer", model.minimum_microcode);
    }
    models.push_back(std::move(line));
  }
  for (const arch::Microarch* variant : microarch.variants) {
    for (const arch::CpuModel& model : variant->models) {
      std::string line = fmt::format("family {} model {:#04x}", model.family, model.model);
      if (model.stepping >= 0) line += fmt::format(" stepping {}", model.stepping);
      models.push_back(fmt::format("{}: {}, with events of its own", line, variant->title));
    }
  }
  return models;
}

// "06_2A", which is what --part takes; each once.
template <typename Models>
std::vector<std::string> parts_text(const Models& models) {
  std::vector<std::string> parts;
  for (const auto& one : models) {
    std::string name = fmt::format("{:02X}_{:02X}", one.family, one.model);
    if (std::find(parts.begin(), parts.end(), name) == parts.end())
      parts.push_back(std::move(name));
  }
  return parts;
}

// General-purpose and fixed counters of the row, and what CPUID leaf 23H lists besides.
std::vector<std::string> numbers_text(const arch::Microarch& microarch) {
  std::vector<std::string> words = {
      fmt::format("{} of {} bits; {} without a sibling thread", microarch.gp_counters,
                  microarch.gp_width, microarch.gp_counters_alone),
      fmt::format("{} fixed of {} bits", microarch.fixed_counters, microarch.fixed_width)};
  const arch::ExtendedPerfmon& x = microarch.extended;
  if (x.leaf) {
    words.push_back(fmt::format("by CPUID.23H: {}, and {} fixed ones", std::popcount(x.gp),
                                std::popcount(x.fixed)));
  }
  return words;
}

Entry microarch_entry(const arch::Microarch& microarch) {
  std::vector<std::string> precise;
  for (const arch::Event& event : microarch.events) {
    if (!event.precise()) continue;
    precise.push_back(fmt::format("{} ({:02X}H/{:02X}H) on {}", event.name, event.code, event.umask,
                                  counters_text(event.pebs_counters)));
  }
  return {.id = std::string(microarch.name),
          .columns = {std::string(microarch.title),
                      fmt::format("{} counters of {} bits ({} alone)", microarch.gp_counters,
                                  microarch.gp_width, microarch.gp_counters_alone),
                      fmt::format("PEBS on {}", counters_text(microarch.pebs_counters))},
          .brief = std::string(microarch.title),
          .details = {
              {"processors", models_text(microarch)},
              {"parts", parts_text(microarch.models)},
              {"counters", numbers_text(microarch)},
              {"PEBS on", {counters_text(microarch.pebs_counters)}},
              {"PEBS record", {fmt::format("{} bytes", microarch.record->bytes)}},
              {"load latency on", {counters_text(microarch.load_latency_counters)}},
              {"precise store on", {counters_text(microarch.precise_store_counter)}},
              {"PDIR on", {counters_text(microarch.pdir_counter)}},
              {"PDist on", {counters_text(microarch.pdist_counters)}},
              {"reduced skid on", {counters_text(microarch.reduced_skid_counters)}},
              {"store samples on", {counters_text(microarch.store_sample_counter)}},
              {"precise events", precise},
          }};
}

std::vector<Entry> microarch_entries() {
  std::vector<Entry> entries;
  for (const arch::Microarch* microarch : arch::microarchs()) {
    entries.push_back(microarch_entry(*microarch));
  }
  return entries;
}

std::vector<Entry> defect_entries() {
  std::vector<Entry> entries;
  for (const model::Defect& defect : model::defects()) {
    const std::vector<std::string> where = microarchs_of(defect);
    const std::string machine = where.empty() ? "<microarch>" : where.back();
    const std::string id(defect.id);
    entries.push_back({.id = id,
                       .columns = {std::string(name_of(defect.promise)),
                                   std::string(defect.clause->id), std::string(defect.brief)},
                       .brief = std::string(defect.brief),
                       .details = {{"promise", {std::string(name_of(defect.promise))}},
                                   {"breaks",
                                    {fmt::format("{}: {} [{}]", defect.clause->id,
                                                 defect.clause->text, defect.clause->citation)}},
                                   {"microarchs", {joined(where)}},
                                   {"see it",
                                    {fmt::format("skidproof run --machine model:{} --defect {}",
                                                 machine, id)}}}});
  }
  return entries;
}

constexpr unsigned kLastStepping = 15;

// "06_2A", "06_3C steppings 3 to 4", "06_BE E-cores".
std::string affected_text(const arch::AffectedParts& parts) {
  std::string text = fmt::format("{:02X}_{:02X}", parts.family, parts.model);
  if (parts.first_stepping == parts.last_stepping) {
    text += fmt::format(" stepping {}", parts.first_stepping);
  } else if (parts.first_stepping != 0 || parts.last_stepping != kLastStepping) {
    text += fmt::format(" steppings {} to {}", parts.first_stepping, parts.last_stepping);
  }
  if (parts.core == arch::CoreType::kAtom) text += " E-cores";
  if (parts.core == arch::CoreType::kCore) text += " P-cores";
  return text;
}

// By who says so.
std::vector<std::string> affected_texts(const arch::Erratum& erratum) {
  std::vector<std::string> texts;
  for (const arch::Authority by : arch::kAuthorities) {
    std::vector<std::string> parts;
    for (const arch::AffectedParts& affected : erratum.parts) {
      if (affected.by == by) parts.push_back(affected_text(affected));
    }
    if (!parts.empty()) texts.push_back(fmt::format("{} ({})", joined(parts), name_of(by)));
  }
  return texts;
}

std::string workaround_text(const arch::Workaround& workaround) {
  std::string text = "by " + std::string(name_of(workaround.kind));
  if (workaround.kind == arch::WorkaroundKind::kNone) text = "none";
  if (workaround.kind == arch::WorkaroundKind::kUnknown) text = "not known";
  if (!workaround.text.empty()) text += ": " + workaround.text;
  if (!workaround.in_linux.empty()) {
    text += fmt::format(" (Linux {} applies it)", workaround.in_linux);
  }
  return text;
}

std::vector<Entry> errata_entries() {
  std::vector<Entry> entries;
  for (const arch::Erratum& erratum : arch::errata()) {
    const std::vector<std::string> models = parts_text(erratum.parts);
    // A part of each group that is affected.
    std::vector<std::string> parts;
    for (const arch::AffectedParts& affected : erratum.parts) {
      std::string part = fmt::format("{:02X}_{:02X}", affected.family, affected.model);
      if (affected.first_stepping != 0 || affected.last_stepping != kLastStepping) {
        part += fmt::format("_{:X}", affected.first_stepping);
      }
      if (std::find(parts.begin(), parts.end(), part) == parts.end()) {
        parts.push_back(std::move(part));
      }
    }
    constexpr size_t kShown = 3;
    std::string where = joined(
        {models.begin(), models.begin() + static_cast<ptrdiff_t>(std::min(kShown, models.size()))});
    if (models.size() > kShown) where += fmt::format(" +{}", models.size() - kShown);
    Entry entry{.id = erratum.id,
                .columns = {where, erratum.reproducer ? "reproducer" : "", erratum.title},
                .brief = erratum.title,
                .details = {},
                .other_ids = erratum.aliases};
    const auto detail = [&entry](const char* key, std::vector<std::string> values) {
      if (!values.empty()) entry.details.push_back({key, std::move(values)});
    };
    detail("aliases", erratum.aliases.empty() ? std::vector<std::string>{}
                                              : std::vector<std::string>{joined(erratum.aliases)});
    detail("symptom", {erratum.symptom.value_or("not known: no source gave it")});
    detail("concerns", {joined(erratum.concerns)});
    if (!erratum.needs.empty()) detail("needs", {joined(erratum.needs)});
    detail("workaround", {workaround_text(erratum.workaround)});
    detail("affected", affected_texts(erratum));
    detail("parts", std::move(parts));
    std::vector<std::string> mended;
    for (const arch::AffectedParts& affected : erratum.parts) {
      if (affected.fixed_from == 0) continue;
      mended.push_back(
          fmt::format("{} from microcode {:#x} on", affected_text(affected), affected.fixed_from));
    }
    detail("mended", std::move(mended));
    std::vector<std::string> clauses;
    for (const std::string& id : erratum.clauses) {
      if (const auto clause = find_clause(id)) {
        clauses.push_back(fmt::format("{}: {}", id, (*clause)->text));
      }
    }
    detail("contradicts", std::move(clauses));
    if (!erratum.events.empty()) detail("events", {joined(erratum.events)});
    if (erratum.reproducer) {
      detail("tests", {erratum.reproducer->tests});
      detail("controls", {erratum.reproducer->controls});
      if (!erratum.reproducer->consequences.empty()) {
        detail("consequences", {erratum.reproducer->consequences});
      }
    } else {
      detail("no reproducer", {erratum.no_reproducer});
    }
    detail("sources", erratum.sources);
    if (!erratum.note.empty()) detail("note", {erratum.note});
    entries.push_back(std::move(entry));
  }
  // By document, and by number within it.
  const auto rank = [](const Entry& entry) {
    const std::string_view prefix = arch::prefix_of(entry.id);
    return std::tuple(prefix.empty(), std::string(prefix),
                      prefix.empty() ? 0 : std::stoul(entry.id.substr(prefix.size())), entry.id);
  };
  std::sort(entries.begin(), entries.end(),
            [&](const Entry& a, const Entry& b) { return rank(a) < rank(b); });
  return entries;
}

std::vector<Entry> machine_entries() {
  std::vector<Entry> entries;
  for (const std::string& name : machine_names()) {
    std::string brief = "an executable model of the manual, with its software PMU";
    if (name == "auto") brief = "direct where it works, model:sandy-bridge elsewhere";
    if (name == "direct") brief = "this processor through the Linux driver, PMU and all";
    if (name == "native") brief = "this processor without its PMU: timing by TSC only";
    if (name.starts_with("tape:"))
      brief = "what `run --tape FILE` recorded of another one, replayed";
    std::string works = "works here";
    if (name == "direct") {
      const std::vector<Obstacle> obstacles = direct_obstacles();
      if (!obstacles.empty()) works = "not here: " + obstacles.front().what;
    }
    entries.push_back(
        {.id = name, .columns = {brief, works}, .brief = brief, .details = {{"here", {works}}}});
  }
  return entries;
}

std::vector<Entry> rough_entries() {
  std::vector<Entry> entries;
  for (const model::RoughField& field : model::rough_fields()) {
    const std::string id(field.name);
    const std::string range = fmt::format("{} to {}", field.low, field.high);
    const std::string said = fmt::format("{} to {}", field.least, field.most);
    entries.push_back({.id = id,
                       .columns = {range, std::string(field.unit), std::string(field.brief)},
                       .brief = std::string(field.brief),
                       .details = {{"drawn from", {range}},
                                   {"by hand", {said}},
                                   {"unit", {std::string(field.unit)}},
                                   {"noiseless", {fmt::format("{}", field.neutral)}},
                                   {"source of the range", {std::string(field.source)}},
                                   {"see it",
                                    {fmt::format("skidproof run --machine model:sandy-bridge "
                                                 "--rough {}={}",
                                                 id, field.most)}}}});
  }
  return entries;
}

constexpr Kind kKinds[] = {
    {"kernels", "kernel", kernel_entries},    {"clauses", "clause", clause_entries},
    {"tests", "test", test_entries},          {"microarchs", "microarch", microarch_entries},
    {"defects", "defect", defect_entries},    {"errata", "erratum", errata_entries},
    {"machines", "machine", machine_entries}, {"rough", "field of rough machines", rough_entries},
    {"events", "event", event_entries},
};

}  // namespace

std::span<const Kind> kinds() { return kKinds; }

const Kind* find_kind(std::string_view plural) {
  for (const Kind& kind : kKinds) {
    if (plural == kind.plural || plural == kind.singular) return &kind;
  }
  return nullptr;
}

results::Json json_of(const Entry& entry) {
  results::Json json = {{"id", entry.id}};
  if (!entry.brief.empty()) json["brief"] = entry.brief;
  for (const Detail& detail : entry.details) {
    std::string key = detail.key;
    std::replace(key.begin(), key.end(), ' ', '_');
    if (detail.values.size() == 1) {
      json[key] = detail.values.front();
    } else {
      json[key] = detail.values;
    }
  }
  return json;
}

}  // namespace skidproof::cli
