// A violation for people: what was programmed, what was expected, what was seen, and the instructions.
#ifndef SKIDPROOF_HARNESS_FUZZ_DESCRIBE_H_
#define SKIDPROOF_HARNESS_FUZZ_DESCRIBE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "harness/fuzz/case.h"
#include "harness/fuzz/violation.h"
#include "pebs/arch/microarch.h"

namespace skidproof::fuzz {

// One line for each step that the case takes, the DS area first.
std::vector<std::string> programme_text(const Case& c, const arch::Microarch& microarch);
// One line for each instruction: offset and text. Empty for a case that does not assemble.
std::vector<std::string> code_text(const Case& c);

// What a replay file holds: the case, and around it what was seen.
Json replay_document(const Case& c, const Violation& violation);

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_DESCRIBE_H_
