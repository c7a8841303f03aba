#include "pebs/arch/errata.h"

#include <algorithm>
#include <array>

#include "pebs/arch/errata_catalogue.h"

namespace skidproof::arch {
namespace {

constexpr std::array<std::string_view, 4> kAuthorityNames = {"specification-update", "code",
                                                             "event-list", "report"};
constexpr std::array<std::string_view, 6> kWorkarounds = {"none",          "unknown",  "software",
                                                          "configuration", "firmware", "microcode"};

}  // namespace

std::string_view name_of(Authority authority) {
  return kAuthorityNames[static_cast<size_t>(authority)];
}

std::optional<Authority> parse_authority(std::string_view word) {
  const auto found = std::find(kAuthorityNames.begin(), kAuthorityNames.end(), word);
  if (found == kAuthorityNames.end()) return std::nullopt;
  return static_cast<Authority>(found - kAuthorityNames.begin());
}

std::string_view name_of(WorkaroundKind kind) { return kWorkarounds[static_cast<size_t>(kind)]; }

bool Erratum::is_called(std::string_view any_id) const {
  return id == any_id || std::find(aliases.begin(), aliases.end(), any_id) != aliases.end();
}

bool Erratum::needs_one(std::string_view what) const {
  return std::find(needs.begin(), needs.end(), what) != needs.end();
}

const AffectedParts* Erratum::affects(const Part& part) const {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const AffectedParts& affected) {
    return affected.covers(part);
  });
  return found == parts.end() ? nullptr : &*found;
}

bool Erratum::listed_for(const Part& part) const {
  const AffectedParts* affected = affects(part);
  if (affected == nullptr) return false;
  return affected->fixed_from == 0 || part.microcode == 0 || part.microcode < affected->fixed_from;
}

bool Erratum::microcode_matters(const Part& part) const {
  const AffectedParts* affected = affects(part);
  return affected != nullptr && affected->fixed_from != 0;
}

bool ErrataDocument::is_about(const Part& part) const {
  return std::any_of(models.begin(), models.end(), [&](const Part& model) {
    return model.family == part.family && model.model == part.model;
  });
}

std::string_view prefix_of(std::string_view id) {
  const auto is_letter = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digits = std::find_if_not(id.begin(), id.end(), is_letter);
  if (digits == id.begin() || digits == id.end() || !std::all_of(digits, id.end(), is_digit)) {
    return {};
  }
  return id.substr(0, static_cast<size_t>(digits - id.begin()));
}

const std::vector<Erratum>& errata() { return ErrataCatalogue::built_in().errata(); }

const Erratum* find_erratum(std::string_view id) { return ErrataCatalogue::built_in().find(id); }

std::optional<Part> part_with(const Microarch& microarch, const Erratum& erratum) {
  // A variant covers some of its row's parts.
  const auto row = find_microarch(microarch.name);
  const Microarch& whole = row ? **row : microarch;
  for (const CpuModel& model : whole.models) {
    for (const AffectedParts& affected : erratum.parts) {
      if (affected.family != model.family || affected.model != model.model) continue;
      const bool of_one = model.stepping >= 0;  // the row's table is about that stepping alone
      const unsigned stepping =
          of_one ? static_cast<unsigned>(model.stepping) : affected.first_stepping;
      const Part part = {.family = model.family,
                         .model = model.model,
                         .stepping = stepping,
                         .microcode = model.minimum_microcode};
      if (erratum.listed_for(part)) return part;
    }
  }
  return std::nullopt;
}

bool has_erratum(const Microarch& microarch, std::string_view id) {
  const Erratum* erratum = find_erratum(id);
  return erratum != nullptr && part_with(microarch, *erratum).has_value();
}

}  // namespace skidproof::arch
