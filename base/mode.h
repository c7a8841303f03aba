// The operating modes of the processor.
#ifndef SKIDPROOF_BASE_MODE_H_
#define SKIDPROOF_BASE_MODE_H_

#include <cstdint>

namespace skidproof {

// What a program's code is for: IA-32e 64-bit mode, protected mode with 32-bit code segments,
// real-address mode. A machine that cannot enter a mode refuses the run with kNotAvailable.
enum class Mode : uint8_t { kLong, kProtected32, kReal };

constexpr const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::kLong:
      return "64-bit mode";
    case Mode::kProtected32:
      return "32-bit protected mode";
    case Mode::kReal:
      return "real-address mode";
  }
  return "?";
}

}  // namespace skidproof

#endif  // SKIDPROOF_BASE_MODE_H_
