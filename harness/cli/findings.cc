#include "harness/cli/findings.h"

#include <cstddef>

namespace skidproof::cli {

const char* name_of(Health health) {
  static constexpr const char* kNames[] = {"good", "note", "bad"};
  return kNames[static_cast<size_t>(health)];
}

}  // namespace skidproof::cli
