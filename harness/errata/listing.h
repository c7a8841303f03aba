// The first verdict on an erratum: what is published of a processor. Nothing is run for it.
#ifndef SKIDPROOF_HARNESS_ERRATA_LISTING_H_
#define SKIDPROOF_HARNESS_ERRATA_LISTING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "harness/errata/subject.h"
#include "pebs/arch/errata_catalogue.h"
#include "results/row.h"

namespace skidproof::errata {

struct Listing {
  results::Listed verdict = results::Listed::kUnknown;
  std::optional<arch::Authority>
      by;                   // who lists it, or lists that part without it; nullopt: nobody
  std::string why;          // "listed for 06_3C", "no document on 06_2D was read"
  uint32_t fixed_from = 0;  // a microcode that mends it on this part; 0: none is known
  results::Exposure exposure = results::Exposure::kUnknown;
  std::string exposure_why;
};

// Why nothing can be said of that processor; empty where something can. Under a hypervisor CPUID, microcode and
// counters are what it shows; other vendors' parts and parts that no document and no entry names are not known.
std::string unknowable(const arch::ErrataCatalogue& catalogue, const Subject& subject);

// Affected only where somebody lists the part, and not affected only where a document on it was read whole and
// does not, or where the entry names other steppings.
Listing listing_of(const arch::ErrataCatalogue& catalogue, const arch::Erratum& erratum,
                   const Subject& subject);

}  // namespace skidproof::errata

#endif  // SKIDPROOF_HARNESS_ERRATA_LISTING_H_
