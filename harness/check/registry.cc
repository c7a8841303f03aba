// The list of registered tests, the parameter lists they are made from, and the filter over their
// ids.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "harness/check/check.h"
#include "harness/check/outcome.h"

namespace skidproof::check {
namespace {

std::vector<TestInfo>& registry() {
  static std::vector<TestInfo> all;
  return all;
}

std::map<std::string, Stage>& stages() {
  static std::map<std::string, Stage> all;
  return all;
}

// Every suite says its stage: without one nobody knew when its tests may run. Within a stage suites follow their names
// and tests their file, whatever order the linker had.
void assign_stages() {
  for (TestInfo& info : registry()) {
    const auto found = stages().find(info.suite);
    if (found == stages().end()) {
      fmt::print(stderr,
                 "{}:{}: the suite {} has no stage: add SKIDPROOF_SUITE({}, k…) to its file\n",
                 info.file, info.line, info.suite, info.suite);
      std::abort();
    }
    info.stage = found->second;
  }
  std::stable_sort(registry().begin(), registry().end(), [](const TestInfo& a, const TestInfo& b) {
    return std::tie(a.stage, a.suite) < std::tie(b.stage, b.suite);
  });
}

std::string safe_label(std::string label) {
  for (char& c : label) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                      std::string_view(".+=,_").find(c) != std::string_view::npos;
    if (!kept) c = '_';
  }
  return label;
}

// Two tests of one name would be one row's id: a mistake of the suite, found at start-up.
void add(TestInfo info) {
  static std::set<std::string> ids;
  if (!ids.insert(info.id()).second) {
    fmt::print(stderr, "{}:{}: the test {} is registered twice\n", info.file, info.line, info.id());
    std::abort();
  }
  registry().push_back(std::move(info));
}

// What GoogleTest runs in a test's place: it is told the verdict, of a skip the reason alone; the category is in the row.
class Reported final : public ::testing::Test {
 public:
  explicit Reported(const TestInfo& info) : info_(info) {}

 private:
  void TestBody() override {
    if (outcome().left_out) return;
    judge(info_);
    const Outcome& now = outcome();
    if (now.status == results::Status::kFail || now.status == results::Status::kError) {
      FAIL() << in_lines(now.failures) << in_lines(now.errors);
    } else if (now.status == results::Status::kSkip) {
      GTEST_SKIP() << now.reason;
    }
  }

  const TestInfo& info_;
};

// `*` and `?` over a whole name.
bool matches_glob(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool matches_any(std::string_view patterns, std::string_view id) {
  while (true) {
    const size_t colon = patterns.find(':');
    if (matches_glob(patterns.substr(0, colon), id)) return true;
    if (colon == std::string_view::npos) return false;
    patterns.remove_prefix(colon + 1);
  }
}

}  // namespace

namespace over {

std::vector<Param> counters(std::initializer_list<unsigned> counters) {
  std::vector<Param> params;
  for (unsigned counter : counters) {
    params.push_back({.label = fmt::format("PMC{}", counter), .numbers = {counter}});
  }
  return params;
}

std::vector<Param> numbers(std::string_view prefix, std::initializer_list<uint64_t> values) {
  std::vector<Param> params;
  for (uint64_t value : values) {
    params.push_back({.label = fmt::format("{}{}", prefix, value), .numbers = {value}});
  }
  return params;
}

std::vector<Param> words(std::initializer_list<const char*> values) {
  std::vector<Param> params;
  for (const char* value : values) params.push_back({.label = value, .words = {value}});
  return params;
}

std::vector<Param> product(const std::vector<Param>& a, const std::vector<Param>& b) {
  std::vector<Param> params;
  for (const Param& first : a) {
    for (const Param& second : b) {
      Param both = first;
      both.label += "." + second.label;
      both.numbers.insert(both.numbers.end(), second.numbers.begin(), second.numbers.end());
      both.words.insert(both.words.end(), second.words.begin(), second.words.end());
      params.push_back(std::move(both));
    }
  }
  return params;
}

}  // namespace over

std::span<const TestInfo> tests() {
  [[maybe_unused]] static const bool assigned = (assign_stages(), true);
  return registry();
}

Environment& environment() {
  static Environment shared;
  return shared;
}

namespace internal {

int register_suite(const char* suite, Stage stage, const char* file, int line) {
  if (!stages().try_emplace(suite, stage).second) {
    fmt::print(stderr, "{}:{}: the suite {} has a stage already\n", file, line, suite);
    std::abort();
  }
  return 1;
}

int register_test(const char* suite, const char* name, const char* file, int line,
                  std::vector<const Clause*> clauses, std::vector<Param> params,
                  std::function<Test*()> make, Registers registers) {
  if (params.empty()) {
    add({suite, name, std::move(clauses), {}, file, line, std::move(make), registers});
    return 1;
  }
  for (Param& param : params) {
    const std::string full = fmt::format("{}/{}", name, safe_label(param.label));
    add({suite, full, clauses, std::move(param), file, line, make, registers});
  }
  return static_cast<int>(params.size());
}

}  // namespace internal

size_t register_with_googletest(const std::function<bool(const TestInfo&)>& pick) {
  size_t count = 0;
  for (const TestInfo& info : tests()) {
    if (!pick(info)) continue;
    ::testing::RegisterTest(info.suite.c_str(), info.name.c_str(), nullptr,
                            info.param.label.empty() ? nullptr : info.param.label.c_str(),
                            info.file, info.line,
                            [&info]() -> ::testing::Test* { return new Reported(info); });
    ++count;
  }
  return count;
}

size_t register_with_googletest() {
  return register_with_googletest([](const TestInfo&) { return true; });
}

bool matches_filter(std::string_view filter, std::string_view id) {
  const size_t dash = filter.find('-');
  const std::string_view positive = filter.substr(0, dash);
  if (!positive.empty() && !matches_any(positive, id)) return false;
  return dash == std::string_view::npos || !matches_any(filter.substr(dash + 1), id);
}

}  // namespace skidproof::check
