#include "harness/cli/tapes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "harness/cli/text.h"

namespace skidproof::cli {
namespace {

tape::SectionKey key_of(const check::MachineRequest& request) {
  return {.test = request.test, .repetition = request.repetition, .attempt = request.attempt};
}

// Whether somebody will want to look at it again. What failed once and never again is worth it most.
bool worth_keeping(results::Status status) {
  using results::Status;
  return status == Status::kFail || status == Status::kError || status == Status::kDisturbed;
}

std::string file_name(std::string test) {
  for (char& c : test) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                      std::string_view(".+=,_-").find(c) != std::string_view::npos;
    if (!kept) c = '_';
  }
  return test;
}

}  // namespace

Expected<void> RecordingSource::record_to(const std::string& file) {
  whole_ = SKIDPROOF_TRY(tape::TapeWriter::create(file, header_));
  return {};
}

Expected<std::shared_ptr<Machine>> RecordingSource::machine(const check::MachineRequest& request) {
  std::shared_ptr<Machine> machine = SKIDPROOF_TRY(source_.machine(request));
  given_.push_back(std::make_shared<tape::RecordingMachine>(std::move(machine), key_of(request),
                                                            request.seed, header_.identity));
  return given_.back();
}

Expected<void> RecordingSource::given_up() {
  collect();
  return source_.given_up();
}

// The sections of machines that nobody has any more.
void RecordingSource::collect() {
  for (const auto& machine : given_) {
    if (machine.use_count() > 1) continue;
    tape::Section section = machine->take_section();
    if (whole_ != nullptr) note(whole_->write(section));
    if (!folder_.empty()) sections_.push_back(std::move(section));
  }
  std::erase_if(given_, [](const auto& machine) { return machine.use_count() == 1; });
}

void RecordingSource::note(Expected<void> done) {
  if (!done && !error_) error_ = std::move(done).error();
}

void RecordingSource::judged(const results::TestRow& row) {
  if (worth_keeping(row.status)) note(keep_failure(row, sections_));
  std::erase_if(sections_, [&](const tape::Section& s) { return s.key.test == row.id; });
}

// As a run of that test alone, of its repetition alone.
Expected<void> RecordingSource::keep_failure(const results::TestRow& row,
                                             const std::vector<tape::Section>& sections) {
  if (folder_.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    return fail(ErrorCode::kIo,
                fmt::format("cannot create the folder '{}': {}", folder_, error.message()));
  }
  std::string name = file_name(row.id);
  if (row.repetition != 0) name += fmt::format("-{}", row.repetition);
  while (!failures_.insert(name).second) name += "-";
  tape::TapeHeader header = header_;
  header.facts.repeat = row.repetition + 1;
  header.facts.filter = row.id;
  const auto file = std::filesystem::path(folder_) / (name + ".tape");
  auto writer = SKIDPROOF_TRY(tape::TapeWriter::create(file.string(), header));
  for (const tape::Section& section : sections) SKIDPROOF_CHECK(writer->write(section));
  return writer->finish();
}

Expected<void> RecordingSource::finish() {
  collect();
  if (whole_ != nullptr) note(whole_->finish());
  if (error_) return tl::make_unexpected(*error_);
  return {};
}

std::vector<std::string> RecordingSource::kept() const {
  std::vector<std::string> lines;
  if (whole_ != nullptr) {
    lines.push_back(fmt::format("{} ({:.1f} MB) recorded to {}",
                                count_of(whole_->sections(), "attempt"),
                                static_cast<double>(whole_->bytes()) / 1e6, whole_->path()));
  }
  if (!failures_.empty()) {
    lines.push_back(
        fmt::format("{} of what failed in {}", count_of(failures_.size(), "tape"), folder_));
  }
  return lines;
}

Expected<std::shared_ptr<Machine>> TapeSource::machine(const check::MachineRequest& request) {
  const tape::SectionKey key = key_of(request);
  auto machine = reader_->content(key, turns_[key]++).and_then([&](std::vector<std::byte> content) {
    return tape::TapeMachine::create(std::move(content), identity_, request.seed);
  });
  if (!machine) {
    // What was never recorded is nobody's fault; anything else says nothing about the processor.
    if (machine.error().code != ErrorCode::kNotRecorded) lost_ = machine.error();
    return tl::make_unexpected(std::move(machine).error());
  }
  given_.push_back(*machine);
  return given_.back();
}

Expected<void> TapeSource::given_up() {
  Expected<void> first;
  if (lost_) first = tl::make_unexpected(*std::exchange(lost_, std::nullopt));
  for (const auto& machine : given_) {
    if (machine.use_count() > 1) continue;
    auto finished = machine->finished();
    if (first && !finished) first = std::move(finished);
  }
  std::erase_if(given_, [](const auto& machine) { return machine.use_count() == 1; });
  return first;
}

}  // namespace skidproof::cli
