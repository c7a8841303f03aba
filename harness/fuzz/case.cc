// Cases to JSON and back.
#include "harness/fuzz/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "pebs/arch/names.h"

namespace skidproof::fuzz {
namespace {

constexpr int kFormat = 1;

constexpr std::string_view kKinds[] = {"write", "rewind", "run"};

Json json_of(const CodeItem& item) {
  Json json = {{"op", name_of(item.op)}};
  if (item.a != 0) json["a"] = item.a;
  if (item.b != 0) json["b"] = item.b;
  if (item.condition != 0) json["condition"] = item.condition;
  if (item.value != 0) json["value"] = item.value;
  return json;
}

Json json_of(const Step& step) {
  Json json = {{"do", kKinds[static_cast<size_t>(step.kind)]}};
  switch (step.kind) {
    case Step::Kind::kWrite:
      json["msr"] = results::hex(step.msr);
      json["name"] = arch::msr_name(step.msr);  // for people; not read back
      json["value"] = results::hex(step.value);
      break;
    case Step::Kind::kRewind:
      break;
    case Step::Kind::kRun:
      json["global-ctrl"] = results::hex(step.value);
      json["iterations"] = step.iterations;
      json["user"] = step.user;
      json["unmask"] = step.unmask;
      json["clear-status"] = step.clear_status;
      break;
  }
  return json;
}

// Reads fields of one object and keeps the first problem.
class Reader {
 public:
  Reader(const Json& json, std::string where, std::string& problem)
      : json_(json), where_(std::move(where)), problem_(problem) {
    if (!json_.is_object()) complain("is no object");
  }

  const Json* find(const char* name, bool required) {
    if (!problem_.empty()) return nullptr;
    auto found = json_.find(name);
    if (found != json_.end()) return &*found;
    if (required) complain(fmt::format("lacks `{}`", name));
    return nullptr;
  }
  void flag(const char* name, bool& value) {
    const Json* found = find(name, false);
    if (found == nullptr) return;
    if (!found->is_boolean()) return complain(fmt::format("`{}` is no boolean", name));
    value = found->get<bool>();
  }
  void text(const char* name, std::string& value) {
    const Json* found = find(name, true);
    if (found == nullptr) return;
    if (!found->is_string()) return complain(fmt::format("`{}` is no string", name));
    value = found->get<std::string>();
  }
  template <typename T>
  void number(const char* name, T& value, bool required, int64_t low,
              int64_t high = std::numeric_limits<int64_t>::max()) {
    const Json* found = find(name, required);
    if (found == nullptr) return;
    bool fits = found->is_number_integer();
    if (fits && found->is_number_unsigned()) {
      fits = found->get<uint64_t>() <= static_cast<uint64_t>(high);
    }
    if (fits) fits = found->get<int64_t>() >= low && found->get<int64_t>() <= high;
    if (!fits) return complain(fmt::format("`{}` is no integer from {} to {}", name, low, high));
    value = static_cast<T>(found->get<int64_t>());
  }
  template <typename T>
  void hexadecimal(const char* name, T& value) {
    const Json* found = find(name, true);
    if (found != nullptr && !read_hexadecimal(*found, value)) {
      complain(fmt::format("`{}` is no hexadecimal string", name));
    }
  }
  template <typename T>
  static bool read_hexadecimal(const Json& json, T& value) {
    if (!json.is_string()) return false;
    const auto& digits = json.get_ref<const std::string&>();
    if (!digits.starts_with("0x")) return false;
    auto [end, error] =
        std::from_chars(digits.data() + 2, digits.data() + digits.size(), value, 16);
    return error == std::errc() && end == digits.data() + digits.size() && digits.size() > 2;
  }
  const Json* list(const char* name, size_t most) {
    const Json* found = find(name, true);
    if (found == nullptr) return nullptr;
    if (found->is_array() && found->size() <= most) return found;
    complain(fmt::format("`{}` is no list of at most {}", name, most));
    return nullptr;
  }
  void complain(const std::string& what) {
    if (problem_.empty()) problem_ = fmt::format("{} {}", where_, what);
  }

