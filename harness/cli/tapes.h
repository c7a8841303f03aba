// Runs on tapes: what records them, and what replays them.
#ifndef SKIDPROOF_HARNESS_CLI_TAPES_H_
#define SKIDPROOF_HARNESS_CLI_TAPES_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "harness/check/check.h"
#include "pebs/tape/reader.h"
#include "pebs/tape/recording_machine.h"
#include "pebs/tape/tape_machine.h"
#include "pebs/tape/writer.h"
#include "results/row.h"

namespace skidproof::cli {

// Machines of another source that keep all that crosses them: the whole run on one tape, each test that failed
// on one of its own, or both.
class RecordingSource final : public check::MachineSource {
 public:
  // `source` outlives this.
  RecordingSource(check::MachineSource& source, tape::TapeHeader header)
      : source_(source), header_(std::move(header)) {}

  // The whole run goes to this file. Errors: kIo, kPermission.
  Expected<void> record_to(const std::string& file);
  // Tests that fail go to files in this folder, which is made for the first.
  void keep_failures_in(std::string folder) { folder_ = std::move(folder); }

  Expected<std::shared_ptr<Machine>> machine(const check::MachineRequest& request) override;
  Expected<void> given_up() override;

  // A test is through: its tape is kept, or forgotten.
  void judged(const results::TestRow& row);
  // After the last test. The first error of any tape; the run itself went on without it.
  Expected<void> finish();

  // For people: "1,266 sections, 3.1 MB, in run.tape". Empty where there is nothing to say.
  std::vector<std::string> kept() const;

 private:
  void collect();
  Expected<void> keep_failure(const results::TestRow& row,
                              const std::vector<tape::Section>& sections);
  void note(Expected<void> done);

  check::MachineSource& source_;
  const tape::TapeHeader header_;
  std::unique_ptr<tape::TapeWriter> whole_;
  std::string folder_;
  std::vector<std::shared_ptr<tape::RecordingMachine>> given_;
  std::vector<tape::Section> sections_;  // of the test under way, and of what measures for all
  std::set<std::string> failures_;       // names of their files
  std::optional<Error> error_;
};

// What a tape holds of each attempt of a test.
class TapeSource final : public check::MachineSource {
 public:
  // `identity`: the one in the tape's header, with the row that it is judged by.
  TapeSource(std::shared_ptr<const tape::TapeReader> reader, Identity identity)
      : reader_(std::move(reader)), identity_(std::move(identity)) {}

  Expected<std::shared_ptr<Machine>> machine(const check::MachineRequest& request) override;
  Expected<void> given_up() override;

 private:
  const std::shared_ptr<const tape::TapeReader> reader_;
  const Identity identity_;
  std::map<tape::SectionKey, size_t> turns_;
  std::vector<std::shared_ptr<tape::TapeMachine>> given_;
  std::optional<Error> lost_;  // of a machine that could not be given
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_TAPES_H_
