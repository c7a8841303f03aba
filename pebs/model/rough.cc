#include "pebs/model/rough.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/near_match.h"

namespace skidproof::model {
namespace {

// The most that may be said of a field that is drawn from less.
constexpr struct {
  std::string_view name;
  double most;
} kByHand[] = {
#define ROUGH_FIELD(type, name, neutral, low, high, unit, source, brief)
#define ROUGH_BY_HAND(name, most) {#name, most},
#include "pebs/model/rough_fields.inc"
#undef ROUGH_BY_HAND
#undef ROUGH_FIELD
};

constexpr double most_of(std::string_view name, double otherwise) {
  for (const auto& field : kByHand) {
    if (field.name == name) return field.most;
  }
  return otherwise;
}

constexpr RoughField kFields[] = {
#define ROUGH_BY_HAND(name, most)
#define ROUGH_FIELD(type, name, neutral, low, high, unit, source, brief)      \
  {#name,                                                                     \
   neutral,                                                                   \
   low,                                                                       \
   high,                                                                      \
   std::min<double>(low, neutral),                                            \
   most_of(#name, std::max<double>(high, neutral)),                           \
   unit,                                                                      \
   source,                                                                    \
   brief,                                                                     \
   [](const Rough& rough) { return static_cast<double>(rough.name); },        \
   [](Rough& rough, double value) { rough.name = static_cast<type>(value); }, \
   std::is_integral_v<type>},
#include "pebs/model/rough_fields.inc"
#undef ROUGH_FIELD
#undef ROUGH_BY_HAND
};

constexpr uint32_t kLineBytes = 64;
constexpr uint32_t kL1Sets = 64;

bool is_power_of_two(std::string_view field) {
  return field == "l2_kib" || field == "l3_kib" || field == "stlb_entries";
}

// A value that the field can take: whole, and of the shape that a cache has.
double shaped(const RoughField& field, double value) {
  if (!field.whole) return value;
  auto number = static_cast<uint64_t>(std::lround(value));
  if (is_power_of_two(field.name)) number = std::bit_floor(number);
  if (field.name == "l1_kib") number &= ~uint64_t{3};
  if (field.name == "fusion_border") number = number < 16 ? 0 : std::bit_floor(number);
  return static_cast<double>(number);
}

// From low to high; what spans more than a power of ten by its logarithm, so that the small values come too.
double drawn(const RoughField& field, Random& random) {
  const double part = static_cast<double>(random.below(1u << 20)) / ((1u << 20) - 1);
  if (field.low > 0 && field.high >= 10 * field.low) {
    return shaped(field, field.low * std::pow(field.high / field.low, part));
  }
  // Whole numbers as often as one another.
  if (field.whole && !is_power_of_two(field.name)) {
    return shaped(field, static_cast<double>(random.between(static_cast<uint64_t>(field.low),
                                                            static_cast<uint64_t>(field.high))));
  }
  return shaped(field, field.low + part * (field.high - field.low));
}

// What holds between fields.
void settle(Rough& rough) {
  rough.arm_high = std::max(rough.arm_low, rough.arm_high);
  rough.pmi_high = std::max(rough.pmi_low, rough.pmi_high);
}

std::string range_of(const RoughField& field) {
  return fmt::format("{} to {}{}{}", field.least, field.most, field.unit.empty() ? "" : " ",
                     field.unit);
}

Expected<void> set_field(Rough& rough, std::string_view word) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const auto* const field =
      std::find_if(std::begin(kFields), std::end(kFields),
                   [&](const RoughField& candidate) { return candidate.name == name; });
  if (field == std::end(kFields)) {
    std::vector<std::string_view> known;
    for (const RoughField& candidate : kFields) known.push_back(candidate.name);
    std::string advice = "`skidproof list rough` shows the fields";
    if (const auto near = arch::near_matches(name, known, 3); !near.empty()) {
      advice = fmt::format("did you mean {}? {}", fmt::join(near, ", "), advice);
    }
    return fail(ErrorCode::kInvalidArgument, fmt::format("a rough machine has no field '{}'", name),
                advice);
  }
  const std::string_view text =
      equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size() && !text.empty();
  if (!number || !(value >= field->least) || !(value <= field->most)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no value of {}", text, field->name),
                fmt::format("it goes from {}", range_of(*field)));
  }
  if (value != field->neutral && shaped(*field, value) != value) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} cannot be {}: {}", field->name, text, field->brief),
                fmt::format("the nearest value is {}", shaped(*field, value)));
  }
  field->set(rough, value);
  return {};
}

}  // namespace

