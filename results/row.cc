// The rows' fields, named once for writing and reading, and the rules that every row keeps.
#include "results/row.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <concepts>
#include <ctime>
#include <limits>
#include <type_traits>

namespace skidproof::results {
namespace {

// ---------------------------------------------------------------------------------------------------
// Fields: one list per row, visited by a FieldWriter with a const row and by a FieldReader.

template <typename T, typename Row>
concept MaybeConst = std::same_as<std::remove_const_t<T>, Row>;

// Stands for a number that rows hold as a hexadecimal string, or null.
template <typename T>
struct HexField {
  T& value;
};

// Stands for a field that was added to schema 1 later: always written, and left as it is where an
// older row lacks it.
template <typename T>
struct Added {
  T& value;
};
template <typename T>
Added(T&) -> Added<T>;

// The same of one that most rows do not have: it is written where there is something to say.
template <typename T>
struct Sparse {
  T& value;
};
template <typename T>
Sparse(T&) -> Sparse<T>;

void fields(auto&& field, MaybeConst<RunShard> auto& shard) {
  field("index", shard.index);
  field("of", shard.of);
  field("planned", shard.planned);
  field("plan", shard.plan);
  field("all", shard.all);
}

void fields(auto&& field, MaybeConst<RunRow> auto& row) {
  field("id", row.id);
  field("started", row.started);
  field("command", row.command);
  field("seed", row.seed);
  field("version", row.version);
  field("machine", row.machine);
  field("tape", Added{row.tape});
  field("shard", Sparse{row.shard});
  field("merged_from", Sparse{row.merged_from});
}

void fields(auto&& field, MaybeConst<MachineRow> auto& row) {
  field("machine", row.machine);
  field("name", row.machine);
  field("provenance", row.provenance);
  field("vendor", row.vendor);
  field("brand", row.brand);
  field("family", row.family);
  field("model", row.model);
  field("stepping", row.stepping);
  field("microcode", HexField<decltype((row.microcode))>{row.microcode});
  field("microarch", row.microarch);
  field("hypervisor", row.hypervisor);
  field("core_type", row.core_type);
  field("pmu", row.pmu);
  field("sibling_thread", row.sibling_thread);
  field("capabilities", row.capabilities);
  field("defects", row.defects);
  field("host", row.host);
  field("os", row.os);
  field("bios", Added{row.bios});
  field("tape", Added{row.tape});
  field("event_list", Added{row.event_list});
  field("event_list_file", Added{row.event_list_file});
}

void fields(auto&& field, MaybeConst<TestStartRow> auto& row) {
  field("machine", row.machine);
  field("microarch", row.microarch);
  field("id", row.id);
  field("clauses", row.clauses);
  field("seed", row.seed);
  field("repetition", row.repetition);
  field("started", row.started);
}

void fields(auto&& field, MaybeConst<Repetitions> auto& group) {
  field("n", group.n);
  field("k", group.k);
  field("voided", group.voided);
  field("rate", group.rate);
  field("low", group.low);
  field("high", group.high);
}

void fields(auto&& field, MaybeConst<TestRow> auto& row) {
  field("machine", row.machine);
  field("microarch", row.microarch);
  field("id", row.id);
  field("clauses", row.clauses);
  field("citations", row.citations);
  field("status", row.status);
  field("skip_category", row.skip_category);
  field("reason", row.reason);
  field("duration_s", row.duration_s);
  field("seed", row.seed);
  field("repetition", row.repetition);
  field("iterations", row.iterations);
  field("comparisons", row.comparisons);
  field("failures", row.failures);
  field("evidence", row.evidence);
  field("stage", Added{row.stage});
  field("erratum", Added{row.erratum});
  field("repetitions", Added{row.repetitions});
}

void fields(auto&& field, MaybeConst<MeasurementNoise> auto& noise) {
  field("involuntary_switches", noise.involuntary_switches);
  field("migrations", noise.migrations);
  field("smi", noise.smi);
  field("steal_s", noise.steal_s);
}

void fields(auto&& field, MaybeConst<MeasurementStartRow> auto& row) {
  field("machine", row.machine);
  field("microarch", row.microarch);
  field("name", row.name);
  field("started", row.started);
}

void fields(auto&& field, MaybeConst<UnmeasuredRow> auto& row) {
  field("machine", row.machine);
  field("microarch", row.microarch);
  field("name", row.name);
  field("reason", row.reason);
}

void fields(auto&& field, MaybeConst<MeasurementRow> auto& row) {
  field("machine", row.machine);
  field("microarch", row.microarch);
  field("name", row.name);
  field("value", row.value);
  field("unit", row.unit);
  field("statistic", row.statistic);
  field("n", row.n);
  field("low", row.low);
  field("high", row.high);
  field("interval", row.interval);
  field("parameters", row.parameters);
  field("noise", row.noise);
  field("counts", Sparse{row.counts});
  field("counts_agree", Sparse{row.counts_agree});
  field("counts_differ", Sparse{row.counts_differ});
}

void fields(auto&& field, MaybeConst<DefectRow> auto& row) {
  field("machine", row.machine);
  field("microarch", row.microarch);
  field("id", row.id);
  field("clause", row.clause);
  field("brief", row.brief);
  field("caught", row.caught);
  field("caught_by", row.caught_by);
  field("tests_run", row.tests_run);
  field("duration_s", row.duration_s);
}

void fields(auto&& field, MaybeConst<QualificationRow> auto& row) {
  field("machine", row.machine);
  field("microarchs", row.microarchs);
  field("seeds", row.seeds);
  field("conforming_runs", row.conforming_runs);
  field("conforming_failures", row.conforming_failures);
  field("accused_by", row.accused_by);
  field("defects", row.defects);
  field("caught", row.caught);
  field("missed", row.missed);
  field("tests_without_catch", row.tests_without_catch);
  field("held", row.held);
  field("duration_s", row.duration_s);
}

void fields(auto&& field, MaybeConst<QualificationShardRow> auto& row) {
  field("machine", row.machine);
  field("microarchs", row.microarchs);
  field("seeds", row.seeds);
  field("seed", row.seed);
  field("all", row.all);
  field("units", row.units);
  field("tests_run", row.tests_run);
  field("tests_caught", row.tests_caught);
  field("problems", row.problems);
  field("duration_s", row.duration_s);
}

void fields(auto&& field, MaybeConst<FuzzRow> auto& row) {
  field("machine", row.machine);
  field("microarchs", row.microarchs);
  field("cases", row.cases);
  field("runs", row.runs);
  field("exact_runs", row.exact_runs);
  field("instructions", row.instructions);
  field("records", row.records);
  field("exact_records", row.exact_records);
  field("writes", row.writes);
  field("refused", row.refused);
  field("interrupts", row.interrupts);
  field("cases_per_s", row.cases_per_s);
  field("violations", row.violations);
  field("violation", row.violation);
  field("held", row.held);
  field("duration_s", row.duration_s);
}

void fields(auto&& field, MaybeConst<ErratumRow> auto& row) {
  field("machine", row.machine);
  field("microarch", row.microarch);
  field("id", row.id);
  field("aliases", row.aliases);
  field("title", row.title);
  field("core_type", row.core_type);
  field("listed", row.listed);
  field("listed_by", row.listed_by);
  field("listed_why", row.listed_why);
  field("fixed_from", HexField<decltype((row.fixed_from))>{row.fixed_from});
  field("observed", row.observed);
  field("observed_why", row.observed_why);
  field("tries", row.tries);
  field("shown", row.shown);
  field("excluded_rate", row.excluded_rate);
  field("exposure", row.exposure);
  field("exposure_why", row.exposure_why);
  field("contradiction", row.contradiction);
}

void fields(auto&& field, MaybeConst<InventoryRow> auto& row) {
  field("machine", row.machine);
  field("line", row.line);
  field("vendor", row.vendor);
  field("family", row.family);
  field("model", row.model);
  field("stepping", row.stepping);
  field("microcode", HexField<decltype((row.microcode))>{row.microcode});
  field("core_type", row.core_type);
  field("hyper_threading", row.hyper_threading);
  field("hypervisor", row.hypervisor);
  field("exposed", row.exposed);
  field("in_place", row.in_place);
  field("fixed", row.fixed);
  field("unknown", row.unknown);
  field("verdict", row.verdict);
  field("reason", row.reason);
}

void fields(auto&& field, MaybeConst<ErrataSummaryRow> auto& row) {
  field("machine", row.machine);
  field("id", row.id);
  field("microcode", HexField<decltype((row.microcode))>{row.microcode});
  field("exposed", row.exposed);
  field("in_place", row.in_place);
  field("fixed", row.fixed);
  field("unknown", row.unknown);
}

void fields(auto&& field, MaybeConst<StatusCounts> auto& counts) {
  for (Status status : kStatuses) {
    auto& count = counts.by_status[static_cast<size_t>(status)];
    if (status >= Status::kObserved) {
      field(name_of(status), Added{count});
    } else {
      field(name_of(status), count);
    }
  }
}

void fields(auto&& field, MaybeConst<EndRow> auto& row) {
  field("machine", row.machine);
  field("finished", row.finished);
  field("counts", row.counts);
  field("exit", row.exit);
  field("reason", row.reason);
  field("duration_s", row.duration_s);
}

// ---------------------------------------------------------------------------------------------------
// Writing.

template <typename T>
concept ClosedList =
    std::same_as<T, Status> || std::same_as<T, SkipCategory> || std::same_as<T, RowProvenance> ||
    std::same_as<T, Listed> || std::same_as<T, Observed> || std::same_as<T, Exposure>;
template <typename T>
concept Group = std::same_as<T, MeasurementNoise> || std::same_as<T, StatusCounts> ||
    std::same_as<T, Repetitions> || std::same_as<T, RunShard>;

struct FieldWriter {
  Json& json;

