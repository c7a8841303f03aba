// Comparisons kept small: a line of evidence for each expression, however often it was evaluated.
#include "harness/check/comparisons.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace skidproof::check {
namespace {

using results::Json;

constexpr size_t kMostWords = 80;               // characters of a value
constexpr size_t kMostText = 160;               // … and of an expression
constexpr uint64_t kExact = uint64_t{1} << 53;  // beyond, readers with doubles lose bits

std::string shortened(std::string text, size_t most) {
  if (text.size() > most) text = text.substr(0, most) + " …";
  return text;
}

// Expressions of several lines in the source are one line here.
std::string one_line(std::string_view text) {
  std::string line;
  for (char c : text) {
    if (c == '\n' || c == '\t') c = ' ';
    if (c != ' ' || !line.ends_with(' ')) line += c;
  }
  return line;
}

long double wide(const Number& number) {
  return std::visit([](auto value) { return static_cast<long double>(value); }, number);
}

Json json_of(const Number& number) {
  if (const auto* whole = std::get_if<uint64_t>(&number); whole != nullptr && *whole > kExact) {
    return results::hex(*whole);
  }
  return std::visit([](auto value) { return Json(value); }, number);
}

}  // namespace

Number Whole::number() const {
  if (is_signed) return static_cast<int64_t>(bits);
  return bits;
}

std::strong_ordering Whole::operator<=>(const Whole& other) const {
  const bool negative = is_signed && static_cast<int64_t>(bits) < 0;
  const bool other_negative = other.is_signed && static_cast<int64_t>(other.bits) < 0;
  if (negative != other_negative) return other_negative <=> negative;
  return bits <=> other.bits;  // two's complement orders negative numbers too
}

void Comparisons::add(const char* left, const char* relation, const char* right, const Whole& seen,
                      const Whole& expected) {
  Comparison& one = at(left, relation, right);
  one.seen.take(seen, one.times == 0);
  one.expected.take(expected, one.times == 0);
  ++one.times;
}

void Values::number(Number value, bool first) {
  if (first) first_ = least_ = most_ = value;
  last_ = value;
  if (wide(value) < wide(least_)) least_ = value;
  if (wide(value) > wide(most_)) most_ = value;
}

// What GoogleTest shows of a type that it cannot print are its bytes, host addresses among them.
void Values::keep(std::string words) {
  words_ = words.find("-byte object <") == std::string::npos
               ? shortened(std::move(words), kMostWords)
               : "an object";
}

Json Values::json() const {
  if (!numeric()) return words_;
  if (least_ == most_) return json_of(first_);
  return {{"first", json_of(first_)},
          {"last", json_of(last_)},
          {"least", json_of(least_)},
          {"most", json_of(most_)}};
}

Comparisons::Comparison& Comparisons::at(const char* left, const char* relation,
                                         const char* right) {
  const auto same = [&](const Comparison& one) {
    return one.left.data() == left && one.right.data() == right && one.relation.data() == relation;
  };
  if (last_ < all_.size() && same(all_[last_])) return all_[last_];
  const auto found = std::find_if(all_.begin(), all_.end(), same);
  last_ = static_cast<size_t>(found - all_.begin());
  if (found != all_.end()) return *found;
  return all_.emplace_back(Comparison{.left = left, .relation = relation, .right = right});
}

uint64_t Comparisons::total() const {
  uint64_t sum = 0;
  for (const Comparison& one : all_) sum += one.times;
  return sum;
}

Json Comparisons::json() const {
  Json json = Json::object();
  uint64_t others = 0;
  for (const Comparison& one : all_) {
    std::string text = one_line(one.left);
    for (std::string_view part : {one.relation, one.right}) {
      if (!part.empty()) text += " " + one_line(part);
    }
    text = shortened(std::move(text), kMostText);
    if (json.size() == kShown || json.contains(text)) {
      others += one.times;
      continue;
    }
    json[text] = {{"times", one.times}, {"seen", one.seen.json()}};
    if (one.against_value) json[text]["expected"] = one.expected.json();
  }
  if (others > 0) json["others"] = others;
  return json;
}

}  // namespace skidproof::check
