// Random cases on which two engines are to agree: a program, and a PMU programme over it.
#ifndef SKIDPROOF_HARNESS_CROSS_CASE_H_
#define SKIDPROOF_HARNESS_CROSS_CASE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/expected.h"
#include "kernels/program.h"
#include "pebs/machine.h"
#include "pebs/session.h"

namespace skidproof::cross {

// What the programs may use beyond the baseline: what the guest's CPU has, on both sides.
struct Extensions {
  std::vector<Isa> isas;
  bool popcnt = false;

  bool has(Isa isa) const { return std::find(isas.begin(), isas.end(), isa) != isas.end(); }
};

struct Case {
  Memory code, data;
  Program program;
  uint64_t iterations = 1;
  SessionPlan plan;
};

// The case of a seed. Allocates its code and data on the machine, in this order, and fills them; same microarch,
// seed, extensions and addresses, same case.
Expected<Case> make_case(Machine& machine, uint64_t seed, const Extensions& extensions);

// In a line, for people.
std::string describe(const Case& c);

// The seed of the n-th case: 32 bits, which is what the lab's models take.
uint32_t seed_of(uint64_t corpus, uint64_t n);

}  // namespace skidproof::cross

#endif  // SKIDPROOF_HARNESS_CROSS_CASE_H_
