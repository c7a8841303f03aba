// GoogleTest glue: tests that cite clauses, typed skips, counted comparisons, evidence.
//
//   SKIDPROOF_SUITE(PebsReload, kBuffer);
//
//   SKIDPROOF_TEST(PebsReload, LoadsTheResetSlotAfterEveryRecord, clause::R19) {
//     SKIDPROOF_REQUIRE(uarch().pebs_counters & 1, SkipCategory::kNotOnThisMicroarch, "no PEBS on
//     PMC0"); auto session = need(Session::open(machine(), plan)); auto log =
//     need(session.run(program, 1000)); VERIFY_EQ(session.records().size(), 10u) << "…";
//   }
//
//   SKIDPROOF_TEST_OVER(PebsReload, …, over::counters({0, 1, 2, 3}), clause::R19) {
//   param().number(0) … }
//
// A test passes only when it executed something (a program iteration or an MSR access) and compared
// something through VERIFY_…; one that did neither is an error, never a pass. What nothing promises is
// not compared: observe() says what was seen.
//
// A test that fails is run again, with fresh seeds on a fresh machine: see harness/check/trial.h.
#ifndef SKIDPROOF_HARNESS_CHECK_CHECK_H_
#define SKIDPROOF_HARNESS_CHECK_CHECK_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/random.h"
#include "harness/calibrate/calibration.h"
#include "harness/check/comparisons.h"
#include "harness/check/stage.h"
#include "kernels/kernel.h"
#include "pebs/arch/clause.h"
#include "pebs/footprint.h"
#include "pebs/machine.h"
#include "results/json.h"
#include "results/row.h"

namespace skidproof::check {

// One point of a parameterised test: a label for its name, and values.
struct Param {
  std::string label;  // "PMC0.pointer_chase"
  std::vector<uint64_t> numbers = {};
  std::vector<std::string> words = {};

  uint64_t number(size_t i = 0) const { return numbers.at(i); }
  const std::string& word(size_t i = 0) const { return words.at(i); }
};

// Labels stand in test names, where `-` and `:` have a meaning to filters and `/` ends the name:
// registration turns every character but letters, digits, `.`, `+`, `=`, `,` and `_` into `_`.
namespace over {
std::vector<Param> counters(std::initializer_list<unsigned> counters);  // "PMC0": number
std::vector<Param> numbers(std::string_view prefix,
                           std::initializer_list<uint64_t> values);   // prefix + value
std::vector<Param> words(std::initializer_list<const char*> values);  // label = word
std::vector<Param> product(const std::vector<Param>& a, const std::vector<Param>& b);  // "A.B"
}  // namespace over

class Ladder;
class Signatures;
class Test;

// The performance monitoring registers that a test speaks of. On a microarch without them it is
// skipped as not promised there.
enum class Registers : uint8_t {
  kArchitectural,  // IA32_PERFEVTSELx, the global registers: every microarch but NetBurst
  kNetBurst,       // ESCRs and CCCRs
  kEither,         // none of its own: every microarch
  kNone,           // no PMU at all: every processor, whether a row of facts covers it or not
};

// A registered test, before and after GoogleTest knows it.
struct TestInfo {
  std::string suite;
  std::string name;  // with "/label" for a parameterised one; unique with `suite`
  std::vector<const Clause*> clauses;
  Param param;
  const char* file = "";
  int line = 0;
  std::function<Test*()> make;
  Registers registers = Registers::kArchitectural;
  Stage stage = Stage::kRead;  // its suite's