  template <typename T>
  void operator()(const char* name, const T& value) {
    json[name] = value_of(value);
  }
  template <typename T>
  void operator()(const char* name, const Added<T>& added) {
    (*this)(name, added.value);
  }
  template <typename T>
  void operator()(const char* name, const Sparse<T>& sparse) {
    if (sparse.value != std::remove_cvref_t<T>()) (*this)(name, sparse.value);
  }

  template <typename T>
  static Json value_of(const T& value) {
    if constexpr (ClosedList<T>) {
      return name_of(value);
    } else if constexpr (Group<T>) {
      Json group = Json::object();
      fields(FieldWriter{group}, value);
      return group;
    } else {
      return value;
    }
  }
  template <typename T>
  static Json value_of(const std::optional<T>& value) {
    return value ? value_of(*value) : Json(nullptr);
  }
  template <typename T>
  static Json value_of(const HexField<T>& field) {
    return field.value ? Json(hex(*field.value)) : Json(nullptr);
  }
};

template <typename T>
void write_row(Json& json, const char* type, const T& row) {
  json = Json::object();
  json["type"] = type;
  if constexpr (std::same_as<T, RunRow>) json["schema"] = kSchema;
  fields(FieldWriter{json}, row);
}

// ---------------------------------------------------------------------------------------------------
// Reading.

bool read(const Json& json, bool& value) {
  if (!json.is_boolean()) return false;
  value = json.get<bool>();
  return true;
}
bool read(const Json& json, std::string& value) {
  if (!json.is_string()) return false;
  value = json.get<std::string>();
  return true;
}
bool read(const Json& json, double& value) {
  if (!json.is_number()) return false;
  value = json.get<double>();
  return true;
}
bool read(const Json& json, Json& value) {
  if (!json.is_object()) return false;
  value = json;
  return true;
}
// A parsed number that is not negative is always unsigned in nlohmann's DOM; one that was built in
// memory may be signed.
template <std::unsigned_integral T>
bool read(const Json& json, T& value) {
  if (!json.is_number_integer() || (!json.is_number_unsigned() && json.get<int64_t>() < 0)) {
    return false;
  }
  const uint64_t wide = json.get<uint64_t>();
  value = static_cast<T>(wide);
  return wide <= std::numeric_limits<T>::max();
}
bool read(const Json& json, int& value) {
  if (!json.is_number_integer()) return false;
  const int64_t wide = json.get<int64_t>();
  value = static_cast<int>(wide);
  return wide == value;
}
template <ClosedList T, typename List>
bool read_word(const Json& json, const List& list, T& value) {
  if (!json.is_string()) return false;
  for (T candidate : list) {
    if (json.get_ref<const std::string&>() == name_of(candidate)) {
      value = candidate;
      return true;
    }
  }
  return false;
}
bool read(const Json& json, Status& value) { return read_word(json, kStatuses, value); }
bool read(const Json& json, SkipCategory& value) { return read_word(json, kSkipCategories, value); }
bool read(const Json& json, RowProvenance& value) { return read_word(json, kProvenances, value); }
bool read(const Json& json, Listed& value) { return read_word(json, kListed, value); }
bool read(const Json& json, Observed& value) { return read_word(json, kObservedVerdicts, value); }
bool read(const Json& json, Exposure& value) { return read_word(json, kExposures, value); }

bool read(const Json& json, std::vector<std::string>& values) {
  if (!json.is_array()) return false;
  values.clear();
  for (const Json& item : json) {
    if (!read(item, values.emplace_back())) return false;
  }
  return true;
}
bool read(const Json& json, std::map<std::string, std::string>& values) {
  if (!json.is_object()) return false;
  values.clear();
  for (const auto& [key, item] : json.items()) {
    if (!read(item, values[key])) return false;
  }
  return true;
}
template <typename T>
bool read(const Json& json, std::optional<T>& value) {
  value.reset();
  return json.is_null() || read(json, value.emplace());
}
template <typename T>
bool read(const Json& json, const HexField<T>& field) {
  field.value.reset();
  if (json.is_null()) return true;
  if (!json.is_string()) return false;
  const std::string& text = json.get_ref<const std::string&>();
  if (!text.starts_with("0x")) return false;
  uint32_t number = 0;
  auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), number, 16);
  field.value = number;
  return error == std::errc() && end == text.data() + text.size();
}

