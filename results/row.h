// The rows of a results file (JSON Lines, `schema: 1`) as C++ types, with their JSON both ways.
//
// A file is: `run`, `machine`, then `test-start` + `test` pairs, `measurement`, `defect`,
// `qualification` (or `qualification-shard`), `fuzz`, `erratum`, `inventory` and `errata-summary` rows, and `end` last. results/schema/v1.json says the same to other programs:
// fields are added, never changed or removed.
//
// Provenance: every row carries `machine`, the name of the machine that answered
// ("model:sandy-bridge", "virtual-lab:sandy-bridge", "native", "direct"), so that no row of a model
// can pass for silicon.
//
// Numbers: 64-bit integers are written in full. Readers that keep numbers as doubles lose what lies
// beyond 2^53; addresses and MSR values are therefore hexadecimal strings (`hex`), and seeds beyond
// 2^53 need a reader with 64-bit integers.
#ifndef SKIDPROOF_RESULTS_ROW_H_
#define SKIDPROOF_RESULTS_ROW_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/expected.h"
#include "results/json.h"

namespace skidproof::results {

inline constexpr int kSchema = 1;

// "0x7f0012345678": how addresses and MSR values stand in rows.
std::string hex(uint64_t value);
// Now in UTC: "2024-05-01T12:34:56.789Z".
std::string utc_now();

// ---------------------------------------------------------------------------------------------------
// Closed lists.

enum class Status : uint8_t {
  kPass,       // held, with at least one thing executed and one value compared
  kFail,       // the clause did not hold, and the failure came again with other seeds
  kError,      // the harness could not find out (its own failure, not the processor's)
  kSkip,       // not run, with a category and a reason
  kXfail,      // failed as a listed erratum of this processor says that it may
  kXpass,      // a listed erratum would have explained its failure, and it held
  kObserved,   // nothing promises an outcome: what was seen stands in the evidence
  kDisturbed,  // failed, but noise voids it, or it never came again
};
inline constexpr std::array kStatuses = {Status::kPass,     Status::kFail,     Status::kError,
                                         Status::kSkip,     Status::kXfail,    Status::kXpass,
                                         Status::kObserved, Status::kDisturbed};

enum class SkipCategory : uint8_t {
  kNotOnThisMicroarch,  // the manual does not promise this feature here
  kNoPmu,               // the machine's MSRs do not answer
  kNoPrivilege,         // the operating system refused; the reason names what to grant
  kIsaMissing,          // the kernel needs instructions that CPUID does not report
  kMachineLimit,  // this machine (not its microarch) cannot do it: too few counters, no ring 3 …
  kNoPromise,     // the manual promises nothing that could be asserted; outcome in the evidence
  kNeedsSibling,  // the clause speaks of a second logical processor and there is none
  kNeedsNoSibling,   // the clause speaks of a core of one thread and this one has a sibling
  kNoResource,       // no huge pages, not enough memory, no free CPU
  kNoise,            // the machine was disturbed too much to judge
  kNothingCompared,  // ran, but no record or count was really compared: never a pass
  kDeadline,         // the run's deadline came first
  kInterrupted,      // the run was interrupted first
  kGroundBroken,     // what it stands on did not hold: an earlier stage of the bring-up failed
  kNotOnTape,        // a tape is replayed that holds nothing of the test
};
inline constexpr std::array kSkipCategories = {
    SkipCategory::kNotOnThisMicroarch, SkipCategory::kNoPmu,
    SkipCategory::kNoPrivilege,        SkipCategory::kIsaMissing,
    SkipCategory::kMachineLimit,       SkipCategory::kNoPromise,
    SkipCategory::kNeedsSibling,       SkipCategory::kNeedsNoSibling,
    SkipCategory::kNoResource,         SkipCategory::kNoise,
    SkipCategory::kNothingCompared,    SkipCategory::kDeadline,
    SkipCategory::kInterrupted,        SkipCategory::kGroundBroken,
    SkipCategory::kNotOnTape};

enum class RowProvenance : uint8_t { kSilicon, kModel, kVirtualLab };
inline constexpr std::array kProvenances = {RowProvenance::kSilicon, RowProvenance::kModel,
                                            RowProvenance::kVirtualLab};

// What is published of an erratum and a processor.
enum class Listed : uint8_t {
  kNotAffected,
  kAffected,
  kFixedByMicrocode,
  kUnknown,  // neither is said; or who the processor is cannot be known
};
inline constexpr std::array kListed = {Listed::kNotAffected, Listed::kAffected,
                                       Listed::kFixedByMicrocode, Listed::kUnknown};
// What the erratum's reproducer saw.
enum class Observed : uint8_t {
  kReproduced,
  kNotReproduced,  // in so many tries; the row says which rate they exclude
  kNotRun,         // with a reason
  kError,          // ran, and does not tell
};
inline constexpr std::array kObservedVerdicts = {Observed::kReproduced, Observed::kNotReproduced,
                                                 Observed::kNotRun, Observed::kError};
// Whether it can do harm there.
enum class Exposure : uint8_t {
  kNone,     // not affected, or mended
  kInPlace,  // affected, and a workaround is in place
  kExposed,  // affected, and none is known to be in place; or reproduced
  kUnknown,
};
inline constexpr std::array kExposures = {Exposure::kNone, Exposure::kInPlace, Exposure::kExposed,
                                          Exposure::kUnknown};

// Their words in rows: "pass", "not-on-this-microarch", "virtual-lab" …
const char* name_of(Status status);
const char* name_of(SkipCategory category);
const char* name_of(RowProvenance provenance);
const char* name_of(Listed listed);
const char* name_of(Observed observed);
const char* name_of(Exposure exposure);

// ---------------------------------------------------------------------------------------------------
// Evidence: a JSON object of named items. An item is a scalar, a string (`hex` for addresses), any
// JSON that helps a reader, or one of the following shapes, which the report draws:
//   row.evidence["skid"] = Histogram{.name = "skid", .unit = "instructions", .bins = {{1, 998}, {2,
//   2}}}; row.evidence["records"] = 1000;

// {"kind":"histogram","name","unit","bins":[[value,count],…],"expected":[value,…]}
// Names that the report knows by their beginning: "skid…", "pdir…", "pmi-lateness…".
struct Histogram {
  std::string name;
  std::string unit;                                // of the values
  std::vector<std::pair<int64_t, uint64_t>> bins;  // value, count
  std::vector<int64_t> expected = {};  // the values that the clause allows; empty: not said
  // The share of each value under the clause, up to a common factor; empty: not said. JSON "weights".
  std::vector<std::pair<int64_t, double>> weights = {};
};

// {"kind":"series","name","x_label","x_unit","y_label","unit","x":[…],"y":[…]}: y (in `unit`) over
// x.
struct Series {
  std::string name;
  std::string x_label;
  std::string x_unit;
  std::string y_label;
  std::string unit;
  std::vector<double> x;
  std::vector<double> y;
};

// ---------------------------------------------------------------------------------------------------
// Rows. Times are UTC (`utc_now`), durations seconds.

// Which part of a run a file holds (`--shard`).
struct RunShard {
  uint64_t index = 1;  // from 1
  uint64_t of = 1;     // so many shards
  uint64_t planned =
      0;  // units of the whole run: tests (times repetitions), models, cases; 0: not known
  std::string
      plan;  // hash of what is planned, in its order: the same in all shards; empty: not known
  bool all = false;  // nothing is skipped because it stands on broken ground

