// Reading tapes, whole ones and others.
#ifndef SKIDPROOF_PEBS_TAPE_READER_H_
#define SKIDPROOF_PEBS_TAPE_READER_H_

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "pebs/tape/frame.h"
#include "pebs/tape/tape.h"

namespace skidproof::tape {

// Every frame's sum is checked when the tape is opened. What is whole can be read even where the rest was
// lost; the loss is told.
class TapeReader {
 public:
  // Errors: kInvalidArgument where there is no such file, or it is no tape, or one of another version; kIo
  // where its header is damaged.
  static Expected<std::unique_ptr<TapeReader>> open(const std::string& path);
  // The same of bytes, which outlive the reader; `name` is for messages.
  static Expected<std::unique_ptr<TapeReader>> parse(std::span<const std::byte> bytes,
                                                     std::string name);

  const std::string& name() const { return name_; }
  const TapeHeader& header() const { return header_; }
  // What was lost, in words; empty: nothing.
  const std::vector<std::string>& damage() const { return damage_; }
  size_t sections() const { return sections_; }

  // The content of a section. A key may come more than once (what measures for all tests does); `turn`
  // counts. Errors: kNotRecorded where a whole tape has none; kIo where it was lost, or may have been.
  Expected<std::vector<std::byte>> content(const SectionKey& key, size_t turn = 0) const;

 private:
  class Mapping;
  TapeReader(std::span<const std::byte> bytes, std::string name);
  Expected<void> read();
  void read_frames(size_t at);
  void take(const Frame& frame, size_t at);
  void compare_with_index();

  std::shared_ptr<const Mapping> mapping_;  // where it came from a file
  const std::span<const std::byte> bytes_;
  const std::string name_;
  TapeHeader header_;
  std::map<SectionKey, std::vector<PackedSection>> by_key_;
  size_t sections_ = 0;
  bool has_index_ = false;
  std::vector<SectionKey> index_;
  std::map<SectionKey, size_t> lost_;  // of the index, how many are not there
  std::vector<std::string> damage_;
};

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_READER_H_