struct FieldReader {
  const Json& json;
  std::string& problem;  // the first one
  std::string prefix = {};

  template <typename T>
  void operator()(const char* name, Added<T> added) {
    if (json.contains(name)) (*this)(name, added.value);
  }
  template <typename T>
  void operator()(const char* name, Sparse<T> sparse) {
    if (json.contains(name)) (*this)(name, sparse.value);
  }
  template <Group T>
  void operator()(const char* name, std::optional<T>& group) {
    (*this)(name, group.emplace());
  }
  template <typename T>
  void operator()(const char* name, T&& value) {
    if (!problem.empty()) return;
    auto found = json.find(name);
    if (found == json.end()) {
      problem = fmt::format("field `{}{}` is missing", prefix, name);
      return;
    }
    if constexpr (Group<std::remove_cvref_t<T>>) {
      if (found->is_object()) {
        fields(FieldReader{*found, problem, fmt::format("{}.", name)}, value);
        return;
      }
    } else if (read(*found, value)) {
      return;
    }
    problem = fmt::format("field `{}{}` cannot be {}", prefix, name, shortened(*found));
  }

  static std::string shortened(const Json& value) {
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }
};

template <typename T>
Expected<Row> read_row(const Json& json) {
  T row;
  std::string problem;
  fields(FieldReader{json, problem}, row);
  if (!problem.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a `{}` row is not of schema {}: {}",
                            json["type"].template get<std::string>(), kSchema, problem));
  }
  return Row(std::move(row));
}

