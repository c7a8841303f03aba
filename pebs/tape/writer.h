// Writing tapes.
#ifndef SKIDPROOF_PEBS_TAPE_WRITER_H_
#define SKIDPROOF_PEBS_TAPE_WRITER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/expected.h"
#include "pebs/tape/tape.h"

namespace skidproof::tape {

// A tape whose sections come one by one. What was written a second ago is on the disk, so that a machine
// that freezes leaves the tests before. Not thread-safe.
class TapeWriter {
 public:
  // Creates or empties the file, and writes the header. Errors: kIo, kPermission.
  static Expected<std::unique_ptr<TapeWriter>> create(const std::string& path,
                                                      const TapeHeader& header);
  ~TapeWriter();
  TapeWriter(const TapeWriter&) = delete;
  TapeWriter& operator=(const TapeWriter&) = delete;

  // Errors: kIo; then the tape stays as it is, and every later call fails alike.
  Expected<void> write(const Section& section);
  // The index. Without it the tape is one that was cut short.
  Expected<void> finish();

  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  size_t sections() const { return keys_.size(); }

 private:
  TapeWriter(std::string path, int file) : path_(std::move(path)), file_(file) {}
  Expected<void> append(const std::vector<std::byte>& bytes);
  Expected<void> sync();

  const std::string path_;
  const int file_;
  std::vector<SectionKey> keys_;
  uint64_t bytes_ = 0;
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
  std::string failure_;
};

// A whole tape in memory.
std::vector<std::byte> tape_of(const TapeHeader& header, const std::vector<Section>& sections);

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_WRITER_H_
