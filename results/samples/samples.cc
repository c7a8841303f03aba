// The sample rows' contents: invented, and of a model that says so.
#include "results/samples/samples.h"

namespace skidproof::results {
namespace {

constexpr const char* kMachine = "model:sandy-bridge";
constexpr const char* kMicroarch = "sandy-bridge";

TestStartRow sample_start() {
  return {.machine = kMachine,
          .microarch = kMicroarch,
          .id = "PebsReload.LoadsTheResetSlotAfterEveryRecord",
          .clauses = {"R19"},
          .seed = 1,
          .repetition = 0,
          .started = utc_now()};
}

MeasurementStartRow sample_measurement_start() {
  return {.machine = kMachine,
          .microarch = kMicroarch,
          .name = "calibration.pmi-lateness",
          .started = utc_now()};
}

UnmeasuredRow sample_unmeasured() {
  return {.machine = kMachine,
          .microarch = kMicroarch,
          .name = "calibration.pmi-lateness",
          .reason = "no event counts it"};
}

TestRow sample_failure() {
  TestRow row = sample_test();
  row.id = "PebsSkid.RecordsTheInstructionAfterTheEvent/load_chase_pmc1";
  row.clauses = {"R10"};
  row.citations = {{"R10", "The recorded IP is of the instruction after the event."}};
  row.status = Status::kFail;
  row.failures = {"suites/pebs_skid.cc:42: record 3: IP 0x1010, expected 0x100c"};
  row.stage = "one-record";
  row.repetitions = {.n = 4, .k = 3, .voided = 0, .rate = 0.75, .low = 0.19, .high = 0.99};
  return row;
}

TestRow sample_skip() {
  TestRow row = sample_test();
  row.id = "PebsPdir.IsUniformOnPmc1";
  row.status = Status::kSkip;
  row.skip_category = SkipCategory::kNotOnThisMicroarch;
  row.reason = "no PDIR before Sandy Bridge";
  row.iterations = 0;
  row.comparisons = 0;
  row.evidence = Json::object();
  return row;
}

TestRow sample_xfail() {
  TestRow row = sample_failure();
  row.status = Status::kXfail;
  row.reason = "BJ58 is listed for 06_2A_7";
  row.erratum = "BJ58";
  return row;
}

TestRow sample_observation() {
  TestRow row = sample_test();
  row.id = "PebsEdges.MaximumThatIsNoMultiple";
  row.status = Status::kObserved;
  row.comparisons = 0;
  row.evidence = {{"observed", {{"last record", "past the maximum"}}}};
  return row;
}

TestRow sample_disturbance() {
  TestRow row = sample_failure();
  row.status = Status::kDisturbed;
  row.reason = "failed in 1 of 12 attempts, and never again";
  row.repetitions = {.n = 12, .k = 1, .voided = 2, .rate = 1.0 / 12, .low = 0.002, .high = 0.385};
  return row;
}

DefectRow sample_defect() {
  return {.machine = kMachine,
          .microarch = kMicroarch,
          .id = "reload-zero",
          .clause = "R19",
          .brief = "the counter restarts from zero",
          .caught = true,
          .caught_by = {"PebsReload.LoadsTheResetSlotAfterEveryRecord"},
          .tests_run = 60,
          .duration_s = 1.5};
}

}  // namespace

RunRow sample_run() {
  return {.id = "20240501-123456-1",
          .started = utc_now(),
          .command = {"skidproof", "run", "--machine", kMachine},
          .seed = 1,
          .version = "0.1.0",
          .machine = kMachine};
}

MachineRow sample_machine() {
  MachineRow row;
  row.machine = kMachine;
  row.provenance = RowProvenance::kModel;
  row.vendor = "GenuineIntel";
  row.brand = "model of the manual";
  row.family = 6;
  row.model = 0x2A;
  row.stepping = 7;
  row.microarch = kMicroarch;
  row.pmu = true;
  row.capabilities = {"pebs", "pdir"};
  return row;
}

TestRow sample_test() {
  TestRow row;
  row.machine = kMachine;
  row.microarch = kMicroarch;
  row.id = "PebsReload.LoadsTheResetSlotAfterEveryRecord";
  row.clauses = {"R19"};
  row.citations = {{"R19", "The counter is loaded with the reset value."}};
  row.status = Status::kPass;
  row.duration_s = 0.012;
  row.seed = 1;
  row.iterations = 1000;
  row.comparisons = 998;
  row.evidence["records"] = 998;
  row.evidence["ip"] = hex(0x7F0012345678);
  row.evidence["skid"] = Histogram{.name = "skid after a load",
                                   .unit = "instructions",
                                   .bins = {{1, 998}, {2, 2}},
                                   .expected = {1}};
  row.evidence["count"] = Series{.name = "count",
                                 .x_label = "record",
                                 .x_unit = "",
                                 .y_label = "counter",
                                 .unit = "events",
                                 .x = {0, 1, 2},
                                 .y = {10, 11, 12.5}};
  return row;
}

MeasurementRow sample_counted_measurement() {
  MeasurementRow row = sample_measurement();
  row.name = "memory.stride_latency";
  row.counts = {{"instructions", 1.125}, {"cycles", 4.0}};
  row.counts_agree = false;
  row.counts_differ = "instructions: 1.25 counted, 1.125 declared, in 1 of 6 samples";
  return row;
}

MeasurementRow sample_measurement() {
  MeasurementRow row;
  row.machine = kMachine;
  row.microarch = kMicroarch;
  row.name = "memory.latency";
  row.value = 4.25;
  row.unit = "ns";
  row.statistic = "median";
  row.n = 21;
  row.low = 4.0;
  row.high = 4.5;
  row.interval = "quartiles";
  row.parameters = {{"bytes", 16384}, {"page", "4KiB"}};
  return row;
}

QualificationRow sample_qualification() {
  QualificationRow row;
  row.machine = "model:*";
  row.microarchs = {"sandy-bridge", "ivy-bridge"};
  row.seeds = 50;
  row.conforming_runs = 100;
  row.defects = 18;
  row.caught = 18;
  row.held = true;
  row.duration_s = 60;
  return row;
}

QualificationShardRow sample_qualification_shard() {
  QualificationShardRow row;
  row.machine = "model:*";
  row.microarchs = {"sandy-bridge", "ivy-bridge"};
  row.seeds = 3;
  row.seed = 1;
  row.all = true;
  row.units = {
      {"conforming",
       Json::array({{{"position", 2}, {"name", "model:sandy-bridge, seed 2"}, {"rows", 0}}})},
      {"verdicts", Json::array({{{"position", 0},
                                 {"name", "model:sandy-bridge+reset-never"},
                                 {"rows", 1},
                                 {"missed", ""},
                                 {"id", "reset-never"}}})}};
  row.tests_run = {"PebsReload.LoadsTheResetSlotAfterEveryRecord", "PebsArming.NeedsItsBit"};
  row.tests_caught = {"PebsReload.LoadsTheResetSlotAfterEveryRecord"};
  row.duration_s = 30;
  return row;
}

FuzzRow sample_fuzz() {
  FuzzRow row;
  row.machine = kMachine;
  row.microarchs = {kMicroarch};
  row.cases = 1000;
  row.runs = 1500;
  row.exact_runs = 1400;
  row.instructions = 750'000;
  row.records = 3000;
  row.exact_records = 2900;
  row.writes = 12'000;
  row.refused = 1100;
  row.interrupts = 500;
  row.cases_per_s = 2000;
  row.violations = 1;
  row.violation = {{"check", "record"}, {"clause", "R2"}, {"file", "fuzz-1.json"}};
  row.duration_s = 0.5;
  return row;
}

ErratumRow sample_erratum() {
  ErratumRow row;
  row.machine = kMachine;
  row.microarch = kMicroarch;
  row.id = "BJ103";
  row.aliases = {"BK102", "HSD11"};
  row.title = "the precise distribution is wrong with a period below 100";
  row.listed = Listed::kAffected;
  row.listed_by = "specification-update";
  row.listed_why = "listed for 06_2A";
  row.observed = Observed::kNotReproduced;
  row.tries = 10;
  row.excluded_rate = 0.26;
  row.exposure = Exposure::kExposed;
  row.exposure_why = "no workaround is known to be in place";
  return row;
}

InventoryRow sample_inventory() {
  InventoryRow row;
  row.machine = "rack7-node3";
  row.line = 12;
  row.vendor = "GenuineIntel";
  row.family = 6;
  row.model = 0x3C;
  row.stepping = 3;
  row.microcode = 0x1F;
  row.hyper_threading = true;
  row.exposed = {"HSD143"};
  row.fixed = {"HSD159"};
  row.verdict = 2;
  return row;
}

ErrataSummaryRow sample_errata_summary() {
  ErrataSummaryRow row;
  row.machine = "inventory";
  row.id = "HSD159";
  row.microcode = 0x1F;
  row.fixed = 40;
  return row;
}

EndRow sample_end() {
  EndRow row;
  row.machine = kMachine;
  row.finished = utc_now();
  row.counts[Status::kPass] = 1;
  row.counts[Status::kFail] = 1;
  row.counts[Status::kSkip] = 1;
  row.counts[Status::kXfail] = 1;
  row.counts[Status::kObserved] = 1;
  row.counts[Status::kDisturbed] = 1;
  row.exit = 1;
  row.reason = "completed";
  row.duration_s = 2.5;
  return row;
}

std::vector<Row> sample_rows() {
  return {sample_run(),
          sample_machine(),
          sample_start(),
          sample_test(),
          sample_failure(),
          sample_skip(),
          sample_xfail(),
          sample_observation(),
          sample_disturbance(),
          sample_measurement_start(),
          sample_unmeasured(),
          sample_measurement(),
          sample_counted_measurement(),
          sample_defect(),
          sample_qualification(),
          sample_qualification_shard(),
          sample_fuzz(),
          sample_erratum(),
          sample_inventory(),
          sample_errata_summary(),
          sample_end()};
}

}  // namespace skidproof::results
