#include "results/forms/line.h"

#include <charconv>
#include <limits>

namespace skidproof::results::forms {
namespace {

constexpr std::string_view kMeasurement = R"({"type":"measurement","machine":)";
constexpr std::string_view kTest = R"({"type":"test",)";
constexpr std::string_view kDuration = R"(,"duration_s":)";
constexpr std::string_view kTestStart = R"({"type":"test-start","machine":)";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What is left of a line. Whatever does not fit makes it fail, and it stays so.
class Rest {
 public:
  explicit Rest(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  bool held() const { return held_; }
  bool held_to_the_end() const { return held_ && at_ == end_; }
  const char* at() const { return at_; }

  Rest& literal(std::string_view words) {
    held_ = held_ && left().substr(0, words.size()) == words;
    if (held_) at_ += words.size();
    return *this;
  }

  // A string without escapes; `plain` ones have printable ASCII alone, and `filled` ones at least one of it.
  Rest& word(bool plain = false, bool filled = false) {
    literal("\"");
    const char* begin = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && *at_ != '\n' &&
           (!plain || (*at_ >= ' ' && *at_ <= '~')))
      ++at_;
    held_ = held_ && (!filled || at_ != begin);
    return literal("\"");
  }

  Rest& strings() {
    literal("[");
    if (next() == ']') return literal("]");
    word(true);
    while (held_ && next() == ',') literal(",").word(true);
    return literal("]");
  }

  // An object without others in it.
  Rest& flat_object() {
    literal("{");
    while (at_ != end_ && *at_ != '{' && *at_ != '}' && *at_ != '\n') ++at_;
    return literal("}");
  }

  Rest& count(std::string_view& found, int most, bool positive = false) {
    const char* begin = at_;
    const int digits = skip_digits(most);
    held_ = held_ && digits > 0 && !(*begin == '0' && (positive || digits > 1)) &&
            !(at_ != end_ && is_digit(*at_));
    found = {begin, static_cast<size_t>(at_ - begin)};
    return *this;
  }

  // Of no more digits than a double certainly holds the size of.
  Rest& number(std::string_view& found, bool or_null = false) {
    if (or_null && left().substr(0, 4) == "null") {
      found = left().substr(0, 4);
      at_ += 4;
      return *this;
    }
    const char* begin = at_;
    const bool negative = next() == '-';
    if (negative) ++at_;
    std::string_view whole;
    count(whole, 15);
    bool real = false;
    if (next() == '.') {
      ++at_;
      held_ = held_ && skip_digits(40) > 0;
      real = true;
    }
    if (next() == 'e' || next() == 'E') {
      ++at_;
      if (next() == '-' || next() == '+') ++at_;
      held_ = held_ && skip_digits(2) > 0;
      real = true;
    }
    held_ =
        held_ && (real || !negative || whole != "0");  // an integer -0 is 0, and a double is not
    found = {begin, static_cast<size_t>(at_ - begin)};
    return *this;
  }

 private:
  std::string_view left() const { return {at_, static_cast<size_t>(end_ - at_)}; }
  char next() const { return at_ == end_ ? '\0' : *at_; }
  int skip_digits(int most) {
    int digits = 0;
    for (; at_ != end_ && digits < most && is_digit(*at_); ++at_) ++digits;
    return digits;
  }

  const char* at_;
  const char* end_;
  bool held_ = true;
};

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::optional<Measurement> measurement(std::string_view line) {
  Rest rest(line);
  Measurement m;
  rest.literal(kMeasurement)
      .word()
      .literal(R"(,"microarch":)")
      .word()
      .literal(R"(,"name":)")
      .word();
  m.key[0] = between(line.data(), rest.at());
  if (!rest.literal(R"(,"value":)").number(m.value).held()) return std::nullopt;
  const char* unit = rest.at();
  rest.literal(R"(,"unit":)").word().literal(R"(,"statistic":)").word();
  m.key[1] = between(unit, rest.at());
  rest.literal(R"(,"n":)").count(m.n, 9, true).literal(R"(,"low":)").number(m.low, true);
  rest.literal(R"(,"high":)").number(m.high, true);
  const char* tail = rest.at();
  rest.literal(R"(,"interval":)").word().literal(R"(,"parameters":)").flat_object();
  m.key[2] = between(tail, rest.at());
  rest.literal(R"(,"noise":{"involuntary_switches":)").count(m.involuntary_switches, 9);
  rest.literal(R"(,"migrations":)").count(m.migrations, 9).literal(R"(,"smi":)").count(m.smi, 9);
  rest.literal(R"(,"steal_s":)").number(m.steal_s).literal("}}");
  if (!rest.held_to_the_end()) return std::nullopt;
  return m;
}

std::optional<Test> test(std::string_view line) {
  if (!line.starts_with(kTest)) return std::nullopt;
  const size_t head = line.find(kDuration);
  const size_t split = line.rfind(R"(},"stage":)");
  if (head == std::string_view::npos || split == std::string_view::npos || split < head)
    return std::nullopt;
  Test t;
  t.key[0] = line.substr(0, head);
  Rest rest(line.substr(head));
  rest.literal(kDuration).number(t.duration_s).literal(R"(,"seed":)").count(t.seed, 18);
  rest.literal(R"(,"repetition":)")
      .count(t.repetition, 9)
      .literal(R"(,"iterations":)")
      .count(t.iterations, 18);
  rest.literal(R"(,"comparisons":)")
      .count(t.comparisons, 18)
      .literal(R"(,"failures":[],"evidence":)");
  const char* const evidence_end = line.data() + split + 1;
  if (!rest.held() || rest.at() >= evidence_end || *rest.at() != '{') return std::nullopt;
  t.evidence = between(rest.at(), evidence_end);
  Rest behind(line.substr(split + 1));
  behind.literal(R"(,"stage":)").word().literal(R"(,"erratum":)").word();
  t.key[1] = between(evidence_end, behind.at());
  behind.literal(R"(,"repetitions":{"n":)").count(t.n, 9).literal(R"(,"k":)").count(t.k, 9);
  behind.literal(R"(,"voided":)").count(t.voided, 9).literal(R"(,"rate":)").number(t.rate);
  behind.literal(R"(,"low":)")
      .number(t.low, true)
      .literal(R"(,"high":)")
      .number(t.high, true)
      .literal("}}");
  if (!behind.held_to_the_end()) return std::nullopt;
  return t;
}

bool is_test_start(std::string_view line) {
  Rest rest(line);
  std::string_view ignored;
  rest.literal(kTestStart)
      .word(true, true)
      .literal(R"(,"microarch":)")
      .word(true)
      .literal(R"(,"id":)")
      .word(true, true);
  rest.literal(R"(,"clauses":)")
      .strings()
      .literal(R"(,"seed":)")
      .count(ignored, 18)
      .literal(R"(,"repetition":)");
  rest.count(ignored, 9).literal(R"(,"started":)").word(true).literal("}");
  return rest.held_to_the_end();
}

double real(std::string_view number) {
  double value = std::numeric_limits<double>::quiet_NaN();
  std::from_chars(number.data(), number.data() + number.size(), value);
  return value;
}

long long integer(std::string_view number) {
  long long value = 0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  return value;
}

}  // namespace skidproof::results::forms
