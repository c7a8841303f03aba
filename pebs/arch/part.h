// One processor as CPUID.1 and its microcode revision name it, and the way it is written: 06_2D_7.
#ifndef SKIDPROOF_PEBS_ARCH_PART_H_
#define SKIDPROOF_PEBS_ARCH_PART_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/expected.h"

namespace skidproof::arch {

struct Part {
  unsigned family = 0, model = 0, stepping = 0;
  uint32_t microcode = 0;  // 0: not readable
  bool operator==(const Part&) const = default;
};

// "06_2D_7": family, model and stepping in hexadecimal, as the manual's DisplayFamily_DisplayModel.
std::string name_of(const Part& part);
// The same back; without a stepping it is 0. kInvalidArgument with an example for anything else.
Expected<Part> parse_part(std::string_view text);

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_PART_H_
