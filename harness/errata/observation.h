// The second verdict on an erratum: what its reproducer, tests of the suites, saw. From the rows of a run, however
// old.
#ifndef SKIDPROOF_HARNESS_ERRATA_OBSERVATION_H_
#define SKIDPROOF_HARNESS_ERRATA_OBSERVATION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/errata/subject.h"
#include "pebs/arch/errata.h"
#include "results/row.h"

namespace skidproof::errata {

struct Observation {
  results::Observed verdict = results::Observed::kNotRun;
  std::string why;                      // empty only of kReproduced and kNotReproduced
  uint64_t tries = 0;                   // runs of the reproducer that said something
  uint64_t shown = 0;                   // of these, in which the erratum showed
  std::optional<double> excluded_rate;  // of kNotReproduced
};

// What became of each test of one machine.
class Seen {
 public:
  void add(const results::TestRow& row);
  bool empty() const { return tests_.empty(); }

  struct Test {
    uint64_t held = 0;
    std::vector<std::string>
        failed;               // a row each: the erratum that explains it, or an empty string
    std::string passed_over;  // why a row of it said nothing; empty: none was so
    std::string error;        // of the harness; empty: none
    uint64_t spoke() const { return held + failed.size(); }
  };
  // Ids to what became of them, of those that a filter picks.
  std::map<std::string, const Test*> of(const std::string& filter) const;

 private:
  std::map<std::string, Test> tests_;
};

// Reproduced where each of its own tests that said something failed and no control did; not reproduced where none of
// its own failed. Half of a signature, or one without a control, tells nothing. A failure that another erratum
// explains is not this one's. Nothing is said where the erratum cannot show and none of its tests failed.
Observation observe(const arch::Erratum& erratum, const Seen& seen, const Subject& subject);

// The largest rate at which so many tries show it never with a probability of 5 % at least: 1 - 0.05^(1/n).
double excluded_rate(uint64_t tries);

// A filter that picks what the reproducers of these need; empty where none has one.
std::string filter_for(const std::vector<const arch::Erratum*>& errata);

}  // namespace skidproof::errata

#endif  // SKIDPROOF_HARNESS_ERRATA_OBSERVATION_H_
