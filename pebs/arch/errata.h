// Published errata of PMU, PEBS, branch trace store and last branches: which processors have one, and which tests
// it explains when they fail. The catalogue itself is data: pebs/arch/errata/*.json, read by errata_catalogue.h.
//
// An erratum is listed by what is published, not by what a processor does: a failure that one explains
// is no news (`xfail`), and a test that holds in spite of one is worth knowing (`xpass`). To be listed is no
// excuse for whatever fails: an erratum explains a failure only on a machine that shows its signature, all
// of its own tests failing and all of its controls holding.
#ifndef SKIDPROOF_PEBS_ARCH_ERRATA_H_
#define SKIDPROOF_PEBS_ARCH_ERRATA_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pebs/arch/microarch.h"
#include "pebs/arch/part.h"

namespace skidproof::arch {

// Who says that a part is affected, the most trustworthy first.
enum class Authority : uint8_t {
  kSpecificationUpdate,  // its document lists the part
  kCode,                 // public code works around it there
  kEventList,            // an event list tags events with it
  kReport,               // anything else
};
inline constexpr std::array kAuthorities = {Authority::kSpecificationUpdate, Authority::kCode,
                                            Authority::kEventList, Authority::kReport};
// "specification-update", "code", "event-list", "report".
std::string_view name_of(Authority authority);
std::optional<Authority> parse_authority(std::string_view word);

// Steppings of one model, and the microcode from which on they are mended.
struct AffectedParts {
  uint8_t family = 6;
  uint8_t model = 0;
  uint8_t first_stepping = 0;
  uint8_t last_stepping = 15;
  CoreType core = CoreType::kUnstated;  // of a hybrid part only these; kUnstated: all
  uint32_t fixed_from = 0;              // microcode revision; 0: none is known that mends it
  Authority by = Authority::kSpecificationUpdate;

  constexpr bool covers(const Part& part) const {
    return part.family == family && part.model == model && part.stepping >= first_stepping &&
           part.stepping <= last_stepping;
  }
};

enum class WorkaroundKind : uint8_t {
  kNone,           // its document names none
  kUnknown,        // no source was seen that says
  kSoftware,       // of who programmes the PMU
  kConfiguration,  // of the machine
  kFirmware,       // a BIOS can contain one
  kMicrocode,
};
std::string_view name_of(WorkaroundKind kind);

struct Workaround {
  WorkaroundKind kind = WorkaroundKind::kUnknown;
  std::string text;      // what to do; may be empty
  std::string in_linux;  // "6.12": a version that is known to apply it; may be empty
};

// How it shows: filters over test ids, patterns with * and ? separated by `:`.
struct Reproducer {
  std::string tests;         // its own, few and narrow: what each of them asks is what it spoils
  std::string controls;      // hold in spite of it, and fail where something else spoils its own
  std::string consequences;  // tests of other things that it drags along; may be empty
};

struct Erratum {
  std::string id;                      // one of its published ids: what defects and rows call it
  std::vector<std::string> aliases;    // the same in other documents
  std::string title;                   // the symptom in a line, in this project's words
  std::optional<std::string> symptom;  // what happens and when; nullopt: no source gave it
  Workaround workaround;
  std::vector<std::string> concerns;  // "pebs", "pmu", "bts" …
  std::vector<std::string> needs;     // "hyper-threading" …: without one of these it cannot show
  std::vector<AffectedParts> parts;
  std::vector<std::string> clauses;  // ids of the promises that it contradicts; may be empty
  std::vector<std::string> events;   // that are tagged with it, by published name; may be empty
  std::vector<std::string> sources;  // document and section title, or file
  std::optional<Reproducer> reproducer;
  std::string no_reproducer;  // why there is none; empty where there is one
  std::string note;           // what is open; may be empty

  bool is_called(std::string_view any_id) const;  // by its id or an alias
  bool needs_one(std::string_view what) const;
  // What is published of this very part, whatever its microcode; nullptr: it is not listed.
  const AffectedParts* affects(const Part& part) const;
  // Whether this very processor has it, as far as is published. Where a microcode mends it and the
  // processor's is not readable, it is taken as listed.
  bool listed_for(const Part& part) const;
  // Whether a microcode is known that mends it on this part.
  bool microcode_matters(const Part& part) const;
};

// One specification update.
struct ErrataDocument {
  enum class Read : uint8_t {
    kWhole,  // a part of its models that no entry covers is not affected
    kSome,   // single errata of it were seen
    kNo,     // only ids of it, in other sources
  };
  std::string prefix;  // before the number in each of its ids: "BJ"
  std::string title;
  std::string number;        // Intel's, with its revision; may be empty
  std::vector<Part> models;  // of each any stepping
  Read read = Read::kNo;
  std::string note;  // may be empty

  bool is_about(const Part& part) const;
};

// "BJ" of "BJ103"; empty for a name that is no such id.
std::string_view prefix_of(std::string_view id);

// The built-in catalogue's entries.
const std::vector<Erratum>& errata();
// By id or alias; nullptr when there is none.
const Erratum* find_erratum(std::string_view id);
// The first part of the row that has it, of a variant of its whole row; nullopt where none has.
std::optional<Part> part_with(const Microarch& microarch, const Erratum& erratum);
// The same by an id or alias; false where the catalogue has no such.
bool has_erratum(const Microarch& microarch, std::string_view id);

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_ERRATA_H_