  std::string id() const { return suite + "." + name; }
};
// In the order of their stages, of the suites' names, and of a suite's file. Ends the process where a suite has no
// SKIDPROOF_SUITE.
std::span<const TestInfo> tests();

// For whom a machine is: which test's, and which of its attempts.
struct MachineRequest {
  uint64_t seed = 1;        // of what the machine is free to choose
  std::string test = {};    // id of the test, or a word for what else measures
  unsigned repetition = 0;  // of the run, from 0 (--repeat)
  unsigned attempt = 0;     // of the test, from 0
};

// Where the machine of a test comes from. The model builds a fresh one for each test, so that a
// test's result does not depend on its neighbours; silicon hands out the one that there is; a tape
// replays what that very attempt met. Errors: kNotRecorded where a tape holds nothing of the test.
class MachineSource {
 public:
  virtual ~MachineSource() = default;
  virtual Expected<std::shared_ptr<Machine>> machine(const MachineRequest& request) = 0;
  // Once the machine of an attempt was given up: an error (kOffTape) voids what the attempt found,
  // whatever that was.
  virtual Expected<void> given_up() { return {}; }
};

// What every test of this process shares; set once by the verb that runs the tests.
struct Environment {
  MachineSource* machines = nullptr;
  uint64_t seed = 1;
  unsigned repetition = 0;  // of the run; its seed is in `seed`
  // What was measured on the machine under test; nullptr: that is begun when a test asks for it.
  std::shared_ptr<calibrate::Calibration> calibration = {};
  // What a stage that did not hold makes of the later ones; nullptr: nothing.
  Ladder* ladder = nullptr;
  bool rates = true;   // a failure is run again for its rate, not only until it is certain
  bool errata = true;  // a listed erratum of this processor explains a failure
  // Which errata the machine under test showed when it was asked; nullptr: that is begun at the first question.
  std::shared_ptr<Signatures> signatures = {};
  MachineShape shape = {};  // what was measured of the machine under test before (--shape)
  // What became of a test, with this number of --repeat, in the interrupted run that this one goes on
  // with, or `skip` where another shard of the run has it: then it is passed over without a row. Empty: there is
  // no such test.
  std::function<std::optional<results::Status>(const TestInfo&, unsigned repetition)> ran_before =
      {};
};
Environment& environment();

// The base of every suite's tests. GoogleTest runs them by register_with_googletest(); judge() runs one without it.
class Test {
 public:
  virtual ~Test() = default;
  const TestInfo& info() const { return *info_; }
  void bind(const TestInfo* info) { info_ = info; }
  // Runs the body once, on a fresh machine: outcome() says what came of it.
  void attempt(unsigned number);

 protected:
  // The machine under test. Accesses and iterations through it are counted.
  Machine& machine();
  // The row of facts for it, with what CPUID and IA32_PERF_CAPABILITIES say of this part in place of the row's
  // own (as_enumerated()); a machine that no row covers never reaches a test's body.
  const arch::Microarch& uarch();
  // The row itself: what other parts have that this one may hide.
  const arch::Microarch& row();
  // What was measured on the machine under test: margins come from here and from the clause.
  const calibrate::Figure& calibrated(calibrate::Quantity quantity);
  const Param& param() const { return info_->param; }
  // A seed for this attempt at this test alone, derived from the run's.
  uint64_t seed() const;
  Random& random();

  // Sizes of the machine under test: what was measured, else what CPUID tells. Nothing of what neither knows.
  MachineShape shape();
  // Generates a registered kernel's program for this machine: allocates code and data, fills the
  // data. `parameters` is "key=value,…"; a value may be a working set by its meaning, "bytes=@beyond-l1"
  // (pebs/footprint.h), for which the row's geometry does where shape() knows nothing. Skips the test when the CPU lacks an
  // instruction set that it needs, or has no such working set.
  const Program& program(std::string_view kernel, std::string_view parameters = "",
                         Mode mode = Mode::kLong);
  // Fills the data of such a program anew, by another seed.
  void refill(const Program& program, uint64_t seed);

  // Evidence for the result row; keys are unique within a test.
  void evidence(std::string_view key, const results::Json& value);
  // An outcome that nothing promises, with what was seen: evidence["observed"][what]. A test that
  // compares nothing ends `observed` with it.
  void observe(std::string_view what, const results::Json& seen);
  // {"kind":"histogram"}: value -> count.
  void histogram(std::string_view key, std::string_view unit,
                 const std::map<int64_t, uint64_t>& bins,
                 const std::vector<int64_t>& expected = {});  // values that the clause allows

  // The value, or the end of this attempt: skipped where the machine declines what it was asked for
  // (kNotAvailable, of a run, an allocation or an RDPMC: it says so before it does anything), else with
  // status `error` (the harness failed, not the property). Once an access has failed otherwise than by
  // #GP, nothing is a skip any more. Where a comparison has already failed, the attempt stays `fail`.
  template <typename T>
  T need(Expected<T> expected, const char* what = "", const char* file = __builtin_FILE(),
         int line = __builtin_LINE()) {
    if (!expected) stop(expected.error(), what, file, line);
    if constexpr (!std::is_void_v<T>) return std::move(expected).value();
  }

