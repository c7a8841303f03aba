#include "harness/errata/listing.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace skidproof::errata {
namespace {

using arch::AffectedParts;
using arch::CoreType;
using arch::Erratum;
using results::Exposure;
using results::Listed;

constexpr char kIntel[] = "GenuineIntel";

std::string model_name(const arch::Part& part) {
  return fmt::format("{:02X}_{:02X}", part.family, part.model);
}

bool of_model(const AffectedParts& affected, const arch::Part& part) {
  return affected.family == part.family && affected.model == part.model;
}

// "6.12.3-amd64" is at least "6.12".
bool at_least(std::string_view release, std::string_view version) {
  const auto numbers = [](std::string_view text) {
    std::pair<unsigned, unsigned> found;
    const char* end = text.data() + text.size();
    const auto major = std::from_chars(text.data(), end, found.first);
    if (major.ec == std::errc() && major.ptr != end) {
      std::from_chars(major.ptr + 1, end, found.second);
    }
    return found;
  };
  return !release.empty() && numbers(release) >= numbers(version);
}

// What is known to keep an affected part from harm; empty: nothing.
std::string in_place(const Erratum& erratum, const Subject& subject) {
  if (std::string missing = lacks(erratum, subject); !missing.empty()) return missing;
  const std::string& version = erratum.workaround.in_linux;
  if (!version.empty() && at_least(subject.linux_release, version)) {
    return fmt::format("Linux {} works around it", version);
  }
  return {};
}

void expose(Listing& listing, const Erratum& erratum, const Subject& subject) {
  switch (listing.verdict) {
    case Listed::kAffected:
      listing.exposure_why = in_place(erratum, subject);
      listing.exposure = listing.exposure_why.empty() ? Exposure::kExposed : Exposure::kInPlace;
      if (listing.exposure_why.empty()) {
        listing.exposure_why = "no workaround is known to be in place";
      }
      return;
    case Listed::kNotAffected:
    case Listed::kFixedByMicrocode:
      listing.exposure = Exposure::kNone;
      return;
    case Listed::kUnknown:
      listing.exposure = Exposure::kUnknown;
      return;
  }
}

// Of a part that an entry's group covers.
void judge(Listing& listing, const AffectedParts& affected, const arch::Part& part) {
  listing.by = affected.by;
  listing.fixed_from = affected.fixed_from;
  listing.verdict = Listed::kAffected;
  listing.why = fmt::format("listed for {}", name_of(part));
  if (affected.fixed_from == 0) return;
  if (part.microcode == 0) {
    listing.verdict = Listed::kUnknown;
    listing.why +=
        fmt::format(", mended from microcode {:#x} on, and the revision here is not known",
                    affected.fixed_from);
  } else if (part.microcode >= affected.fixed_from) {
    listing.verdict = Listed::kFixedByMicrocode;
    listing.why += fmt::format(", and mended from microcode {:#x} on: {:#x} runs here",
                               affected.fixed_from, part.microcode);
  } else {
    listing.why += fmt::format(", mended from microcode {:#x} on: {:#x} runs here",
                               affected.fixed_from, part.microcode);
  }
}

// Of a part that none covers.
void judge_unlisted(Listing& listing, const arch::ErrataCatalogue& catalogue,
                    const Erratum& erratum, const arch::Part& part) {
  for (const AffectedParts& affected : erratum.parts) {
    if (!of_model(affected, part)) continue;
    listing.verdict = Listed::kNotAffected;
    listing.by = affected.by;
    listing.why = affected.covers(part)
                      ? fmt::format("listed for the other type of core of {}", model_name(part))
                      : fmt::format("listed for other steppings of {}", model_name(part));
    return;
  }
  if (!catalogue.knows(part)) {
    listing.why = fmt::format("not listed for {}, of which no specification update was read whole",
                              model_name(part));
    return;
  }
  listing.verdict = Listed::kNotAffected;
  listing.by = arch::Authority::kSpecificationUpdate;
  listing.why = fmt::format("the specification update of {} does not list it", model_name(part));
}

}  // namespace

std::string unknowable(const arch::ErrataCatalogue& catalogue, const Subject& subject) {
  if (!subject.vendor.empty() && subject.vendor != kIntel) {
    return fmt::format("the catalogue is of Intel's parts, and this one is {}", subject.vendor);
  }
  if (!subject.hypervisor.empty()) {
    return fmt::format("under {}: CPUID, microcode and counters are what the hypervisor shows",
                       subject.hypervisor);
  }
  if (!subject.part) return "family, model and stepping are not known";
  const auto names = [&subject](const auto& all, const auto& one_names) {
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& one) { return one_names(one, *subject.part); });
  };
  if (names(catalogue.documents(), [](const arch::ErrataDocument& document, const auto& part) {
        return document.is_about(part);
      })) {
    return {};
  }
  if (names(catalogue.errata(), [](const Erratum& erratum, const arch::Part& part) {
        return std::any_of(erratum.parts.begin(), erratum.parts.end(),
                           [&](const AffectedParts& affected) { return of_model(affected, part); });
      })) {
    return {};
  }
  return fmt::format("no document and no entry of the catalogue names {}",
                     model_name(*subject.part));
}

Listing listing_of(const arch::ErrataCatalogue& catalogue, const Erratum& erratum,
                   const Subject& subject) {
  Listing listing;
  listing.why = unknowable(catalogue, subject);
  if (!listing.why.empty()) {
    listing.exposure_why = listing.why;
    return listing;
  }
  const arch::Part& part = *subject.part;
  const AffectedParts* found = nullptr;
  bool core_matters = false;
  for (const AffectedParts& affected : erratum.parts) {
    if (!affected.covers(part)) continue;
    const bool of_one_type = affected.core != CoreType::kUnstated;
    if (of_one_type && subject.core == CoreType::kUnstated) {
      core_matters = true;
    } else if ((!of_one_type || affected.core == subject.core) && found == nullptr) {
      found = &affected;
    }
  }
  if (found != nullptr) {
    judge(listing, *found, part);
  } else if (core_matters) {
    listing.why = fmt::format("listed for one type of core of {}, and which this is, is not known",
                              model_name(part));
  } else {
    judge_unlisted(listing, catalogue, erratum, part);
  }
  expose(listing, erratum, subject);
  if (listing.exposure == Exposure::kUnknown) listing.exposure_why = listing.why;
  return listing;
}

}  // namespace skidproof::errata
