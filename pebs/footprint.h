// Working sets by their meaning: inside the first-level cache, beyond it, beyond what the TLB reaches. Sizes come from what was
// measured of the machine (`shape.…` rows of `skidproof characterize`), else from what CPUID tells, else from the row.
#ifndef SKIDPROOF_PEBS_FOOTPRINT_H_
#define SKIDPROOF_PEBS_FOOTPRINT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/expected.h"
#include "pebs/machine.h"

namespace skidproof {

// A size, in bytes or entries: so much surely fits, and as much as `most` surely is all of it. Both 0: not known.
struct SizeRange {
  uint64_t least = 0, most = 0;
  bool known() const { return least != 0; }
  bool operator==(const SizeRange&) const = default;
};

// Of the core that is tested.
struct MachineShape {
  SizeRange l1d, l2, l3;  // data or unified caches, bytes
  SizeRange dtlb, stlb;   // TLBs for loads through 4 KiB pages, entries
  bool operator==(const MachineShape&) const = default;
};

// One line, "l1d=49152 l2=2097152 l3=8388608..16777216 dtlb=96", as tapes keep it; what is not known is not in it.
std::string text_of(const MachineShape& shape);
// kInvalidArgument for another text.
Expected<MachineShape> shape_of_text(std::string_view text);

// The name that rows of the characterization give to a size ("shape.l2.size"), and where it goes; nullptr for another name.
SizeRange* size_named(MachineShape& shape, std::string_view row);

// What CPUID tells (told.h). Nothing of what it does not.
MachineShape told_shape(const Machine& machine);
// The first with, of what it does not know, the second's.
MachineShape filled(MachineShape first, const MachineShape& second);
// What the row plays.
MachineShape shape_of_row(const arch::Microarch& row);

enum class Footprint : uint8_t {
  kInL1,      // half of the first-level cache
  kBeyondL1,  // twice the first level; inside the second where that is known
  kBeyondL2,  // the same of the second
  kBeyondL3,  // of the third; 64 MiB at least, 256 MiB at most, which may lie inside a large one
  kBeyondDtlb,  // as many pages as eight times the first-level TLB has entries, in bytes; 8 MiB at least
  kBeyondStlb,  // four times the second-level TLB's; 32 MiB at least
};
inline constexpr std::array kFootprints = {Footprint::kInL1,       Footprint::kBeyondL1,
                                           Footprint::kBeyondL2,   Footprint::kBeyondL3,
                                           Footprint::kBeyondDtlb, Footprint::kBeyondStlb};
std::string_view name_of(Footprint footprint);  // "beyond-l1"

// A power of two. Nothing where the sizes that it needs are not known, or the next level is too small for it to lie inside.
std::optional<uint64_t> bytes_of(Footprint footprint, const MachineShape& shape);

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_FOOTPRINT_H_
