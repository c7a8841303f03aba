// A run that was cut short by a hang, a crash or a reboot, as its rows tell it.
#ifndef SKIDPROOF_HARNESS_CLI_RESUME_H_
#define SKIDPROOF_HARNESS_CLI_RESUME_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "results/row.h"

namespace skidproof::cli {

struct Interrupted {
  std::string path;  // of its rows
  results::RunRow run;
  std::optional<results::MachineRow> machine;  // nullopt: it ended before that row
  std::vector<results::TestRow> tests;
  std::optional<results::TestStartRow> lost;    // the test that had started when it ended
  std::optional<std::string> lost_measurement;  // the same of a measurement
  // Measurements that this or an earlier end of the machine cut short, each with its reason. They are not
  // tried again: whoever goes on would hang again.
  std::map<std::string, std::string> left_out;
  uint64_t whole = 0;  // bytes of the file that are whole lines
  bool torn = false;   // there are more: its last line breaks off
};

// The run in this folder. kInvalidArgument, with what to do, where there is none, where it has an `end`
// row, or where its rows were damaged otherwise than by the end of the machine; kIo, kPermission.
Expected<Interrupted> read_interrupted(const std::string& folder);

// Cuts the last line off where it breaks off. kIo.
Expected<void> mend(const Interrupted& interrupted);

// The row of the lost test: `error`, "machine lost: …".
results::TestRow lost_row(const results::TestStartRow& start);
bool is_lost(const results::TestRow& row);

// Why that run cannot go on upon this machine; empty: it can.
std::string other_machine(const Interrupted& interrupted, const results::MachineRow& now);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_RESUME_H_
