// Powers of two around what a machine has.
#include "pebs/footprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "pebs/told.h"

namespace skidproof {
namespace {

constexpr uint64_t kPage = 4096;

struct Named {
  std::string_view word, row;
  SizeRange MachineShape::*size;
};
constexpr auto kSizes = std::to_array<Named>({{"l1d", "shape.l1d.size", &MachineShape::l1d},
                                              {"l2", "shape.l2.size", &MachineShape::l2},
                                              {"l3", "shape.l3.size", &MachineShape::l3},
                                              {"dtlb", "shape.dtlb.reach", &MachineShape::dtlb},
                                              {"stlb", "shape.stlb.reach", &MachineShape::stlb}});

// The number at the front, which is taken away; nothing where there is none.
std::optional<uint64_t> take_number(std::string_view& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value == 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<SizeRange> range_of(std::string_view text) {
  const auto least = take_number(text);
  if (!least) return std::nullopt;
  if (text.empty()) return SizeRange{*least, *least};
  if (!text.starts_with("..")) return std::nullopt;
  text.remove_prefix(2);
  const auto most = take_number(text);
  if (!most || !text.empty() || *most < *least) return std::nullopt;
  return SizeRange{*least, *most};
}

std::optional<uint64_t> beyond(const SizeRange& level, const SizeRange& next) {
  if (!level.known()) return std::nullopt;
  const uint64_t bytes = std::bit_ceil(2 * level.most);
  if (next.known() && bytes > next.least) return std::nullopt;
  return bytes;
}

}  // namespace

std::string text_of(const MachineShape& shape) {
  std::string text;
  for (const Named& each : kSizes) {
    const SizeRange& size = shape.*each.size;
    if (!size.known()) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", each.word, size.least);
    if (size.most != size.least) text += fmt::format("..{}", size.most);
  }
  return text;
}

Expected<MachineShape> shape_of_text(std::string_view text) {
  MachineShape shape;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const size_t equals = std::min(item.find('='), item.size());
    const auto* named = std::find_if(kSizes.begin(), kSizes.end(), [&](const Named& each) {
      return each.word == item.substr(0, equals);
    });
    const auto size =
        equals < item.size() ? range_of(item.substr(equals + 1)) : std::optional<SizeRange>();
    if (named == kSizes.end() || !size) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is no size of a machine", item),
                  "as in l1d=49152 l3=8388608..16777216");
    }
    shape.*named->size = *size;
  }
  return shape;
}

SizeRange* size_named(MachineShape& shape, std::string_view row) {
  for (const Named& each : kSizes) {
    if (each.row == row) return &(shape.*each.size);
  }
  return nullptr;
}

MachineShape told_shape(const Machine& machine) {
  MachineShape shape;
  unsigned level = 0;
  for (SizeRange* cache : {&shape.l1d, &shape.l2, &shape.l3}) {
    if (const auto told = told_cache(machine, ++level)) *cache = {told->bytes, told->bytes};
  }
  level = 0;
  for (SizeRange* tlb : {&shape.dtlb, &shape.stlb}) {
    if (const auto told = told_tlb(machine, ++level)) *tlb = {told->entries, told->entries};
  }
  return shape;
}

MachineShape filled(MachineShape first, const MachineShape& second) {
  for (const Named& each : kSizes) {
    SizeRange& size = first.*each.size;
    if (!size.known()) size = second.*each.size;
  }
  return first;
}

MachineShape shape_of_row(const arch::Microarch& row) {
  const arch::CacheGeometry& g = row.caches;
  return {.l1d = {g.l1_bytes, g.l1_bytes},
          .l2 = {g.l2_bytes, g.l2_bytes},
          .l3 = {g.l3_bytes, g.l3_bytes},
          .dtlb = {g.dtlb_entries, g.dtlb_entries},
          .stlb = {g.stlb_entries, g.stlb_entries}};
}

std::string_view name_of(Footprint footprint) {
  switch (footprint) {
    case Footprint::kInL1:
      return "in-l1";
    case Footprint::kBeyondL1:
      return "beyond-l1";
    case Footprint::kBeyondL2:
      return "beyond-l2";
    case Footprint::kBeyondL3:
      return "beyond-l3";
    case Footprint::kBeyondDtlb:
      return "beyond-dtlb";
    case Footprint::kBeyondStlb:
      return "beyond-stlb";
  }
  return "";
}

std::optional<uint64_t> bytes_of(Footprint footprint, const MachineShape& shape) {
  // No first-level TLB has 256 entries, and of the second no part has more than 3072: the sizes ask for more only where
  // something larger was found.
  constexpr uint64_t kLeastPages = 2048, kLeastFarPages = 8192;
  constexpr uint64_t kLeastFar = uint64_t{64} << 20, kMostFar = uint64_t{256} << 20;
  switch (footprint) {
    case Footprint::kInL1:
      if (!shape.l1d.known()) return std::nullopt;
      return std::bit_floor(shape.l1d.least / 2);
    case Footprint::kBeyondL1:
      return beyond(shape.l1d, shape.l2);
    case Footprint::kBeyondL2:
      return beyond(shape.l2, shape.l3);
    case Footprint::kBeyondL3:
      return std::clamp(std::bit_ceil(2 * shape.l3.most), kLeastFar, kMostFar);
    case Footprint::kBeyondDtlb:
      return kPage * std::max(kLeastPages, std::bit_ceil(8 * shape.dtlb.most));
    case Footprint::kBeyondStlb:
      return kPage * std::max(kLeastFarPages, std::bit_ceil(4 * shape.stlb.most));
  }
  return std::nullopt;
}

}  // namespace skidproof
