// Rows survive the way to JSON and back, dishonest rows are refused, and nothing that happens to a
// file leaves half a line in it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "results/row.h"
#include "results/samples/samples.h"
#include "results/writer.h"

namespace skidproof::results {
namespace {

using ::testing::HasSubstr;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// A folder that goes away with the test.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "skidproof-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string refusal(const Row& row) {
  auto checked = check_row(row);
  return checked ? "" : checked.error().message;
}

// ---------------------------------------------------------------------------------------------------

TEST(Row, EveryTypeSurvivesJsonAndBack) {
  ASSERT_EQ(sample_rows().size(), std::variant_size_v<Row> + 6);
  for (const Row& row : sample_rows()) {
    ASSERT_EQ(refusal(row), "");
    const Json json = Json::parse(json_of(row).dump());
    auto back = row_of(json);
    ASSERT_TRUE(back) << back.error().text();
    EXPECT_EQ(back->index(), row.index());
    EXPECT_EQ(json_of(*back), json);
  }
}

TEST(Row, StartsWithItsTypeAndNamesItsMachine) {
  for (const Row& row : sample_rows()) {
    const Json json = json_of(row);
    EXPECT_EQ(json.begin().key(), "type");
    // A line of an inventory is about a machine that nobody touched, by the inventory's name for it.
    const bool inventory =
        std::holds_alternative<InventoryRow>(row) || std::holds_alternative<ErrataSummaryRow>(row);
    EXPECT_THAT(json["machine"].get<std::string>(), HasSubstr(inventory ? "" : "model:"));
    EXPECT_NE(json["machine"], "");
  }
}

TEST(Row, KeepsAll64Bits) {
  RunRow run = sample_run();
  run.seed = std::numeric_limits<uint64_t>::max();
  auto back = row_of(Json::parse(json_of(run).dump()));
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<RunRow>(*back).seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(hex(std::numeric_limits<uint64_t>::max()), "0xffffffffffffffff");
  EXPECT_EQ(hex(0), "0x0");
}

TEST(Row, AShardSaysWhichOfHowManyAndAWholeRunSaysNothing) {
  RunRow run = sample_run();
  EXPECT_FALSE(json_of(run).contains("shard"));
  EXPECT_FALSE(json_of(run).contains("merged_from"));
  run.shard = RunShard{.index = 2, .of = 4, .planned = 1411, .plan = "0x1f", .all = true};
  run.merged_from = {"a", "b"};
  const Json json = Json::parse(json_of(run).dump());
  const auto back = row_of(json);
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(std::get<RunRow>(*back).shard, run.shard);
  EXPECT_EQ(std::get<RunRow>(*back).merged_from, run.merged_from);
  EXPECT_EQ(refusal(run), "");
  run.shard->index = 5;
  EXPECT_THAT(refusal(run), HasSubstr("beyond the last"));
  run.shard->index = 0;
  EXPECT_THAT(refusal(run), HasSubstr("beyond the last"));
  Json damaged = json;
  damaged["shard"].erase("plan");
  EXPECT_THAT(row_of(damaged).error().message, HasSubstr("`shard.plan` is missing"));
  damaged["shard"] = "2/4";
  EXPECT_THAT(row_of(damaged).error().message, HasSubstr("`shard` cannot be"));
}

TEST(Row, MicrocodeIsHexadecimalOrNull) {
  MachineRow machine = sample_machine();
  machine.microcode = 0x2b000603;
  EXPECT_EQ(json_of(machine)["microcode"], "0x2b000603");
  machine.microcode.reset();
  const Json json = json_of(machine);
  EXPECT_TRUE(json["microcode"].is_null());
  auto back = row_of(json);
  ASSERT_TRUE(back);
  EXPECT_FALSE(std::get<MachineRow>(*back).microcode.has_value());
}

TEST(Row, ReadersIgnoreFieldsAddedLater) {
  Json json = json_of(sample_run());
  json["added_later"] = 1;
  EXPECT_TRUE(row_of(json));
}

TEST(Row, MissingAndIllTypedFieldsAreNamed) {
  Json json = json_of(sample_test());
  json.erase("comparisons");
  EXPECT_THAT(row_of(json).error().message, HasSubstr("`comparisons` is missing"));
  json["comparisons"] = -1;
  EXPECT_THAT(row_of(json).error().message, HasSubstr("`comparisons` cannot be -1"));
  json["comparisons"] = 1;
  json["status"] = "passed";
  EXPECT_THAT(row_of(json).error().message, HasSubstr("`status` cannot be \"passed\""));
  Json measurement = json_of(sample_measurement());
  measurement["noise"].erase("smi");
  EXPECT_THAT(row_of(measurement).error().message, HasSubstr("`noise.smi` is missing"));
}

TEST(Row, AnotherSchemaAndUnknownTypesAreErrors) {
  Json run = json_of(sample_run());
  run["schema"] = 2;
  EXPECT_THAT(row_of(run).error().message, HasSubstr("schema 2"));
  EXPECT_THAT(row_of(Json{{"type", "tset"}}).error().message, HasSubstr("`tset`"));
  EXPECT_FALSE(row_of(Json::array()));
}

TEST(Row, AVacuousPassIsRefused) {
  TestRow test = sample_test();
  test.comparisons = 0;
  EXPECT_THAT(refusal(test), HasSubstr("without comparing"));
  test = sample_test();
  test.iterations = 0;
  EXPECT_THAT(refusal(test), HasSubstr("without executing"));
}

TEST(Row, StatusAndItsExplanationGoTogether) {
  TestRow test = sample_test();
  test.status = Status::kFail;
  EXPECT_THAT(refusal(test), HasSubstr("without saying how"));
  test = sample_test();
  test.status = Status::kSkip;
  test.reason = "x";
  EXPECT_THAT(refusal(test), HasSubstr("category"));
  test = sample_test();
  test.skip_category = SkipCategory::kNoPmu;
  EXPECT_THAT(refusal(test), HasSubstr("category"));
  for (Status status : {Status::kError, Status::kXfail, Status::kXpass, Status::kDisturbed}) {
    test = sample_test();
    test.status = status;
    test.failures = {"x"};
    if (status == Status::kXfail || status == Status::kXpass) test.erratum = "BJ58";
    EXPECT_THAT(refusal(test), HasSubstr("reason")) << name_of(status);
  }
}

TEST(Row, APassWithoutEvidenceIsRefused) {
  TestRow test = sample_test();
  test.evidence = Json::object();
  EXPECT_THAT(refusal(test), HasSubstr("without any evidence"));
}

TEST(Row, AnObservationSaysWhatWasSeen) {
  TestRow test = sample_test();
  test.status = Status::kObserved;
  EXPECT_THAT(refusal(test), HasSubstr("observed nothing"));
  test.evidence["observed"] = {{"outcome", 1}};
  EXPECT_EQ(refusal(test), "");
  test.iterations = 0;
  EXPECT_THAT(refusal(test), HasSubstr("without executing"));
}

TEST(Row, AnErratumGoesWithTheOutcomesThatItExplains) {
  TestRow test = sample_test();
  test.erratum = "BJ58";
  EXPECT_THAT(refusal(test), HasSubstr("name an erratum"));
  test.status = Status::kXpass;
  test.reason = "listed, and did not show";
  EXPECT_EQ(refusal(test), "");
  test.erratum.clear();
  EXPECT_THAT(refusal(test), HasSubstr("name an erratum"));
}

TEST(Row, RepetitionsAreAShare) {
  TestRow test = sample_test();
  test.repetitions = {.n = 2, .k = 3};
  EXPECT_THAT(refusal(test), HasSubstr("more often"));
  test.repetitions = {.n = 2, .k = 1, .rate = 1.5};
  EXPECT_THAT(refusal(test), HasSubstr("not a share"));
  test.repetitions = {.n = 2, .k = 1, .rate = 0.5, .low = 0.01};
  EXPECT_THAT(refusal(test), HasSubstr("two ends"));
}

// Rows of files that were written before stages, errata, repetitions and the newer statuses.
TEST(Row, FieldsThatWereAddedLaterMayBeMissing) {
  Json test = json_of(sample_test());
  for (const char* added : {"stage", "erratum", "repetitions"}) test.erase(added);
  auto old = row_of(test);
  ASSERT_TRUE(old) << old.error().text();
  EXPECT_EQ(std::get<TestRow>(*old).repetitions.n, 0u);
  test["repetitions"] = {{"n", 1}};
  EXPECT_THAT(row_of(test).error().message, HasSubstr("`repetitions.k` is missing"));
  Json end = json_of(sample_end());
  end["counts"].erase("observed");
  end["counts"].erase("disturbed");
  auto old_end = row_of(end);
  ASSERT_TRUE(old_end) << old_end.error().text();
  EXPECT_EQ(std::get<EndRow>(*old_end).counts[Status::kObserved], 0u);
  end["counts"].erase("xpass");
  EXPECT_THAT(row_of(end).error().message, HasSubstr("`counts.xpass` is missing"));
}

TEST(Row, AMeasurementHasANameAndItsLackAReason) {
  EXPECT_THAT(refusal(MeasurementStartRow{.machine = "direct"}), HasSubstr("name"));
  UnmeasuredRow unmeasured{.machine = "direct", .name = "calibration.record-cycles"};
  EXPECT_THAT(refusal(unmeasured), HasSubstr("says why"));
  unmeasured.reason = "no event counts cycles";
  EXPECT_EQ(refusal(unmeasured), "");
  unmeasured.name.clear();
  EXPECT_THAT(refusal(unmeasured), HasSubstr("name"));
}

TEST(Row, ANumberThatIsNotOneIsRefused) {
  MeasurementRow measurement = sample_measurement();
  measurement.value = std::nan("");
  EXPECT_THAT(refusal(measurement), HasSubstr("not finite"));
  measurement = sample_measurement();
  measurement.n = 0;
  EXPECT_THAT(refusal(measurement), HasSubstr("no sample"));
  measurement = sample_measurement();
  std::swap(measurement.low, measurement.high);
  EXPECT_THAT(refusal(measurement), HasSubstr("interval"));
}

TEST(Row, WhatWasCountedBesideAMeasurementIsThereWhereItIs) {
  MeasurementRow measurement = sample_measurement();
  for (const char* field : {"counts", "counts_agree", "counts_differ"})
    EXPECT_FALSE(json_of(measurement).contains(field)) << field;
  measurement.counts = {{"instructions", 1.125}, {"cycles", 4}};
  measurement.counts_agree = true;
  ASSERT_EQ(refusal(measurement), "");
  const Json json = json_of(measurement);
  EXPECT_FALSE(json.contains("counts_differ"));
  const auto back = row_of(json);
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(std::get<MeasurementRow>(*back).counts, measurement.counts);
  EXPECT_EQ(std::get<MeasurementRow>(*back).counts_agree, measurement.counts_agree);
  measurement.counts_agree = false;
  EXPECT_THAT(refusal(measurement), HasSubstr("what differs"));
  measurement.counts_differ = "instructions: 2 counted, 1 declared";
  EXPECT_EQ(refusal(measurement), "");
  EXPECT_EQ(json_of(measurement)["counts_differ"], measurement.counts_differ);
  measurement.counts = {{"cycles", "four"}};
  EXPECT_THAT(refusal(measurement), HasSubstr("not a number"));
}

TEST(Row, AQualificationHoldsOnlyWhenAllWasCaughtAndNobodyAccused) {
  QualificationRow qualification = sample_qualification();
  ASSERT_EQ(refusal(qualification), "");
  qualification.caught -= 1;
  qualification.missed = {"pmi-never"};
  EXPECT_THAT(refusal(qualification), HasSubstr("holds when"));
  qualification.held = false;
  EXPECT_EQ(refusal(qualification), "");
}

TEST(Row, AFuzzRunHoldsOnlyWhenCasesRanAndNoneViolatedACheck) {
  FuzzRow fuzz = sample_fuzz();
  ASSERT_EQ(refusal(fuzz), "");
  fuzz.held = true;
  EXPECT_THAT(refusal(fuzz), HasSubstr("holds when"));
  fuzz.violations = 0;
  EXPECT_THAT(refusal(fuzz), HasSubstr("says what it is"));
  fuzz.violation = Json::object();
  EXPECT_EQ(refusal(fuzz), "");
  fuzz.exact_records = fuzz.records + 1;
  EXPECT_THAT(refusal(fuzz), HasSubstr("more than its whole"));
}

TEST(Row, EveryRowNeedsAMachine) {
  for (Row row : sample_rows()) {
    std::visit([](auto& typed) { typed.machine.clear(); }, row);
    EXPECT_THAT(refusal(row), HasSubstr("names its machine"));
  }
}

TEST(Row, ClosedListsHaveDistinctWords) {
  std::set<std::string> words;
  for (SkipCategory category : kSkipCategories) words.insert(name_of(category));
  EXPECT_EQ(words.size(), kSkipCategories.size());
  words.clear();
  for (Status status : kStatuses) words.insert(name_of(status));
  EXPECT_EQ(words.size(), kStatuses.size());
}

TEST(Row, EvidenceTakesShapesAndPlainJson) {
  TestRow test = sample_test();
  test.evidence = Json{{"records", 7}};
  test.evidence["skid"] =
      Histogram{.name = "skid", .unit = "instructions", .bins = {{1, 9}, {-2, 1}}};
  const Json json = json_of(test);
  EXPECT_EQ(json["evidence"]["skid"]["kind"], "histogram");
  EXPECT_EQ(json["evidence"]["skid"]["bins"].dump(), "[[1,9],[-2,1]]");
  EXPECT_EQ(json["evidence"]["records"], 7);
}

// ---------------------------------------------------------------------------------------------------

TEST(JsonLinesWriter, WritesOneWholeLinePerRow) {
  Folder folder;
  const std::string path = folder / "rows.jsonl";
  auto writer = JsonLinesWriter::open(path);
  ASSERT_TRUE(writer) << writer.error().text();
  size_t written = 0;
  for (const Row& row : sample_rows()) {
    ASSERT_TRUE((*writer)->write(row));
    ++written;
    auto file = read_rows(path);  // what a reader sees between any two tests
    ASSERT_TRUE(file);
    ASSERT_EQ(file->rows.size(), written);
    EXPECT_TRUE(file->problems.empty());
    EXPECT_EQ(file->rows.back().json, Json::parse(json_of(row).dump()));
  }
  EXPECT_EQ((*writer)->rows(), written);
  EXPECT_EQ((*writer)->failure(), "");
}

TEST(JsonLinesWriter, GivesBackWhatItReserved) {
  Folder folder;
  const std::string path = folder / "rows.jsonl";
  ASSERT_TRUE((*JsonLinesWriter::open(path))->write(sample_run()));
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, 8192);
  EXPECT_EQ(static_cast<size_t>(status.st_size), json_of(sample_run()).dump().size() + 1);
}

