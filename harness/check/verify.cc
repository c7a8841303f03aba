// What VERIFY_… says of whole numbers and conditions, in GoogleTest's words.
#include <compare>

#include "harness/check/check.h"

namespace skidproof::check::internal {
namespace {

const char* sign_of(Relation relation) {
  switch (relation) {
    case Relation::kEq:
      return "==";
    case Relation::kNe:
      return "!=";
    case Relation::kLe:
      return "<=";
    case Relation::kLt:
      return "<";
    case Relation::kGe:
      return ">=";
    case Relation::kGt:
      break;
  }
  return ">";
}

bool holds(Relation relation, std::strong_ordering order) {
  switch (relation) {
    case Relation::kEq:
      return std::is_eq(order);
    case Relation::kNe:
      return std::is_neq(order);
    case Relation::kLe:
      return std::is_lteq(order);
    case Relation::kLt:
      return std::is_lt(order);
    case Relation::kGe:
      return std::is_gteq(order);
    case Relation::kGt:
      break;
  }
  return std::is_gt(order);
}

std::string text_of(const Whole& number) {
  return number.is_signed ? std::to_string(static_cast<int64_t>(number.bits))
                          : std::to_string(number.bits);
}

}  // namespace

::testing::AssertionResult verify_whole(Relation relation, const char* left, const char* right,
                                        Whole a, Whole b) {
  comparing().add(left, sign_of(relation), right, a, b);
  if (holds(relation, a <=> b)) return ::testing::AssertionSuccess();
  if (relation == Relation::kEq) {
    return ::testing::internal::EqFailure(left, right, text_of(a), text_of(b), false);
  }
  return ::testing::AssertionFailure()
         << "Expected: (" << left << ") " << sign_of(relation) << " (" << right
         << "), actual: " << text_of(a) << " vs " << text_of(b);
}

::testing::AssertionResult verify_bool(const char* text, bool seen, bool expected) {
  comparing().add(text, expected ? "" : "is false", "", seen);
  if (seen == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "Value of: " << text << "\n  Actual: " << (seen ? "true" : "false")
         << "\nExpected: " << (expected ? "true" : "false");
}

}  // namespace skidproof::check::internal