  virtual void body() = 0;

 private:
  // The parameters with bytes in place of "@beyond-l1".
  std::string in_bytes(std::string_view parameters);
  void give_machine_back();
  void guarded_body();
  void run_body();
  [[noreturn]] void stop(const Error& error, const char* what, const char* file, int line);

  const TestInfo* info_ = nullptr;
  unsigned attempt_ = 0;
  struct State;
  std::shared_ptr<State> state_;  // of one attempt
};

namespace internal {
int register_test(const char* suite, const char* name, const char* file, int line,
                  std::vector<const Clause*> clauses, std::vector<Param> params,
                  std::function<Test*()> make, Registers registers = Registers::kArchitectural);
int register_suite(const char* suite, Stage stage, const char* file, int line);
// The comparisons of the attempt under way; one more is counted with each call.
Comparisons& comparing();
void skip(results::SkipCategory category, const std::string& reason);
template <typename... C>
std::vector<const Clause*> cite(const C&... clauses) {
  static_assert(sizeof...(C) > 0, "a test cites at least one clause");
  return {&clauses...};
}

// A comparison of whole numbers, as almost all are: compiled once for all their types, and by what they are worth,
// whatever their types.
enum class Relation : uint8_t { kEq, kNe, kLe, kLt, kGe, kGt };
::testing::AssertionResult verify_whole(Relation relation, const char* left, const char* right,
                                        Whole a, Whole b);
// A condition.
::testing::AssertionResult verify_bool(const char* text, bool seen, bool expected);

// GoogleTest's comparisons, as its EXPECT_… use them, put on record first.
#define SKIDPROOF_VERIFY_(name, relation, sign, compare)                                         \
  template <typename L, typename R>                                                              \
  ::testing::AssertionResult name(const char* left, const char* right, const L& a, const R& b) { \
    if constexpr (kIsWhole<L> && kIsWhole<R>) {                                                  \
      return verify_whole(Relation::relation, left, right, Whole(a), Whole(b));                  \
    } else {                                                                                     \
      comparing().add(left, sign, right, a, b);                                                  \
      return ::testing::internal::compare(left, right, a, b);                                    \
    }                                                                                            \
  }
SKIDPROOF_VERIFY_(verify_eq, kEq, "==", EqHelper::Compare)
SKIDPROOF_VERIFY_(verify_ne, kNe, "!=", CmpHelperNE)
SKIDPROOF_VERIFY_(verify_le, kLe, "<=", CmpHelperLE)
SKIDPROOF_VERIFY_(verify_lt, kLt, "<", CmpHelperLT)
SKIDPROOF_VERIFY_(verify_ge, kGe, ">=", CmpHelperGE)
SKIDPROOF_VERIFY_(verify_gt, kGt, ">", CmpHelperGT)
#undef SKIDPROOF_VERIFY_

// What may convert to bool explicitly.
template <bool kExpected>
struct VerifyBool {
  template <typename T>
  ::testing::AssertionResult operator()(const char* text, const T& value) const {
    return verify_bool(text, static_cast<bool>(value), kExpected);
  }
};
}  // namespace internal

// Runs a test until there is a verdict, and asks listed errata for an explanation: outcome() holds it.
void judge(const TestInfo& test);

// Hands the registered tests to GoogleTest; called once, before the run. With a predicate, only
// those that it picks, in `tests()` order. Returns how many.
size_t register_with_googletest();
size_t register_with_googletest(const std::function<bool(const TestInfo&)>& pick);

// GoogleTest's filter language over test ids: "POSITIVE:POSITIVE-NEGATIVE:NEGATIVE" with `*` and
// `?`. No positive pattern means all.
bool matches_filter(std::string_view filter, std::string_view id);

using results::SkipCategory;

}  // namespace skidproof::check

// The stage of the bring-up on which a suite's tests stand; once in each suite's file.
#define SKIDPROOF_SUITE(suite, stage)                                                             \
  [[maybe_unused]] static const int suite##_stage = ::skidproof::check::internal::register_suite( \
      #suite, ::skidproof::check::Stage::stage, __FILE__, __LINE__)