TEST(JsonLinesWriter, ARefusedRowLeavesTheFileAsItWas) {
  Folder folder;
  const std::string path = folder / "rows.jsonl";
  auto writer = *JsonLinesWriter::open(path);
  ASSERT_TRUE(writer->write(sample_run()));
  TestRow vacuous = sample_test();
  vacuous.comparisons = 0;
  EXPECT_EQ(writer->write(vacuous).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(writer->write(sample_test()));
  EXPECT_EQ(read_rows(path)->rows.size(), 2u);
}

TEST(JsonLinesWriter, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  Folder folder;
  const std::string path = folder / "rows.jsonl";
  TestRow test = sample_test();
  test.status = Status::kFail;
  test.failures = {"found \xff\xfe"};
  ASSERT_TRUE((*JsonLinesWriter::open(path))->write(test));
  EXPECT_THAT(read_text(path), HasSubstr("found \xEF\xBF\xBD"));
  EXPECT_TRUE(read_rows(path)->problems.empty());
}

TEST(JsonLinesWriter, OpenSaysWhatIsWrongWithThePlace) {
  Folder folder;
  auto missing = JsonLinesWriter::open((folder / "no" / "rows.jsonl").string());
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().advice, HasSubstr("create the folder"));
  auto directory = JsonLinesWriter::open(folder.path().string());
  ASSERT_FALSE(directory);
  EXPECT_THAT(directory.error().advice, HasSubstr("inside that folder"));
}

