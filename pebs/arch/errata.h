// Published errata of the parts that the rows cover: which processors have one, and which tests it
// explains when they fail.
//
// An erratum is listed by what is published, not by what a processor does: a failure that one explains
// is no news (`xfail`), and a test that holds in spite of one is worth knowing (`xpass`). To be listed is no
// excuse for whatever fails: an erratum explains a failure only on a machine that shows its signature, all
// of its own tests failing and all of its controls holding.
#ifndef SKIDPROOF_PEBS_ARCH_ERRATA_H_
#define SKIDPROOF_PEBS_ARCH_ERRATA_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "pebs/arch/part.h"

namespace skidproof::arch {

// Steppings of one model, and the microcode from which on they are mended.
struct AffectedParts {
  uint8_t family = 6;
  uint8_t model = 0;
  uint8_t first_stepping = 0;
  uint8_t last_stepping = 15;
  uint32_t fixed_from = 0;  // microcode revision; 0: none is known that mends it

  constexpr bool covers(const Part& part) const {
    return part.family == family && part.model == model && part.stepping >= first_stepping &&
           part.stepping <= last_stepping;
  }
};

struct Erratum {
  std::string_view id;       // one of its published ids: what defects and rows call it
  std::string_view aliases;  // the same in other documents, "HSM11, BDD11"; may be empty
  std::string_view brief;    // the symptom in this project's words
  std::span<const AffectedParts> parts;
  // Its own tests, few and narrow: what each of them asks is what it spoils. Patterns with * and ? over test
  // ids, separated by `:`.
  std::string_view tests;
  // Tests that hold in spite of it, and that fail where something else spoils its own: the same without what
  // triggers it, or with what avoids it. Patterns as above.
  std::string_view controls;
  // Tests of other things that it drags along. May be empty.
  std::string_view consequences;
  std::string_view note;  // where the parts come from, what is open; may be empty

  // Whether this very processor has it, as far as is published. Where a microcode mends it and the
  // processor's is not readable, it is taken as listed.
  bool listed_for(const Part& part) const;
  // Whether a microcode is known that mends it on this part.
  bool microcode_matters(const Part& part) const;
};

std::span<const Erratum> errata();
// By id, not by alias; nullptr when there is none.
const Erratum* find_erratum(std::string_view id);

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_ERRATA_H_
