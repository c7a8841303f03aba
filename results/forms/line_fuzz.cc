// Lines from anywhere: where a line is of a form and what it has in common with others is JSON, then the line is JSON, and its
// numbers are those that a parser finds. The first byte says whether the rest is a line, or stands, piece by piece, in one of a form.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "results/forms/line.h"

namespace {

using Json = nlohmann::json;
using namespace skidproof::results::forms;

void expect(bool held) {
  if (!held) std::abort();
}

void expect_real(const Json& parsed, std::string_view number) {
  if (number == "null") return expect(parsed.is_null());
  expect(parsed.is_number() && parsed.get<double>() == real(number));
}

void expect_count(const Json& parsed, std::string_view number) {
  expect(parsed.is_number_unsigned() &&
         parsed.get<uint64_t>() == static_cast<uint64_t>(integer(number)));
}

// A NUL is no JSON: this parser takes it for the end of what it is given.
Json parse(std::string_view words) {
  if (words.find('\0') != std::string_view::npos) return Json(Json::value_t::discarded);
  return Json::parse(words, nullptr, false);
}

// The same line with other numbers in it.
std::string like(const Measurement& m) {
  return std::string(m.key[0])
      .append(R"(,"value":1)")
      .append(m.key[1])
      .append(R"(,"n":1,"low":1,"high":1)")
      .append(m.key[2])
      .append(R"(,"noise":{"involuntary_switches":0,"migrations":0,"smi":0,"steal_s":0}})");
}

std::string like(const Test& t) {
  return std::string(t.key[0])
      .append(
          R"(,"duration_s":1,"seed":1,"repetition":0,"iterations":0,"comparisons":0,"failures":[],"evidence":{})")
      .append(t.key[1])
      .append(R"(,"repetitions":{"n":1,"k":0,"voided":0,"rate":0,"low":0,"high":0}})");
}

struct Slot {
  std::string_view before, usual;
};

constexpr Slot kMeasured[] = {{R"({"type":"measurement","machine":)", R"("a")"},
                              {R"(,"microarch":)", R"("b")"},
                              {R"(,"name":)", R"("c")"},
                              {R"(,"value":)", "1.5"},
                              {R"(,"unit":)", R"("ns")"},
                              {R"(,"statistic":)", R"("median")"},
                              {R"(,"n":)", "21"},
                              {R"(,"low":)", "1"},
                              {R"(,"high":)", "null"},
                              {R"(,"interval":)", R"("range")"},
                              {R"(,"parameters":)", R"({"bytes":64})"},
                              {R"(,"noise":{"involuntary_switches":)", "0"},
                              {R"(,"migrations":)", "1"},
                              {R"(,"smi":)", "2"},
                              {R"(,"steal_s":)", "0.0"},
                              {"}}", ""}};
constexpr Slot kTested[] = {{R"({"type":"test",)", R"("id":"a.b","status":"pass")"},
                            {R"(,"duration_s":)", "0.1"},
                            {R"(,"seed":)", "1"},
                            {R"(,"repetition":)", "0"},
                            {R"(,"iterations":)", "10"},
                            {R"(,"comparisons":)", "3"},
                            {R"(,"failures":[],"evidence":)", R"({"a":1})"},
                            {R"(,"stage":)", R"("x")"},
                            {R"(,"erratum":)", R"("")"},
                            {R"(,"repetitions":{"n":)", "1"},
                            {R"(,"k":)", "0"},
                            {R"(,"voided":)", "0"},
                            {R"(,"rate":)", "0.5"},
                            {R"(,"low":)", "0"},
                            {R"(,"high":)", "1e-3"},
                            {"}}", ""}};
constexpr Slot kStarted[] = {{R"({"type":"test-start","machine":)", R"("a")"},
                             {R"(,"microarch":)", R"("")"},
                             {R"(,"id":)", R"("a.b")"},
                             {R"(,"clauses":)", R"(["R1","R2"])"},
                             {R"(,"seed":)", "1"},
                             {R"(,"repetition":)", "0"},
                             {R"(,"started":)", R"("2026-01-05T02:00:00Z")"},
                             {"}", ""}};

// The form's line with the pieces in its slots; an empty piece leaves what is usual there.
template <size_t N>
std::string filled(const Slot (&slots)[N], std::string_view pieces) {
  std::string line;
  for (const Slot& slot : slots) {
    const std::string_view piece = pieces.substr(0, pieces.find('\n'));
    pieces.remove_prefix(std::min(pieces.size(), piece.size() + 1));
    line += slot.before;
    line += piece.empty() ? slot.usual : piece;
  }
  return line;
}

std::string line_of(std::string_view input) {
  const std::string_view rest = input.substr(1);
  switch (input.front() % 4) {
    case 0:
      return filled(kMeasured, rest);
    case 1:
      return filled(kTested, rest);
    case 2:
      return filled(kStarted, rest);
    default:
      return std::string(rest);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string line = line_of({reinterpret_cast<const char*>(data), size});
  if (const auto m = measurement(line); m && parse(like(*m)).is_object()) {
    const Json row = parse(line);
    expect(row.is_object() && row["type"] == "measurement");
    expect_real(row["value"], m->value);
    expect_real(row["low"], m->low);
    expect_real(row["high"], m->high);
    expect_count(row["n"], m->n);
    expect_count(row["noise"]["involuntary_switches"], m->involuntary_switches);
    expect_count(row["noise"]["migrations"], m->migrations);
    expect_count(row["noise"]["smi"], m->smi);
    expect_real(row["noise"]["steal_s"], m->steal_s);
  }
  if (const auto t = test(line); t && parse(t->evidence).is_object()) {
    const Json head = parse(std::string(t->key[0]).append("}"));
    if (head.is_object() && parse(like(*t)).is_object()) {
      const Json row = parse(line);
      expect(row.is_object() && row["evidence"] == parse(t->evidence));
      expect_real(row["duration_s"], t->duration_s);
      expect_count(row["seed"], t->seed);
      expect_count(row["repetition"], t->repetition);
      expect_count(row["iterations"], t->iterations);
      expect_count(row["comparisons"], t->comparisons);
      expect_count(row["repetitions"]["n"], t->n);
      expect_count(row["repetitions"]["k"], t->k);
      expect_count(row["repetitions"]["voided"], t->voided);
      expect_real(row["repetitions"]["rate"], t->rate);
      expect_real(row["repetitions"]["low"], t->low);
      expect_real(row["repetitions"]["high"], t->high);
    }
  }
  if (is_test_start(line)) {
    const Json row = parse(line);
    expect(row.is_object() && row["type"] == "test-start" && row["id"].is_string() &&
           !row["id"].get<std::string>().empty());
  }
  return 0;
}
