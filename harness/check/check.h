// GoogleTest glue: tests that cite clauses, typed skips, counted comparisons, evidence.
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
// something through VERIFY_…; one that did neither is an error, never a pass.
#ifndef SKIDPROOF_HARNESS_CHECK_CHECK_H_
#define SKIDPROOF_HARNESS_CHECK_CHECK_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/random.h"
#include "kernels/kernel.h"
#include "pebs/arch/clause.h"
#include "pebs/machine.h"
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

class Test;

// The performance monitoring registers that a test speaks of. On a microarch without them it is
// skipped as not promised there.
enum class Registers : uint8_t {
  kArchitectural,  // IA32_PERFEVTSELx, the global registers: every microarch but NetBurst
  kNetBurst,       // ESCRs and CCCRs
  kEither,         // none of its own: every microarch
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

  std::string id() const { return suite + "." + name; }
};
std::span<const TestInfo> tests();

// Where the machine of a test comes from. The model builds a fresh one for each test, so that a
// test's result does not depend on its neighbours; silicon hands out the one that there is.
class MachineSource {
 public:
  virtual ~MachineSource() = default;
  virtual Expected<std::shared_ptr<Machine>> machine(uint64_t seed) = 0;
};

// What every test of this process shares; set once by the verb that runs the tests.
struct Environment {
  MachineSource* machines = nullptr;
  uint64_t seed = 1;
};
Environment& environment();

// The base of every suite's tests.
class Test : public ::testing::Test {
 public:
  const TestInfo& info() const { return *info_; }
  void bind(const TestInfo* info) { info_ = info; }

 protected:
  // The machine under test. Accesses and iterations through it are counted.
  Machine& machine();
  // The row of facts for it; a machine that no row covers never reaches a test's body.
  const arch::Microarch& uarch();
  const Param& param() const { return info_->param; }
  // A seed for this test alone, derived from the run's.
  uint64_t seed() const;
  Random& random();

  // Generates a registered kernel's program for this machine: allocates code and data, fills the
  // data. `parameters` is "key=value,…". Skips the test when the CPU lacks an instruction set that
  // it needs.
  const Program& program(std::string_view kernel, std::string_view parameters = "",
                         Mode mode = Mode::kLong);

  // Evidence for the result row; keys are unique within a test.
  void evidence(std::string_view key, const nlohmann::json& value);
  // {"kind":"histogram"}: value -> count.
  void histogram(std::string_view key, std::string_view unit,
                 const std::map<int64_t, uint64_t>& bins,
                 const std::vector<int64_t>& expected = {});  // values that the clause allows

  // The value, or the end of this test: skipped where the machine has no such thing (kNotAvailable),
  // else with status `error` (the harness failed, not the property).
  // Where a comparison has already failed, the test stays `fail`.
  template <typename T>
  T need(Expected<T> expected, const char* what = "", const char* file = __builtin_FILE(),
         int line = __builtin_LINE()) {
    if (!expected) stop(expected.error(), what, file, line);
    if constexpr (!std::is_void_v<T>) return std::move(expected).value();
  }

  virtual void body() = 0;

 private:
  void SetUp() final;
  void TestBody() final;
  void TearDown() final;
  void run_body();
  [[noreturn]] void stop(const Error& error, const char* what, const char* file, int line);

  const TestInfo* info_ = nullptr;
  struct State;
  std::shared_ptr<State> state_;
};

namespace internal {
int register_test(const char* suite, const char* name, const char* file, int line,
                  std::vector<const Clause*> clauses, std::vector<Param> params,
                  std::function<Test*()> make, Registers registers = Registers::kArchitectural);
void count_comparison();
template <typename T>
T&& counted(T&& value) {
  count_comparison();
  return std::forward<T>(value);
}
void skip(results::SkipCategory category, const std::string& reason);
template <typename... C>
std::vector<const Clause*> cite(const C&... clauses) {
  static_assert(sizeof...(C) > 0, "a test cites at least one clause");
  return {&clauses...};
}
}  // namespace internal

// Hands the registered tests to GoogleTest; called once, before the run. With a predicate, only
// those that it picks, in `tests()` order. Returns how many.
size_t register_with_googletest();
size_t register_with_googletest(const std::function<bool(const TestInfo&)>& pick);

// GoogleTest's filter language over test ids: "POSITIVE:POSITIVE-NEGATIVE:NEGATIVE" with `*` and
// `?`. No positive pattern means all.
bool matches_filter(std::string_view filter, std::string_view id);

using results::SkipCategory;

}  // namespace skidproof::check

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

// Ends the test as skipped, with a category of the closed list, unless the condition holds.
#define SKIDPROOF_REQUIRE(condition, category, reason)      \
  do {                                                      \
    if (!(condition)) {                                     \
      ::skidproof::check::internal::skip(category, reason); \
      GTEST_SKIP() << (reason);                             \
    }                                                       \
  } while (false)

// GoogleTest's expectations, counted.
#define VERIFY_THAT(value, matcher) \
  EXPECT_THAT(::skidproof::check::internal::counted(value), matcher)
#define VERIFY_EQ(a, b) EXPECT_EQ(::skidproof::check::internal::counted(a), b)
#define VERIFY_NE(a, b) EXPECT_NE(::skidproof::check::internal::counted(a), b)
#define VERIFY_LE(a, b) EXPECT_LE(::skidproof::check::internal::counted(a), b)
#define VERIFY_LT(a, b) EXPECT_LT(::skidproof::check::internal::counted(a), b)
#define VERIFY_GE(a, b) EXPECT_GE(::skidproof::check::internal::counted(a), b)
#define VERIFY_GT(a, b) EXPECT_GT(::skidproof::check::internal::counted(a), b)
#define VERIFY_TRUE(a) EXPECT_TRUE(::skidproof::check::internal::counted(a))
#define VERIFY_FALSE(a) EXPECT_FALSE(::skidproof::check::internal::counted(a))

#endif  // SKIDPROOF_HARNESS_CHECK_CHECK_H_
