// The table of errata, laid over one outcome.
#include "harness/check/explanation.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "harness/check/check.h"

namespace skidproof::check {
namespace {

using results::Status;

// One that is listed for the part and has this test among its own, or among those that it drags along.
struct Speaking {
  const arch::Erratum* erratum = nullptr;
  bool own = false;
};

// Those whose own test this is come first.
std::vector<Speaking> errata_of(const arch::Part& part, const std::string& test) {
  std::vector<Speaking> found;
  for (const arch::Erratum& erratum : arch::errata()) {
    if (!erratum.reproducer || !erratum.listed_for(part)) continue;
    const arch::Reproducer& reproducer = *erratum.reproducer;
    const bool own = matches_filter(reproducer.tests, test);
    if (own ||
        (!reproducer.consequences.empty() && matches_filter(reproducer.consequences, test))) {
      found.push_back({&erratum, own});
    }
  }
  std::stable_partition(found.begin(), found.end(), [](const Speaking& one) { return one.own; });
  return found;
}

std::string listed(const arch::Erratum& erratum, const arch::Part& part) {
  std::string words = fmt::format("{} is listed for {}", erratum.id, name_of(part));
  if (erratum.microcode_matters(part) && part.microcode == 0) {
    words += " (a microcode mends it, and the revision here cannot be read)";
  }
  return words;
}

// Whether the machine says something to each of these tests that it can say anything to, and always that.
Signatures::Answer all_are(Status wanted, std::string_view patterns, const char* kind,
                           const Asked& ask) {
  size_t said = 0;
  for (const TestInfo& info : tests()) {
    if (!matches_filter(patterns, info.id())) continue;
    const Status status = ask(info);
    if (status == Status::kSkip || status == Status::kObserved) continue;
    ++said;
    if (status == wanted) continue;
    return {.why_not = fmt::format("{} {} ended `{}` here", kind, info.id(), name_of(status))};
  }
  if (said == 0) return {.why_not = fmt::format("{} cannot be asked here", kind)};
  return {.shown = true, .why_not = {}};
}

}  // namespace

const Signatures::Answer& Signatures::of(const arch::Erratum& erratum, const Asked& ask) {
  const auto [place, is_new] = known_.try_emplace(&erratum);
  if (!is_new) return place->second;
  Answer& answer = place->second;
  const arch::Reproducer& reproducer = *erratum.reproducer;
  answer = all_are(Status::kFail, reproducer.tests, "its own test", ask);
  if (answer.shown) answer = all_are(Status::kPass, reproducer.controls, "its control", ask);
  return answer;
}

void explain_by_errata(const std::string& test, Outcome& outcome, Signatures& signatures,
                       const Asked& ask) {
  if (outcome.status != Status::kFail && outcome.status != Status::kPass) return;
  const bool held = outcome.status == Status::kPass;
  std::string unexplained;
  for (const auto& [erratum, own] : errata_of(outcome.part, test)) {
    if (held && !own) break;  // that was not to be expected to fail
    const std::string is_listed = listed(*erratum, outcome.part);
    if (held) {
      outcome.status = Status::kXpass;
      outcome.erratum = erratum->id;
      outcome.reason = is_listed + ", and did not show";
      return;
    }
    const Signatures::Answer& answer = signatures.of(*erratum, ask);
    if (answer.shown) {
      outcome.status = Status::kXfail;
      outcome.erratum = erratum->id;
      outcome.reason =
          fmt::format("{}{}: {}", is_listed, own ? "" : " and drags this along", erratum->title);
      return;
    }
    unexplained += fmt::format("{}{}, and does not explain this: {}",
                               unexplained.empty() ? "" : "; ", is_listed, answer.why_not);
  }
  if (unexplained.empty()) return;
  outcome.reason += (outcome.reason.empty() ? "" : "; ") + unexplained;
}

}  // namespace skidproof::check