TEST(JsonLinesWriter, AFullDeviceIsAnErrorWithAdvice) {
  auto writer = JsonLinesWriter::open("/dev/full");
  ASSERT_TRUE(writer) << writer.error().text();
  auto written = (*writer)->write(sample_run());
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_THAT(written.error().message, HasSubstr("no room for another row in /dev/full"));
  EXPECT_THAT(written.error().advice, HasSubstr("free some room"));
  EXPECT_EQ((*writer)->failure(), "disk full");
  EXPECT_FALSE((*writer)->write(sample_run()));
}

// Writes short rows to `path` until it is full, then an `end` row that is longer than any gap which
// they can have left.
void fill_and_end(const std::string& path) {
  auto writer = JsonLinesWriter::open(path);
  ASSERT_TRUE(writer) << writer.error().text();
  size_t written = 0;
  Expected<void> result;
  for (; written < 20'000; ++written) {
    result = (*writer)->write(sample_run());
    if (!result) break;
  }
  ASSERT_FALSE(result) << "never full";
  ASSERT_GT(written, 0u);
  EXPECT_EQ((*writer)->failure(), "disk full");
  EXPECT_THAT(result.error().message, HasSubstr(fmt::format("{} rows", written)));
  EndRow end = sample_end();
  end.reason = (*writer)->failure() + std::string(1000, '.');
  auto ended = (*writer)->write(end);
  EXPECT_TRUE(ended) << ended.error().text();

  auto file = read_rows(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->problems.empty());
  EXPECT_TRUE(file->ended);
  ASSERT_EQ(file->rows.size(), written + 1);
  EXPECT_EQ(file->rows.back().json["reason"], end.reason);
}

