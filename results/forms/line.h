// The forms in which the writer writes most lines of a results file: measurements, tests, and that a test starts. A line of a
// form is taken apart without parsing it; what it has in common with the same line of another night is its key.
//
// Whoever knows that one line with a key is JSON, and what it says, knows so of all lines with that key: they differ in
// numbers, and in a test's evidence, alone.
#ifndef SKIDPROOF_RESULTS_FORMS_LINE_H_
#define SKIDPROOF_RESULTS_FORMS_LINE_H_

#include <array>
#include <optional>
#include <string_view>

namespace skidproof::results::forms {

// Texts of JSON numbers, or "null" where that may stand; each is a span of the line.
struct Measurement {
  std::array<std::string_view, 3> key;  // what stands before, between and behind the numbers
  std::string_view value, n, low, high;
  std::string_view involuntary_switches, migrations, smi, steal_s;
};

struct Test {
  std::array<std::string_view, 2> key;  // what stands before the numbers, and behind the evidence
  std::string_view duration_s, seed, repetition, iterations, comparisons;
  std::string_view evidence;                       // in braces
  std::string_view n, k, voided, rate, low, high;  // of its repetitions
};

// Of a line without its end.
std::optional<Measurement> measurement(std::string_view line);
std::optional<Test> test(std::string_view line);
bool is_test_start(std::string_view line);

// A number of one of the lines above; NaN for "null".
double real(std::string_view number);
long long integer(std::string_view number);

}  // namespace skidproof::results::forms

#endif  // SKIDPROOF_RESULTS_FORMS_LINE_H_
