// A rough machine: what nothing promises, drawn from ranges, so that a conforming processor is as untidy
// as silicon. A part of Behaviour; the noiseless model has every field neutral.
#ifndef SKIDPROOF_PEBS_MODEL_ROUGH_H_
#define SKIDPROOF_PEBS_MODEL_ROUGH_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/expected.h"
#include "pebs/arch/microarch.h"

namespace skidproof::model {

struct Rough {
#define ROUGH_FIELD(type, name, neutral, low, high, unit, source, brief) type name = neutral;
#define ROUGH_BY_HAND(name, most) static_assert(sizeof(name) != 0, "names a field");
#include "pebs/model/rough_fields.inc"
#undef ROUGH_BY_HAND
#undef ROUGH_FIELD

  bool operator==(const Rough&) const = default;
};

// One field in words.
struct RoughField {
  std::string_view name;
  double neutral = 0;
  double low = 0, high = 0;    // what is drawn
  double least = 0, most = 0;  // what may be said
  std::string_view unit;
  std::string_view source;  // of the range; "open" where no document gives a figure
  std::string_view brief;
  double (*get)(const Rough&) = nullptr;
  void (*set)(Rough&, double) = nullptr;
  bool whole = true;  // takes whole numbers only
};
std::span<const RoughField> rough_fields();

// One machine, the same for the same seed. A third of the fields stay neutral, so that a machine is not
// rough everywhere at once and each field meets the others' neutral values.
Rough draw_rough(const arch::Microarch& microarch, uint64_t seed);

// By words: a seed ("7"), or fields with values ("assist_cycles=900,tagging=0.02"), the others neutral.
// Errors: kInvalidArgument, for an unknown field with near ones, for a value out of range with the range.
Expected<Rough> rough_of(const arch::Microarch& microarch, std::string_view words);

// What a machine's name says of it: "rough=7" for a seed, else the words as they are.
std::string rough_name(std::string_view words);

// The row as this part has it, where CPUID and IA32_PERF_CAPABILITIES say that it lacks what others of the row have,
// or has more.
arch::Microarch row_of(const arch::Microarch& microarch, const Rough& rough);

// The row's caches with what the rough machine has otherwise.
arch::CacheGeometry geometry_of(const arch::Microarch& microarch, const Rough& rough);

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_ROUGH_H_
