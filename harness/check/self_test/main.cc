// Runs the self-test set as `skidproof run` would: ROWS FILTER [LIMIT [REPEAT [WORD…]]]. After LIMIT rows
// the sink fails, as on a full disk. Words: fail-fast, ladder (what stands on broken ground is left
// out), certain (no repetition for the rate's sake).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "harness/check/check.h"
#include "harness/check/ladder.h"
#include "harness/check/listener.h"
#include "harness/check/self_test/fake_machine.h"
#include "results/writer.h"

int main(int argc, char** argv) {
  using namespace skidproof;
  if (argc < 3) return check::kExitUsage;
  const std::string filter = argv[2];
  const size_t limit = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : SIZE_MAX;
  auto writer = results::JsonLinesWriter::open(argv[1]);
  if (!writer) return check::kExitHarnessFailed;

  const std::set<std::string> words(argv + std::min(argc, 5), argv + argc);

  check::FakeMachines machines;
  check::Ladder ladder;
  check::environment() = {.machines = &machines,
                          .seed = 5,
                          .ladder = words.contains("ladder") ? &ladder : nullptr,
                          .rates = !words.contains("certain")};
  check::register_with_googletest(
      [&filter](const check::TestInfo& info) { return check::matches_filter(filter, info.id()); });
  ::testing::InitGoogleTest();
  if (argc > 4) ::testing::GTEST_FLAG(repeat) = std::atoi(argv[4]);
  ::testing::GTEST_FLAG(fail_fast) = words.contains("fail-fast");
  auto sink = [&writer, limit](const results::Row& row) -> Expected<void> {
    if ((*writer)->rows() >= limit) return fail(ErrorCode::kIo, "disk full");
    return (*writer)->write(row);
  };
  auto* listener = new check::Listener("fake", "sandy-bridge", sink);  // owned by GoogleTest
  ::testing::UnitTest::GetInstance()->listeners().Append(listener);
  [[maybe_unused]] const int ignored = RUN_ALL_TESTS();
  return listener->sink_errors().empty() ? check::exit_code(listener->counts())
                                         : check::kExitHarnessFailed;
}