TEST(JsonLinesWriter, OnAFullDiskTheEndRowStillFitsAndSaysWhy) {
  Folder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  }
  fill_and_end(folder / "rows.jsonl");
  ::umount(folder.path().c_str());
}

// The same where a row is cut in the middle: a file-size limit strikes inside a line, and the part
// that was written is taken back. In a child, so that the limit binds nobody else.
TEST(JsonLinesWriter, APartlyWrittenRowIsTakenBack) {
  Folder folder;
  const std::string path = folder / "rows.jsonl";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto writer = JsonLinesWriter::open(path);
    const struct rlimit limit = {.rlim_cur = 1000, .rlim_max = 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    bool refused = false;
    for (int i = 0; i < 100 && !refused; ++i) refused = !(*writer)->write(sample_test());
    ::_exit(refused && (*writer)->failure() == "disk full" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const std::string text = read_text(path);
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  EXPECT_TRUE(read_rows(path)->problems.empty());
}

TEST(JsonLinesWriter, AReaderThatLeavesIsAnErrorAndNotADeath) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string path = fmt::format("/dev/fd/{}", ends[1]);
  auto writer = JsonLinesWriter::open(path);
  ASSERT_TRUE(writer) << writer.error().text();
  EXPECT_TRUE((*writer)->write(sample_run()));  // a pipe cannot be synced; that is no failure
  ::close(ends[0]);
  auto written = (*writer)->write(sample_run());
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("stopped reading"));
  EXPECT_EQ((*writer)->failure(), "output closed");
  ::close(ends[1]);
}

