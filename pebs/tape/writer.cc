#include "pebs/tape/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "pebs/tape/frame.h"

namespace skidproof::tape {
namespace {

constexpr std::chrono::seconds kSyncEvery{1};

void add(std::vector<std::byte>& out, const std::vector<std::byte>& more) {
  out.insert(out.end(), more.begin(), more.end());
}

}  // namespace

Expected<std::unique_ptr<TapeWriter>> TapeWriter::create(const std::string& path,
                                                         const TapeHeader& header) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) {
    const bool refused = errno == EACCES || errno == EPERM || errno == EROFS;
    return fail(
        refused ? ErrorCode::kPermission : ErrorCode::kIo,
        fmt::format("cannot open the tape '{}' for writing: {}", path, std::strerror(errno)),
        "name a file in a folder that exists and can be written");
  }
  std::unique_ptr<TapeWriter> writer(new TapeWriter(path, file));
  std::vector<std::byte> first = preamble();
  add(first, header_frame(header));
  SKIDPROOF_CHECK(writer->append(first));
  SKIDPROOF_CHECK(writer->sync());
  return writer;
}

TapeWriter::~TapeWriter() { ::close(file_); }

Expected<void> TapeWriter::append(const std::vector<std::byte>& bytes) {
  size_t done = 0;
  while (failure_.empty() && done < bytes.size()) {
    const ssize_t written = ::write(file_, bytes.data() + done, bytes.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      failure_ = written == 0 ? "it takes no more" : std::strerror(errno);
      // Never half a frame: a reader would take it for damage.
      if (::ftruncate(file_, static_cast<off_t>(bytes_)) != 0) failure_ += ", and is torn";
    }
  }
  if (!failure_.empty()) {
    return fail(ErrorCode::kIo, fmt::format("cannot write to the tape '{}': {}", path_, failure_),
                "free some room, or record to another disk");
  }
  bytes_ += bytes.size();
  return {};
}

// Where a file cannot be synced, as a pipe, there is nothing to lose.
Expected<void> TapeWriter::sync() {
  if (::fdatasync(file_) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
    failure_ = std::strerror(errno);
    return append({});
  }
  synced_ = std::chrono::steady_clock::now();
  return {};
}

Expected<void> TapeWriter::write(const Section& section) {
  if (section.content.size() > kMaximumContent) {
    return fail(ErrorCode::kIo, fmt::format("{} is too much for a tape: {} bytes", section.key.test,
                                            section.content.size()));
  }
  SKIDPROOF_CHECK(append(section_frame(section)));
  keys_.push_back(section.key);
  if (std::chrono::steady_clock::now() - synced_ < kSyncEvery) return {};
  return sync();
}

Expected<void> TapeWriter::finish() {
  SKIDPROOF_CHECK(append(index_frame(keys_)));
  return sync();
}

std::vector<std::byte> tape_of(const TapeHeader& header, const std::vector<Section>& sections) {
  std::vector<std::byte> tape = preamble();
  add(tape, header_frame(header));
  std::vector<SectionKey> keys;
  for (const Section& section : sections) {
    add(tape, section_frame(section));
    keys.push_back(section.key);
  }
  add(tape, index_frame(keys));
  return tape;
}

}  // namespace skidproof::tape