 private:
  const Json& json_;
  const std::string where_;
  std::string& problem_;
};

CodeItem item_of(const Json& json, size_t position, std::string& problem) {
  CodeItem item;
  Reader read(json, fmt::format("item {}", position), problem);
  std::string op;
  read.text("op", op);
  if (!problem.empty()) return item;
  bool known = false;
  for (size_t i = 0; i < kOps; ++i) {
    if (name_of(static_cast<Op>(i)) != op) continue;
    item.op = static_cast<Op>(i);
    known = true;
  }
  if (!known) read.complain(fmt::format("has an unknown `op`"));
  read.number("a", item.a, false, 0, kSequenceRegisters - 1);
  read.number("b", item.b, false, 0, kSequenceRegisters - 1);
  read.number("condition", item.condition, false, 0, 15);
  read.number("value", item.value, false, 0, std::numeric_limits<uint32_t>::max());
  return item;
}

Step step_of(const Json& json, size_t position, std::string& problem) {
  Step step;
  Reader read(json, fmt::format("step {}", position), problem);
  std::string kind;
  read.text("do", kind);
  const auto* found = std::find(std::begin(kKinds), std::end(kKinds), kind);
  if (found == std::end(kKinds)) {
    read.complain("has an unknown `do`");
    return step;
  }
  step.kind = static_cast<Step::Kind>(found - std::begin(kKinds));
  if (step.kind == Step::Kind::kWrite) {
    read.hexadecimal("msr", step.msr);
    read.hexadecimal("value", step.value);
  } else if (step.kind == Step::Kind::kRun) {
    read.hexadecimal("global-ctrl", step.value);
    read.number("iterations", step.iterations, true, 1, kMaximumIterations);
    read.flag("user", step.user);
    read.flag("unmask", step.unmask);
    read.flag("clear-status", step.clear_status);
  }
  return step;
}

DebugStorePlan ds_of(const Json& json, std::string& problem) {
  DebugStorePlan ds;
  Reader read(json, "`ds`", problem);
  read.number("index", ds.index, true, -kMaximumBufferBytes, kMaximumBufferBytes);
  read.number("maximum", ds.maximum, true, 0, kMaximumBufferBytes);
  read.number("threshold", ds.threshold, true, -kMaximumBufferBytes, 2 * kMaximumBufferBytes);
  const Json* resets = read.list("resets", 64);
  if (resets == nullptr) return ds;
  for (const Json& value : *resets) {
    if (!Reader::read_hexadecimal(value, ds.resets.emplace_back())) {
      read.complain("`resets` are no hexadecimal strings");
    }
  }
  return ds;
}

}  // namespace

Json json_of(const Case& c) {
  Json json = {{"skidproof-fuzz", kFormat},
               {"machine", c.machine},
               {"sibling-thread", c.sibling_thread},
               {"machine-seed", results::hex(c.machine_seed)},
               {"data-seed", results::hex(c.data_seed)},
               {"loop", c.code.loop}};
  json["code"] = Json::array();
  for (const CodeItem& item : c.code.items) json["code"].push_back(json_of(item));
  Json& ds = json["ds"] = {
      {"index", c.ds.index}, {"maximum", c.ds.maximum}, {"threshold", c.ds.threshold}};
  ds["resets"] = Json::array();
  for (uint64_t value : c.ds.resets) ds["resets"].push_back(results::hex(value));
  json["steps"] = Json::array();
  for (const Step& step : c.steps) json["steps"].push_back(json_of(step));
  return json;
}

Expected<Case> case_of(const Json& json) {
  Case c;
  std::string problem;
  Reader read(json, "the case", problem);
  int format = 0;
  read.number("skidproof-fuzz", format, true, kFormat, kFormat);
  read.text("machine", c.machine);
  read.flag("sibling-thread", c.sibling_thread);
  read.hexadecimal("machine-seed", c.machine_seed);
  read.hexadecimal("data-seed", c.data_seed);
  read.flag("loop", c.code.loop);
  if (const Json* code = read.list("code", kMaximumItems)) {
    for (const Json& item : *code) {
      c.code.items.push_back(item_of(item, c.code.items.size(), problem));
    }
  }
  if (const Json* ds = read.find("ds", true)) c.ds = ds_of(*ds, problem);
  if (const Json* steps = read.list("steps", kMaximumSteps)) {
    for (const Json& step : *steps) c.steps.push_back(step_of(step, c.steps.size(), problem));
  }
  if (problem.empty()) {
    if (auto checked = check_sequence(c.code); !checked) problem = checked.error().message;
  }
  if (!problem.empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("this is no fuzz case: {}", problem),
                "name a file that skidproof fuzz wrote");
  }
  return c;
}

Expected<Case> parse_case(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return fail(ErrorCode::kInvalidArgument, "this is no fuzz case: it is not JSON",
                "name a file that skidproof fuzz wrote");
  }
  // Such a file may carry what was seen around its case.
  if (json.is_object() && json.contains("case")) json = Json(json["case"]);
  return case_of(json);
}

}  // namespace skidproof::fuzz
