// The catalogue of published errata: reads it, and holds it. Its format is pebs/arch/errata/schema.json.
#ifndef SKIDPROOF_PEBS_ARCH_ERRATA_CATALOGUE_H_
#define SKIDPROOF_PEBS_ARCH_ERRATA_CATALOGUE_H_

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "pebs/arch/errata.h"

namespace skidproof::arch {

// One file of a catalogue.
struct ErrataText {
  std::string_view name;  // "haswell.json": for messages
  std::string_view text;  // JSON
};

class ErrataCatalogue {
 public:
  // kInvalidArgument with the file, the entry and the field of the first thing that is wrong: no JSON, a field
  // that is missing, unknown or of another shape, an id or alias that two entries have, a clause that does not
  // exist, an id of a document that none of the files describes.
  static Expected<ErrataCatalogue> read(std::span<const ErrataText> files);
  // The one that the program was built with.
  static const ErrataCatalogue& built_in();

  const std::vector<Erratum>& errata() const { return errata_; }
  const std::vector<ErrataDocument>& documents() const { return documents_; }
  // By id or alias; nullptr when there is none.
  const Erratum* find(std::string_view id) const;
  // By prefix.
  const ErrataDocument* document(std::string_view prefix) const;
  // Whether a document that was read whole is about this part: what it does not list, the part does not have.
  bool knows(const Part& part) const;

 private:
  std::vector<Erratum> errata_;
  std::vector<ErrataDocument> documents_;
  std::map<std::string, size_t, std::less<>> by_id_;  // ids and aliases
};

// Files of the built-in catalogue, as they stand in the tree.
std::span<const ErrataText> built_in_errata_files();

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_ERRATA_CATALOGUE_H_
