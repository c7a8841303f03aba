// Any bytes for a file of the errata catalogue: read or refused, never a crash; what is read can be looked up.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "pebs/arch/errata_catalogue.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skidproof::arch;
  const ErrataText file = {"fuzzed.json", {reinterpret_cast<const char*>(data), size}};
  const auto catalogue = ErrataCatalogue::read({&file, 1});
  if (!catalogue) return 0;
  for (const Erratum& erratum : catalogue->errata()) {
    if (catalogue->find(erratum.id) != &erratum) std::abort();
    for (const AffectedParts& affected : erratum.parts) {
      const Part part = {affected.family, affected.model, affected.first_stepping, 0};
      if (!erratum.listed_for(part)) std::abort();
    }
  }
  return 0;
}
