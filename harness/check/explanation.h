// What a published erratum makes of a verdict.
#ifndef SKIDPROOF_HARNESS_CHECK_EXPLANATION_H_
#define SKIDPROOF_HARNESS_CHECK_EXPLANATION_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "harness/check/outcome.h"
#include "pebs/arch/errata.h"

namespace skidproof::check {

struct TestInfo;

// What became of a test on the machine under test; it leaves no row.
using Asked = std::function<results::Status(const TestInfo& test)>;

// Whether the machine under test shows an erratum: each of its own tests that says anything here fails, and
// each of its controls holds, at least one of both. It is asked once, and remembered.
class Signatures {
 public:
  struct Answer {
    bool shown = false;
    std::string why_not;  // "the control Suite.Test failed here, too"; empty where it is shown
  };
  // Of one that has a reproducer. `ask` is called where the answer is not known yet.
  const Answer& of(const arch::Erratum& erratum, const Asked& ask);

 private:
  std::map<const arch::Erratum*, Answer> known_;
};

// Where an erratum that is listed for outcome.part speaks of this test, its failure becomes `xfail` if the
// machine shows the erratum, and that one of the erratum's own tests held becomes `xpass`, with the erratum and
// the reason. A failure on a machine that does not show it stays `fail`, and its reason says why. Any other
// outcome stays what it is.
void explain_by_errata(const std::string& test, Outcome& outcome, Signatures& signatures,
                       const Asked& ask);

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_EXPLANATION_H_