Expected<Row> read_run_row(const Json& json) {
  auto schema = json.find("schema");
  if (schema == json.end() || *schema != kSchema) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the `run` row is of schema {}, this program reads schema {}",
                    schema == json.end() ? "(none)" : FieldReader::shortened(*schema), kSchema),
        "read it with the version of skidproof that wrote it");
  }
  return read_row<RunRow>(json);
}

// ---------------------------------------------------------------------------------------------------
// Rules.

// Each returns what is wrong, or an empty string.
std::string wrong(const RunRow& row) {
  if (row.id.empty()) return "a run has an id";
  if (row.shard && (row.shard->index < 1 || row.shard->index > row.shard->of)) {
    return "it is a shard beyond the last one";
  }
  return {};
}

std::string wrong(const MachineRow&) { return {}; }

std::string wrong(const TestStartRow& row) { return row.id.empty() ? "a test has an id" : ""; }

bool lasted(double duration_s) { return std::isfinite(duration_s) && duration_s >= 0; }

std::string wrong(const Repetitions& repetitions) {
  if (repetitions.k > repetitions.n) return "it failed more often than it was judged";
  if (!(repetitions.rate >= 0 && repetitions.rate <= 1)) return "its rate is not a share";
  if (repetitions.low.has_value() != repetitions.high.has_value())
    return "an interval has two ends";
  return {};
}

