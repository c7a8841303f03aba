// Shapes out of result files.
#include "harness/cli/measured_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "results/writer.h"

namespace skidproof::cli {
namespace {

class MeasuredShape : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("skidproof-shape-" + std::to_string(getpid()) + ".jsonl"))
                .string();
    auto opened = open_machine({.name = "model:sandy-bridge"}, 1);
    ASSERT_TRUE(opened) << opened.error().text();
    machine_ = std::move(*opened);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::vector<results::Row>& rows) const {
    auto writer = results::JsonLinesWriter::open(path_);
    ASSERT_TRUE(writer);
    for (const results::Row& row : rows) ASSERT_TRUE((*writer)->write(row));
  }
  static results::MeasurementRow size(const std::string& name, double low, double high,
                                      const std::string& statistic = "inferred") {
    results::MeasurementRow row;
    row.machine = "model:sandy-bridge";
    row.name = name;
    row.value = low;
    row.unit = "bytes";
    row.statistic = statistic;
    row.n = 1;
    row.low = low;
    row.high = high;
    return row;
  }

  std::string path_;
  OpenMachine machine_;
};

TEST_F(MeasuredShape, IsWhatWasInferredOfThisProcessor) {
  write({machine_row(machine_), size("shape.l1d.size", 65536, 65536),
         size("shape.l3.size", 1 << 23, 1 << 24), size("shape.rob.size", 168, 168),
         size("shape.l2.size", 4, 4, "median")});
  const auto shape = measured_shape(path_, machine_);
  ASSERT_TRUE(shape) << shape.error().text();
  EXPECT_EQ(text_of(*shape), "l1d=65536 l3=8388608..16777216");
}

TEST_F(MeasuredShape, OfAnotherProcessorIsRefused) {
  results::MachineRow other = machine_row(machine_);
  other.provenance = results::RowProvenance::kSilicon;
  write({other, size("shape.l1d.size", 65536, 65536)});
  const auto shape = measured_shape(path_, machine_);
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(shape.error().message, testing::HasSubstr("another processor"));
}

TEST_F(MeasuredShape, MustBeInTheFile) {
  write({machine_row(machine_)});
  EXPECT_EQ(measured_shape(path_, machine_).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(measured_shape("/nonexistent/rows.jsonl", machine_));
}

}  // namespace
}  // namespace skidproof::cli