#define SKIDPROOF_TEST_CLASS_(suite, name, params, registers, ...)                            \
  namespace {                                                                                 \
  class suite##_##name : public ::skidproof::check::Test {                                    \
    void body() override;                                                                     \
  };                                                                                          \
  [[maybe_unused]] const int suite##_##name##_registered =                                    \
      ::skidproof::check::internal::register_test(                                            \
          #suite, #name, __FILE__, __LINE__, ::skidproof::check::internal::cite(__VA_ARGS__), \
          params, []() -> ::skidproof::check::Test* { return new suite##_##name; },           \
          ::skidproof::check::Registers::registers);                                          \
  }                                                                                           \
  void suite##_##name::body()

// A test of the clauses named after it (at least one).
#define SKIDPROOF_TEST(suite, name, ...) \
  SKIDPROOF_TEST_CLASS_(suite, name, {}, kArchitectural, __VA_ARGS__)
// One for each Param of the list.
#define SKIDPROOF_TEST_OVER(suite, name, params, ...) \
  SKIDPROOF_TEST_CLASS_(suite, name, params, kArchitectural, __VA_ARGS__)
// The same of NetBurst's registers.
#define SKIDPROOF_NETBURST_TEST(suite, name, ...) \
  SKIDPROOF_TEST_CLASS_(suite, name, {}, kNetBurst, __VA_ARGS__)
#define SKIDPROOF_NETBURST_TEST_OVER(suite, name, params, ...) \
  SKIDPROOF_TEST_CLASS_(suite, name, params, kNetBurst, __VA_ARGS__)

// Of what every microarch has, whatever its registers: the DS area and branch traces.
#define SKIDPROOF_COMMON_TEST(suite, name, ...) \
  SKIDPROOF_TEST_CLASS_(suite, name, {}, kEither, __VA_ARGS__)
#define SKIDPROOF_COMMON_TEST_OVER(suite, name, params, ...) \
  SKIDPROOF_TEST_CLASS_(suite, name, params, kEither, __VA_ARGS__)

// Of what a program costs: no PMU is needed, and no row of facts. Such a test asks for neither uarch() nor row().
#define SKIDPROOF_TIMING_TEST(suite, name, ...) \
  SKIDPROOF_TEST_CLASS_(suite, name, {}, kNone, __VA_ARGS__)
#define SKIDPROOF_TIMING_TEST_OVER(suite, name, params, ...) \
  SKIDPROOF_TEST_CLASS_(suite, name, params, kNone, __VA_ARGS__)

// Ends the test as skipped, with a category of the closed list, unless the condition holds.
#define SKIDPROOF_REQUIRE(condition, category, reason)      \
  do {                                                      \
    if (!(condition)) {                                     \
      ::skidproof::check::internal::skip(category, reason); \
      GTEST_SKIP() << (reason);                             \
    }                                                       \
  } while (false)

// GoogleTest's expectations, on record.
#define VERIFY_THAT(value, matcher)                                                               \
  EXPECT_PRED_FORMAT1(([&](const char* skidproof_text, const auto& skidproof_value) {             \
                        ::skidproof::check::internal::comparing().add(skidproof_text, "matches",  \
                                                                      #matcher, skidproof_value); \
                        return ::testing::internal::MakePredicateFormatterFromMatcher(matcher)(   \
                            skidproof_text, skidproof_value);                                     \
                      }),                                                                         \
                      value)
#define VERIFY_EQ(a, b) EXPECT_PRED_FORMAT2(::skidproof::check::internal::verify_eq, a, b)
#define VERIFY_NE(a, b) EXPECT_PRED_FORMAT2(::skidproof::check::internal::verify_ne, a, b)
#define VERIFY_LE(a, b) EXPECT_PRED_FORMAT2(::skidproof::check::internal::verify_le, a, b)
#define VERIFY_LT(a, b) EXPECT_PRED_FORMAT2(::skidproof::check::internal::verify_lt, a, b)
#define VERIFY_GE(a, b) EXPECT_PRED_FORMAT2(::skidproof::check::internal::verify_ge, a, b)
#define VERIFY_GT(a, b) EXPECT_PRED_FORMAT2(::skidproof::check::internal::verify_gt, a, b)
#define VERIFY_TRUE(a) EXPECT_PRED_FORMAT1(::skidproof::check::internal::VerifyBool<true>(), a)
#define VERIFY_FALSE(a) EXPECT_PRED_FORMAT1(::skidproof::check::internal::VerifyBool<false>(), a)

#endif  // SKIDPROOF_HARNESS_CHECK_CHECK_H_
