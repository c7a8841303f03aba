// Hexadecimal numbers between underscores.
#include "pebs/arch/part.h"

#include <fmt/core.h>

#include <charconv>

namespace skidproof::arch {

std::string name_of(const Part& part) {
  return fmt::format("{:02X}_{:02X}_{:X}", part.family, part.model, part.stepping);
}

Expected<Part> parse_part(std::string_view text) {
  Part part;
  unsigned* const fields[] = {&part.family, &part.model, &part.stepping};
  constexpr unsigned kMost[] = {0xFF, 0xFF, 0xF};
  const auto malformed = fail(
      ErrorCode::kInvalidArgument, fmt::format("'{}' is no part", text),
      "family, model and stepping in hexadecimal, such as 06_2A_7 (the stepping may be missing)");
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < 3; ++i) {
    if (i > 0 && at == end) return i == 2 ? Expected<Part>(part) : malformed;
    if (i > 0 && *at++ != '_') return malformed;
    const auto [next, error] = std::from_chars(at, end, *fields[i], 16);
    if (error != std::errc() || *fields[i] > kMost[i]) return malformed;
    at = next;
  }
  return at == end ? Expected<Part>(part) : malformed;
}

}  // namespace skidproof::arch