std::string wrong(const TestRow& row) {
  const bool held = row.status == Status::kPass || row.status == Status::kXpass;
  const bool failed = row.status == Status::kFail || row.status == Status::kXfail ||
                      row.status == Status::kDisturbed;
  const bool explained = row.status == Status::kXfail || row.status == Status::kXpass;
  if (row.id.empty()) return "a test has an id";
  if (held && row.iterations == 0) return "it held without executing anything";
  if (held && row.comparisons == 0) return "it held without comparing anything";
  if (held && row.evidence.empty()) return "it held without any evidence";
  if (row.status == Status::kObserved && row.iterations == 0) {
    return "it observed without executing anything";
  }
  if (row.status == Status::kObserved && !row.evidence.contains("observed")) {
    return "it observed nothing";
  }
  if (failed && row.failures.empty()) return "it failed without saying how";
  if (explained == row.erratum.empty()) return "xfail and xpass, and no other, name an erratum";
  if ((row.status == Status::kSkip) != row.skip_category.has_value()) {
    return "a skip, and only a skip, has a category";
  }
  const bool plain =
      row.status == Status::kPass || row.status == Status::kFail || row.status == Status::kObserved;
  if (!plain && row.reason.empty()) return "its status needs a reason";
  if (!lasted(row.duration_s)) return "its duration is not a time";
  if (!row.evidence.is_object()) return "evidence is a JSON object";
  return wrong(row.repetitions);
}

std::string wrong(const MeasurementStartRow& row) {
  return row.name.empty() ? "a measurement has a name" : "";
}

std::string wrong(const UnmeasuredRow& row) {
  if (row.name.empty()) return "a measurement has a name";
  return row.reason.empty() ? "it says why" : "";
}

std::string wrong(const MeasurementRow& row) {
  if (row.name.empty() || row.unit.empty() || row.statistic.empty()) {
    return "a measurement has a name, a unit and a statistic";
  }
  if (!std::isfinite(row.value)) return "its value is not finite";
  if (row.n == 0) return "it stands on no sample";
  if (row.low.has_value() != row.high.has_value()) return "a spread has two ends";
  if (row.low && !(std::isfinite(*row.low) && std::isfinite(*row.high) && *row.low <= *row.high)) {
    return "its spread is not an interval";
  }
  if (!row.parameters.is_object()) return "parameters are a JSON object";
  if (!row.counts.is_null() && !row.counts.is_object()) return "counts are a JSON object";
  for (const Json& count : row.counts) {
    if (!count.is_number() || !std::isfinite(count.get<double>())) return "a count is not a number";
  }
  if (row.counts_agree.value_or(true) != row.counts_differ.empty())
    return "counts that do not agree, and no others, say what differs";
  return {};
}

std::string wrong(const DefectRow& row) {
  if (row.id.empty()) return "a defect has an id";
  if (row.caught == row.caught_by.empty())
    return "a caught defect, and no other, names its catchers";
  if (row.caught && row.tests_run == 0) return "it was caught by no test that ran";
  return lasted(row.duration_s) ? "" : "its duration is not a time";
}

std::string wrong(const QualificationRow& row) {
  if (row.caught + row.missed.size() != row.defects) return "defects are caught or missed";
  if ((row.conforming_failures == 0) != row.accused_by.empty()) {
    return "failures on conforming models name their tests";
  }
  const bool held = row.missed.empty() && row.conforming_failures == 0 && row.defects > 0 &&
                    row.conforming_runs > 0;
  if (row.held != held)
    return "it holds when all defects were caught and no conforming model accused";
  return lasted(row.duration_s) ? "" : "its duration is not a time";
}

std::string wrong(const QualificationShardRow& row) {
  if (!row.units.is_object()) return "its units are a JSON object";
  return lasted(row.duration_s) ? "" : "its duration is not a time";
}

std::string wrong(const FuzzRow& row) {
  if (row.held != (row.violations == 0 && row.cases > 0)) {
    return "it holds when cases ran and none violated a check";
  }
  if (!row.violation.is_object()) return "a violation is a JSON object";
  if ((row.violations == 0) != row.violation.empty()) return "a violation says what it is";
  if (row.exact_runs > row.runs || row.exact_records > row.records || row.refused > row.writes) {
    return "a part is more than its whole";
  }
  if (!lasted(row.cases_per_s)) return "its rate is not a number";
  return lasted(row.duration_s) ? "" : "its duration is not a time";
}

