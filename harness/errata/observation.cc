#include "harness/errata/observation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "harness/check/check.h"

namespace skidproof::errata {
namespace {

using results::Observed;
using results::Status;
using Tests = std::map<std::string, const Seen::Test*>;

// Of the failures of a test, those that are this erratum's.
uint64_t own_failures(const arch::Erratum& erratum, const Seen::Test& test) {
  return static_cast<uint64_t>(
      std::count_if(test.failed.begin(), test.failed.end(),
                    [&](const std::string& by) { return by.empty() || erratum.is_called(by); }));
}

std::string another(const arch::Erratum& erratum, const Seen::Test& test) {
  for (const std::string& by : test.failed) {
    if (!by.empty() && !erratum.is_called(by)) return by;
  }
  return {};
}

// Of tests that said nothing: why.
Observation silent(const Tests& tests) {
  Observation observation;
  observation.why = "its tests were not among those that ran";
  for (const auto& [id, test] : tests) {
    if (!test->error.empty()) {
      observation.verdict = Observed::kError;
      observation.why = fmt::format("{}: {}", id, test->error);
      return observation;
    }
    if (!test->passed_over.empty()) observation.why = fmt::format("{}: {}", id, test->passed_over);
  }
  return observation;
}

Observation cannot_tell(std::string why, uint64_t tries) {
  return {.verdict = Observed::kError, .why = std::move(why), .tries = tries};
}

}  // namespace

void Seen::add(const results::TestRow& row) {
  Test& test = tests_[row.id];
  switch (row.status) {
    case Status::kPass:
    case Status::kXpass:
      ++test.held;
      return;
    case Status::kFail:
    case Status::kXfail:
      test.failed.push_back(row.erratum);
      return;
    case Status::kError:
      test.error = row.reason;
      return;
    case Status::kSkip:
    case Status::kObserved:
    case Status::kDisturbed:
      test.passed_over = row.reason.empty() ? name_of(row.status) : row.reason;
      return;
  }
}

std::map<std::string, const Seen::Test*> Seen::of(const std::string& filter) const {
  Tests found;
  for (const auto& [id, test] : tests_) {
    if (check::matches_filter(filter, id)) found.emplace(id, &test);
  }
  return found;
}

double excluded_rate(uint64_t tries) {
  constexpr double kProbability = 0.05;
  return 1 - std::pow(kProbability, 1 / static_cast<double>(tries));
}

Observation observe(const arch::Erratum& erratum, const Seen& seen, const Subject& subject) {
  if (!erratum.reproducer) return {.why = erratum.no_reproducer};
  if (seen.empty()) return {.why = "nothing was run"};
  const Tests own = seen.of(erratum.reproducer->tests);
  uint64_t least = 0, shown = 0, most = 0;
  std::string held, failed, others;
  for (const auto& [id, test] : own) {
    if (test->spoke() == 0) continue;
    const uint64_t failures = own_failures(erratum, *test);
    if (const std::string by = another(erratum, *test); !by.empty()) others = by;
    if (failures + test->held == 0) continue;  // another erratum explains all of it
    (failures == 0 ? held : failed) = id;
    least = least == 0 ? failures + test->held : std::min(least, failures + test->held);
    shown = std::max(shown, failures);
    most = std::max(most, failures + test->held);
  }
  if (least == 0) {
    if (!others.empty())
      return {.why = fmt::format("what its tests show is explained by {}", others)};
    return silent(own);
  }
  if (failed.empty()) {
    if (std::string missing = lacks(erratum, subject); !missing.empty()) return {.why = missing};
    return {.verdict = Observed::kNotReproduced,
            .why = {},
            .tries = least,
            .shown = 0,
            .excluded_rate = excluded_rate(least)};
  }
  if (!held.empty()) {
    return cannot_tell(fmt::format("half of its signature: {} failed, and {} held", failed, held),
                       most);
  }
  bool asked = false;
  for (const auto& [id, test] : seen.of(erratum.reproducer->controls)) {
    if (own_failures(erratum, *test) != 0) {
      return cannot_tell(fmt::format("its control {} failed, too: something else is wrong", id),
                         most);
    }
    asked |= test->held != 0;
  }
  if (!asked)
    return cannot_tell("its own tests failed, and none of its controls could be asked", most);
  return {.verdict = Observed::kReproduced, .why = {}, .tries = most, .shown = shown};
}

std::string filter_for(const std::vector<const arch::Erratum*>& errata) {
  std::string filter;
  for (const arch::Erratum* erratum : errata) {
    if (!erratum->reproducer) continue;
    filter += (filter.empty() ? "" : ":") + erratum->reproducer->tests + ":" +
              erratum->reproducer->controls;
  }
  return filter;
}

}  // namespace skidproof::errata