  bool operator==(const RunShard&) const = default;
};

// `run`: first of a file.
struct RunRow {
  std::string id;  // names the output folder too
  std::string started;
  std::vector<std::string> command;  // argv
  uint64_t seed = 0;
  std::string version;  // of skidproof
  std::string machine;
  std::string tape;  // the file that was replayed: nothing was measured anew; empty: none was
  std::optional<RunShard> shard = {};  // nullopt (and no field): the whole run
  std::vector<std::string> merged_from =
      {};  // ids of the shards that make it up; empty: one program ran it all
};

// `machine`: the processor under test (pebs/machine.h, Identity).
struct MachineRow {
  std::string machine;  // its name; written as `name` also
  RowProvenance provenance = RowProvenance::kModel;
  std::string vendor;
  std::string brand;
  unsigned family = 0, model = 0, stepping = 0;
  std::optional<uint32_t> microcode;  // nullopt (JSON null): not readable; a hexadecimal string
  std::string microarch;              // empty: no row of ours covers this CPU
  std::string
      event_list;  // of Intel's, that its events are of: "intel/perfmon SNB V19"; empty: none, or not said
  std::string event_list_file;  // that it was read from; empty: it is built in
  std::string hypervisor;       // empty: none
  std::string core_type;        // "P", "E" or empty
  bool pmu = false;
  bool sibling_thread = false;
  std::vector<std::string> capabilities;
  std::vector<std::string> defects;  // armed in the model; such a machine is broken on purpose
  std::string host;                  // host name, for fleets; may be empty
  std::string os;                    // kernel name and release; may be empty
  std::string bios;                  // of the host: vendor, version and date; empty: not readable
  std::string tape;                  // as in the run's row; host and os are the recorded ones
};

// `test-start`: on disk before the test touches the machine, so that a freeze names its test.
struct TestStartRow {
  std::string machine;
  std::string microarch;
  std::string id;  // "Suite.Test" or "Prefix/Suite.Test/Param"
  std::vector<std::string> clauses;
  uint64_t seed = 0;
  unsigned repetition = 0;  // from 0
  std::string started;
};

// How often a test was run for its verdict, each time with a fresh seed. Only a failure is run again,
// and it counts itself: of what fails rarely, the rate is rather too high.
struct Repetitions {
  uint64_t n = 0;              // judged: it held or failed undisturbed
  uint64_t k = 0;              // of these, failed
  uint64_t voided = 0;         // thrown away, because noise or a timeout spoiled them
  double rate = 0;             // k of n
  std::optional<double> low;   // of the rate: its exact 95 % interval (Clopper and Pearson);
  std::optional<double> high;  // nullopt where n is 0
};

// `test`: what became of it.
struct TestRow {
  std::string machine;
  std::string microarch;
  std::string id;
  std::vector<std::string> clauses;              // ids, "R19"
  std::map<std::string, std::string> citations;  // clause id → its words and where they stand
  Status status = Status::kError;
  std::optional<SkipCategory> skip_category;  // with kSkip, and only then
  std::string reason;                         // required of skip, error, xfail, xpass and disturbed
  double duration_s = 0;
  uint64_t seed = 0;
  unsigned repetition = 0;
  uint64_t iterations = 0;   // program iterations and MSR operations really executed
  uint64_t comparisons = 0;  // values (records, counts, MSRs) really compared with an expectation
  std::vector<std::string> failures;  // "file.cc:42: message"; at least one with kFail
  Json evidence = Json::object();     // of a pass never empty; "observed" with kObserved
  std::string stage;                  // of the bring-up: "read", "write" …; empty: not said
  std::string erratum;                // the published id, with kXfail and kXpass, and only then
  Repetitions repetitions;            // `failures` and `evidence` are of the first that failed
};
// Whether or not an erratum explains it.
inline bool has_failed(const TestRow& row) {
  return row.status == Status::kFail || row.status == Status::kXfail;
}

// What disturbed a measurement.
struct MeasurementNoise {
  uint64_t involuntary_switches = 0;
  uint64_t migrations = 0;
  uint64_t smi = 0;
  double steal_s = 0;
};

// `measurement-start`: on disk before a measurement that tests depend on touches the machine. A `measurement`
// or `unmeasured` row of this name follows.
struct MeasurementStartRow {
  std::string machine;
  std::string microarch;
  std::string name;
  std::string started;
};

// `unmeasured`: why there is no such number.
struct UnmeasuredRow {
  std::string machine;
  std::string microarch;
  std::string name;
  std::string reason;  // "there is no fixed counter of cycles", "machine lost: …"
};

// `measurement`: one number with its spread. Names and parameters that the report draws:
//   memory.latency         ns | cycles   parameters.bytes, parameters.page ("4KiB", "2MiB")
//   store.bandwidth        GB/s | B/cycle  parameters.bytes, parameters.kind ("regular-8", "non-temporal" …)
//   fusion.gain            cycles        parameters.pair ("cmp+jz" …): split minus fused, per pair
//   branch.misprediction   cycles | ns   parameters.* free
struct MeasurementRow {
  std::string machine;
  std::string microarch;
  std::string name;
  double value = 0;  // finite
  std::string unit;
  std::string statistic;      // "median", "min", "mean" …: what `value` is of the n samples
  uint64_t n = 0;             // samples
  std::optional<double> low;  // of the spread: which one, `interval` says
  std::optional<double> high;
  std::string interval;  // "quartiles", "95% of the median" …; may be empty
  Json parameters = Json::object();
  MeasurementNoise noise;
  // Of a characterization on a machine with a PMU: what was counted, by name, of a unit of work (a load, a byte) in the
  // sample that the value is. null: nothing was.
  Json counts;
  // Whether counts agree with what programs declare and with their time; not there: nothing undisturbed was counted.
  std::optional<bool> counts_agree;
  std::string counts_differ;  // what does not agree
};

// `defect` (qualify): was this deliberate deviation of the model caught?
struct DefectRow {
  std::string machine;
  std::string microarch;
  std::string id;
  std::string clause;
  std::string brief;
  bool caught = false;
  std::vector<std::string> caught_by;  // ids of the tests that failed
  uint64_t tests_run = 0;
  double duration_s = 0;
};

// `qualification`: the sum of a qualify run.
struct QualificationRow {
  std::string machine;  // "model:*" when several microarchs took part
  std::vector<std::string> microarchs;
  uint64_t seeds = 0;  // conforming runs are microarchs × seeds
  uint64_t conforming_runs = 0;
  uint64_t conforming_failures = 0;     // tests that accused a conforming model
  std::vector<std::string> accused_by;  // their ids
  uint64_t defects = 0;
  uint64_t caught = 0;
  std::vector<std::string> missed;               // ids of defects that no test caught
  std::vector<std::string> tests_without_catch;  // ids of tests that caught none
  bool held = false;                             // every defect caught, no conforming failure
  double duration_s = 0;
};

// `qualification-shard`: what one shard of a qualification adds to its sum, which only all of them together say.
struct QualificationShardRow {
  std::string machine;
  std::vector<std::string> microarchs;
  uint64_t seeds = 0;
  uint64_t seed = 0;  // the first
  bool all = false;   // every test met every defect
  // {"conforming": [{"position", "name", "rows"}], "verdicts": [the same, and "missed" and what the matrix says]}:
  // what the shard did, its place in the whole plan, and how many of the rows above are of it, in their order.
  Json units = Json::object();
  std::vector<std::string> tests_run;     // ids of tests that ran on a broken model
  std::vector<std::string> tests_caught;  // of these, that failed there
  std::vector<std::string> problems;      // of the harness
  double duration_s = 0;
};

// `fuzz`: the sum of a fuzz run.
struct FuzzRow {
  std::string machine;  // "model:*" when several microarchs took part
  std::vector<std::string> microarchs;
  uint64_t cases = 0;
  uint64_t runs = 0;          // of programs
  uint64_t exact_runs = 0;    // compared with the prediction to their end; the others by invariants
  uint64_t instructions = 0;  // that the programs retired
  uint64_t records = 0;       // PEBS records, each held against the program's states
  uint64_t exact_records = 0;  // whose event was predicted
  uint64_t writes = 0;         // of MSRs
  uint64_t refused = 0;        // writes that had to raise #GP
  uint64_t interrupts = 0;
  double cases_per_s = 0;
  uint64_t violations = 0;
  Json violation = Json::object();  // of the first: what stands in its replay file, and `file`
  bool held = false;                // cases ran and none violated a check
  double duration_s = 0;
};

// `erratum`: the two verdicts on one published erratum and one type of core.
struct ErratumRow {
  std::string machine;
  std::string microarch;
  std::string id;  // the catalogue's
  std::vector<std::string> aliases;
  std::string title;
  std::string core_type;  // "P", "E", or empty where the part has one type
  Listed listed = Listed::kUnknown;
  std::string listed_by;   // who lists it: "specification-update", "code" …; empty with kUnknown
  std::string listed_why;  // "listed for 06_3C", "microcode 0x28 is from 0x1f on"
  std::optional<uint32_t> fixed_from;  // a microcode that mends it here; a hexadecimal string
  Observed observed = Observed::kNotRun;
  std::string observed_why;  // required but of kReproduced and kNotReproduced
  uint64_t tries = 0;        // runs of its reproducer that said something
  uint64_t shown = 0;        // of these, in which it showed
  std::optional<double>
      excluded_rate;  // with kNotReproduced: showing more often than this has less than 5 %
  Exposure exposure = Exposure::kUnknown;
  std::string exposure_why;
  bool contradiction = false;  // it was reproduced, and is listed as absent or mended
};

// `inventory`: what is listed for one machine of an inventory, without touching it. Lists of ids.
struct InventoryRow {
  std::string machine;  // as the inventory calls it
  uint64_t line = 0;    // of the inventory, from 1
  std::string vendor;   // empty: not said
  unsigned family = 0, model = 0, stepping = 0;
  std::optional<uint32_t> microcode;  // a hexadecimal string
  std::string core_type;
  std::optional<bool> hyper_threading;
  std::string hypervisor;
  std::vector<std::string> exposed;
  std::vector<std::string> in_place;
  std::vector<std::string> fixed;
  std::vector<std::string> unknown;  // empty too where nothing is known; then `reason` says why
  int verdict = 3;                   // what `errata` would have exited with: 0, 1, 2, 3
  std::string reason;                // why nothing is known; empty otherwise
};

// `errata-summary`: of an inventory, one erratum and one microcode revision: numbers of machines.
struct ErrataSummaryRow {
  std::string machine;  // "inventory"
  std::string id;
  std::optional<uint32_t> microcode;  // nullopt: not said; a hexadecimal string
  uint64_t exposed = 0;
  uint64_t in_place = 0;
  uint64_t fixed = 0;
  uint64_t unknown = 0;
};

// Counts of test rows by status, in the order of kStatuses. In a file of an older version the
// statuses that it did not know are missing and count as 0.
struct StatusCounts {
  std::array<uint64_t, kStatuses.size()> by_status{};
  uint64_t& operator[](Status status) { return by_status[static_cast<size_t>(status)]; }
  uint64_t operator[](Status status) const { return by_status[static_cast<size_t>(status)]; }
  uint64_t total() const;
};

// `end`: last of a file; a file without one was cut short by something that left no time to say so.
struct EndRow {
  std::string machine;
  std::string finished;
  StatusCounts counts;
  int exit = 0;        // the exit code: 0, 1, 2, 64, 77; of `errata` 0, 1, 2, 3
  std::string reason;  // "completed", "interrupted by SIGINT", "deadline", "disk full" …
  double duration_s = 0;
};

using Row =
    std::variant<RunRow, MachineRow, TestStartRow, TestRow, MeasurementStartRow, UnmeasuredRow,
                 MeasurementRow, DefectRow, QualificationRow, QualificationShardRow, FuzzRow,
                 ErratumRow, InventoryRow, ErrataSummaryRow, EndRow>;

// nlohmann's conversions, so that `Json line = row;` works.
void to_json(Json& json, const Histogram& histogram);
void to_json(Json& json, const Series& series);
void to_json(Json& json, const RunRow& row);
void to_json(Json& json, const MachineRow& row);
void to_json(Json& json, const TestStartRow& row);
void to_json(Json& json, const TestRow& row);
void to_json(Json& json, const MeasurementStartRow& row);
void to_json(Json& json, const UnmeasuredRow& row);
void to_json(Json& json, const MeasurementRow& row);
void to_json(Json& json, const DefectRow& row);
void to_json(Json& json, const QualificationRow& row);
void to_json(Json& json, const QualificationShardRow& row);
void to_json(Json& json, const FuzzRow& row);
void to_json(Json& json, const ErratumRow& row);
void to_json(Json& json, const InventoryRow& row);
void to_json(Json& json, const ErrataSummaryRow& row);
void to_json(Json& json, const EndRow& row);
Json json_of(const Row& row);

// The typed row of a parsed line. Unknown fields are ignored (they were added later); a missing or
// ill-typed field and an unknown type are errors of code kInvalidArgument that name it.
Expected<Row> row_of(const Json& json);

// What the types cannot say: a pass has executed and compared something, a skip has a category,
// values are finite … The writer refuses rows that fail this, with code kInvalidArgument.
Expected<void> check_row(const Row& row);

}  // namespace skidproof::results

#endif  // SKIDPROOF_RESULTS_ROW_H_