std::string wrong(const ErratumRow& row) {
  if (row.id.empty()) return "an erratum has an id";
  if (row.listed_why.empty()) return "its listing says why";
  const bool told =
      row.observed == Observed::kReproduced || row.observed == Observed::kNotReproduced;
  if (told != (row.tries > 0) && row.observed != Observed::kError) {
    return "only what was tried is told";
  }
  if (!told && row.observed_why.empty()) return "what was not observed says why";
  if ((row.observed == Observed::kReproduced) != (row.shown > 0)) {
    return "it is reproduced when it showed";
  }
  if (row.shown > row.tries) return "a part is more than its whole";
  if ((row.observed == Observed::kNotReproduced) != row.excluded_rate.has_value()) {
    return "tries without a sight of it, and no others, exclude a rate";
  }
  const bool listed_as_absent = row.listed != Listed::kAffected;
  if (row.contradiction && !(listed_as_absent && row.observed == Observed::kReproduced)) {
    return "a contradiction is of two verdicts";
  }
  return {};
}

std::string wrong(const InventoryRow& row) {
  constexpr int kLast = 3;
  if (row.line == 0) return "lines are numbered from 1";
  return row.verdict < 0 || row.verdict > kLast ? "its verdict is none of 0, 1, 2, 3" : "";
}

std::string wrong(const ErrataSummaryRow& row) {
  return row.id.empty() ? "an erratum has an id" : "";
}

std::string wrong(const EndRow& row) {
  if (row.reason.empty()) return "an end has a reason";
  return lasted(row.duration_s) ? "" : "its duration is not a time";
}

// What a row is about, for messages.
std::string subject(const auto& row) {
  if constexpr (requires { row.id; }) return row.id;
  if constexpr (requires { row.name; }) return row.name;
  return row.machine;
}

constexpr std::array kTypes = {
    "run",        "machine",     "test-start", "test",           "measurement-start",
    "unmeasured", "measurement", "defect",     "qualification",  "qualification-shard",
    "fuzz",       "erratum",     "inventory",  "errata-summary", "end"};

}  // namespace

// ---------------------------------------------------------------------------------------------------

const char* name_of(Status status) {
  constexpr std::array kNames = {"pass",  "fail",  "error",    "skip",
                                 "xfail", "xpass", "observed", "disturbed"};
  static_assert(kNames.size() == kStatuses.size());
  return kNames[static_cast<size_t>(status)];
}

const char* name_of(SkipCategory category) {
  constexpr std::array kNames = {
      "not-on-this-microarch", "no-pmu",        "no-privilege",     "isa-missing",
      "machine-limit",         "no-promise",    "needs-sibling",    "needs-no-sibling",
      "no-resource",           "noise",         "nothing-compared", "deadline",
      "interrupted",           "ground-broken", "not-on-tape"};
  static_assert(kNames.size() == kSkipCategories.size());
  return kNames[static_cast<size_t>(category)];
}

const char* name_of(RowProvenance provenance) {
  constexpr std::array kNames = {"silicon", "model", "virtual-lab"};
  return kNames[static_cast<size_t>(provenance)];
}

const char* name_of(Listed listed) {
  constexpr std::array kNames = {"not-affected", "affected", "fixed-by-microcode", "unknown"};
  static_assert(kNames.size() == kListed.size());
  return kNames[static_cast<size_t>(listed)];
}

const char* name_of(Observed observed) {
  constexpr std::array kNames = {"reproduced", "not-reproduced", "not-run", "error"};
  static_assert(kNames.size() == kObservedVerdicts.size());
  return kNames[static_cast<size_t>(observed)];
}

const char* name_of(Exposure exposure) {
  constexpr std::array kNames = {"none", "workaround-in-place", "exposed", "unknown"};
  static_assert(kNames.size() == kExposures.size());
  return kNames[static_cast<size_t>(exposure)];
}

std::string hex(uint64_t value) { return fmt::format("{:#x}", value); }

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(
                                now - std::chrono::system_clock::from_time_t(seconds))
                                .count();
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, milliseconds);
}

uint64_t StatusCounts::total() const {
  uint64_t sum = 0;
  for (uint64_t count : by_status) sum += count;
  return sum;
}

