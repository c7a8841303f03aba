// What a test compared: how often each expression, and with which values. It is the evidence of tests
// that give no other.
#ifndef SKIDPROOF_HARNESS_CHECK_COMPARISONS_H_
#define SKIDPROOF_HARNESS_CHECK_COMPARISONS_H_

#include <gtest/gtest.h>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "results/row.h"

namespace skidproof::check {

using Number = std::variant<int64_t, uint64_t, double>;

// A whole number of any type but bool and characters, which print otherwise.
template <typename T>
inline constexpr bool kIsWhole = std::is_integral_v<T> && sizeof(T) >= 2 &&
                                 !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char16_t> &&
                                 !std::is_same_v<T, char32_t>;
struct Whole {
  template <typename T>
  explicit Whole(T value) : bits(static_cast<uint64_t>(value)), is_signed(std::is_signed_v<T>) {}
  Number number() const;
  std::strong_ordering operator<=>(const Whole& other) const;

  uint64_t bits;  // in two's complement
  bool is_signed;
};

// One side of a comparison. Of numbers the first, the last, the least and the most; of anything else
// the first alone, in words. NOLINTNEXTLINE(bugprone-exception-escape): moving JSON asserts, and throws nothing
class Values {
 public:
  template <typename T>
  void take(const T& value, bool first) {
    if constexpr (std::is_enum_v<T>) {
      take(static_cast<std::underlying_type_t<T>>(value), first);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (first) words_ = value;
    } else if constexpr (std::is_floating_point_v<T>) {
      number(static_cast<double>(value), first);
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      number(static_cast<int64_t>(value), first);
    } else if constexpr (std::is_integral_v<T>) {
      number(static_cast<uint64_t>(value), first);
    } else if (first) {
      words(value);
    }
  }
  void take(const Whole& value, bool first) { number(value.number(), first); }
  bool numeric() const { return words_.is_null(); }
  // {"first", "last", "least", "most"} of numbers that differ, else the one value.
  results::Json json() const;

 private:
  template <typename T>
  void words(const T& value) {
    if constexpr (std::is_pointer_v<T> || std::is_null_pointer_v<T>) {
      keep(value == nullptr ? "null" : "not null");  // where it points differs from run to run
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      keep(std::string(std::string_view(value)));
    } else {
      keep(::testing::PrintToString(value));
    }
  }
  void number(Number value, bool first);
  void keep(std::string words);

  Number first_{}, last_{}, least_{}, most_{};
  results::Json words_;  // null: numbers
};

class Comparisons {
 public:
  void add(const char* left, const char* relation, const char* right, const Whole& seen,
           const Whole& expected);
  template <typename L, typename R>
  void add(const char* left, const char* relation, const char* right, const L& seen,
           const R& expected) {
    Comparison& one = at(left, relation, right);
    one.seen.take(seen, one.times == 0);
    one.expected.take(expected, one.times == 0);
    ++one.times;
  }
  // Against something that is no value: a matcher, a condition.
  template <typename T>
  void add(const char* left, const char* relation, const char* right, const T& seen) {
    Comparison& one = at(left, relation, right);
    one.seen.take(seen, one.times == 0);
    one.against_value = false;
    ++one.times;
  }
  uint64_t total() const;
  // {"a == b": {"times", "seen", "expected"}, …}, the first kShown of them, and {"others": times}.
  results::Json json() const;
  static constexpr size_t kShown = 12;

 private:
  struct Comparison {
    std::string_view left, relation, right;  // of the source: literals, which outlive the test
    uint64_t times = 0;
    bool against_value = true;
    Values seen, expected;
  };
  Comparison& at(const char* left, const char* relation, const char* right);

  std::vector<Comparison> all_;
  size_t last_ = 0;  // where the latest was found: loops compare the same again
};

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_COMPARISONS_H_