std::span<const RoughField> rough_fields() { return kFields; }

Rough draw_rough(const arch::Microarch& microarch, uint64_t seed) {
  Rough rough;
  for (const RoughField& field : kFields) {
    // A stream for each field: one more of them changes no other.
    const std::string purpose = fmt::format("rough {}", field.name);
    Random random(derive_seed(seed, purpose.c_str()));
    if (random.chance(1, 3)) continue;
    field.set(rough, drawn(field, random));
  }
  // Distributed by instructions, a record is one late at the most; by cycles, a few. [SDM 089 21.9.6]
  if (microarch.pdist_counters != 0) rough.pdist_late_most = 1;
  settle(rough);
  return rough;
}

Expected<Rough> rough_of(const arch::Microarch& microarch, std::string_view words) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), seed);
  if (error == std::errc() && end == words.data() + words.size()) {
    return draw_rough(microarch, seed);
  }
  Rough rough;
  for (std::string_view rest = words; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    SKIDPROOF_CHECK(set_field(rough, rest.substr(0, comma)));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (words.empty())
    return fail(ErrorCode::kInvalidArgument, "a rough machine of no words",
                "give a seed, or FIELD=VALUE,…");
  settle(rough);
  return rough;
}

std::string rough_name(std::string_view words) {
  const bool seed = words.find('=') == std::string_view::npos;
  return seed ? fmt::format("rough={}", words) : std::string(words);
}

arch::Microarch row_of(const arch::Microarch& microarch, const Rough& rough) {
  arch::Microarch m = microarch;
  if (rough.transactions == 0) {
    m.tsx = false;
    m.perfevtsel_defined &= ~arch::evtsel::kInTx;
  }
  m.sgx &= rough.sgx != 0;
  m.processor_trace &= rough.processor_trace != 0;
  m.la57 &= rough.la57 != 0;
  if (rough.retire_latency != 0 && m.record->cache_latency_shift != 0 && m.pebs_in_ds_area()) {
    m.pebs_timing_info = true;
    m.record = arch::adaptive_record(
        {.format = m.record->format, .splits_latency = true, .retire_latency = true});
  }
  return m;
}

arch::CacheGeometry geometry_of(const arch::Microarch& microarch, const Rough& rough) {
  arch::CacheGeometry g = microarch.caches;
  if (rough.l1_kib != 0) {
    g.l1_bytes = rough.l1_kib << 10;
    g.l1_ways = g.l1_bytes / (kL1Sets * kLineBytes);
  }
  if (rough.l2_kib != 0) {
    g.l2_bytes = rough.l2_kib << 10;
    g.l2_ways = 8;
  }
  if (rough.l3_kib != 0) {
    g.l3_bytes = rough.l3_kib << 10;
    g.l3_ways = 16;
  }
  if (rough.l2_latency != 0) {
    const arch::FastestLatency* published = microarch.fastest_latency(2);
    g.l2_latency =
        std::max<uint32_t>(rough.l2_latency, published == nullptr ? 0 : published->cycles);
  }
  if (rough.l3_latency != 0) g.l3_latency = rough.l3_latency;
  if (rough.memory_latency != 0) g.memory_latency = rough.memory_latency;
  if (rough.stlb_entries != 0) g.stlb_entries = rough.stlb_entries;
  if (rough.bus_ratio != 0) g.bus_ratio = rough.bus_ratio;
  if (rough.retire_width != 0) g.retire_width = rough.retire_width;
  if (rough.mispredict_penalty != 0) g.mispredict_penalty = rough.mispredict_penalty;
  return g;
}

}  // namespace skidproof::model