void to_json(Json& json, const Histogram& histogram) {
  json = {{"kind", "histogram"}, {"name", histogram.name}, {"unit", histogram.unit}};
  Json bins = Json::array();
  for (const auto& [value, count] : histogram.bins) bins.push_back(Json::array({value, count}));
  json["bins"] = std::move(bins);
  if (!histogram.expected.empty()) json["expected"] = histogram.expected;
  if (histogram.weights.empty()) return;
  Json weights = Json::array();
  for (const auto& [value, weight] : histogram.weights)
    weights.push_back(Json::array({value, weight}));
  json["weights"] = std::move(weights);
}

void to_json(Json& json, const Series& series) {
  json = {{"kind", "series"},        {"name", series.name},       {"x_label", series.x_label},
          {"x_unit", series.x_unit}, {"y_label", series.y_label}, {"unit", series.unit}};
  json["x"] = series.x;
  json["y"] = series.y;
}

void to_json(Json& json, const RunRow& row) { write_row(json, "run", row); }
void to_json(Json& json, const MachineRow& row) { write_row(json, "machine", row); }
void to_json(Json& json, const TestStartRow& row) { write_row(json, "test-start", row); }
void to_json(Json& json, const TestRow& row) { write_row(json, "test", row); }
void to_json(Json& json, const MeasurementStartRow& row) {
  write_row(json, "measurement-start", row);
}
void to_json(Json& json, const UnmeasuredRow& row) { write_row(json, "unmeasured", row); }
void to_json(Json& json, const MeasurementRow& row) { write_row(json, "measurement", row); }
void to_json(Json& json, const DefectRow& row) { write_row(json, "defect", row); }
void to_json(Json& json, const QualificationRow& row) { write_row(json, "qualification", row); }
void to_json(Json& json, const QualificationShardRow& row) {
  write_row(json, "qualification-shard", row);
}
void to_json(Json& json, const FuzzRow& row) { write_row(json, "fuzz", row); }
void to_json(Json& json, const ErratumRow& row) { write_row(json, "erratum", row); }
void to_json(Json& json, const InventoryRow& row) { write_row(json, "inventory", row); }
void to_json(Json& json, const ErrataSummaryRow& row) { write_row(json, "errata-summary", row); }
void to_json(Json& json, const EndRow& row) { write_row(json, "end", row); }

Json json_of(const Row& row) {
  return std::visit([](const auto& typed) { return Json(typed); }, row);
}

Expected<Row> row_of(const Json& json) {
  if (!json.is_object() || !json.contains("type") || !json["type"].is_string()) {
    return fail(ErrorCode::kInvalidArgument, "a row is a JSON object with a `type`");
  }
  const std::string& type = json["type"].get_ref<const std::string&>();
  if (type == "run") return read_run_row(json);
  if (type == "machine") return read_row<MachineRow>(json);
  if (type == "test-start") return read_row<TestStartRow>(json);
  if (type == "test") return read_row<TestRow>(json);
  if (type == "measurement-start") return read_row<MeasurementStartRow>(json);
  if (type == "unmeasured") return read_row<UnmeasuredRow>(json);
  if (type == "measurement") return read_row<MeasurementRow>(json);
  if (type == "defect") return read_row<DefectRow>(json);
  if (type == "qualification") return read_row<QualificationRow>(json);
  if (type == "qualification-shard") return read_row<QualificationShardRow>(json);
  if (type == "fuzz") return read_row<FuzzRow>(json);
  if (type == "erratum") return read_row<ErratumRow>(json);
  if (type == "inventory") return read_row<InventoryRow>(json);
  if (type == "errata-summary") return read_row<ErrataSummaryRow>(json);
  if (type == "end") return read_row<EndRow>(json);
  return fail(ErrorCode::kInvalidArgument, fmt::format("rows of type `{}` are not known", type));
}

Expected<void> check_row(const Row& row) {
  return std::visit(
      [&row](const auto& typed) -> Expected<void> {
        const std::string problem =
            typed.machine.empty() ? "every row names its machine" : wrong(typed);
        if (problem.empty()) return {};
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("the `{}` row of {} must not be written: {}", kTypes[row.index()],
                                subject(typed), problem));
      },
      row);
}

}  // namespace skidproof::results