// ---------------------------------------------------------------------------------------------------

TEST(ReadRows, ReportsCorruptLinesByNumberAndKeepsTheOthers) {
  Folder folder;
  const std::string path = folder / "rows.jsonl";
  std::ofstream(path) << json_of(sample_run()) << "\nnot json\n\n[1]\n"
                      << json_of(sample_end()) << "\r\n";
  auto file = read_rows(path);
  ASSERT_TRUE(file);
  ASSERT_EQ(file->problems.size(), 2u);
  EXPECT_EQ(file->problems[0].line, 2u);
  EXPECT_EQ(file->problems[1].line, 4u);
  ASSERT_EQ(file->rows.size(), 2u);
  EXPECT_EQ(file->rows[1].line, 5u);
  EXPECT_TRUE(file->ended);
  EXPECT_FALSE(file->truncated);
}

TEST(ReadRows, ToleratesALastLineThatBreaksOff) {
  Folder folder;
  const std::string path = folder / "rows.jsonl";
  std::ofstream(path) << json_of(sample_run()) << "\n{\"type\":\"test\",\"id\":\"Pe";
  auto file = read_rows(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->truncated);
  EXPECT_FALSE(file->ended);
  EXPECT_EQ(file->rows.size(), 1u);
  ASSERT_EQ(file->problems.size(), 1u);
  EXPECT_THAT(file->problems[0].what, HasSubstr("breaks off"));
}

TEST(ReadRows, AFileThatIsNotThereIsAnError) {
  auto file = read_rows("/nonexistent/rows.jsonl");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kIo);
  EXPECT_THAT(file.error().message, HasSubstr("/nonexistent/rows.jsonl"));
}

}  // namespace
}  // namespace skidproof::results
