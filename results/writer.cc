// Rows to a file and back; see writer.h for what is promised when the disk is full or the reader
// gone.
#include "results/writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

namespace skidproof::results {
namespace {

// Kept beyond the last row for the `end` row; one block of the usual file systems.
constexpr off_t kSpareBytes = 4096;
// Room is reserved in steps, so that a system call for each row is not needed.
constexpr off_t kStepBytes = 64 * 1024;

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

// Pipes, terminals and some network file systems cannot be synced: that is no failure.
bool cannot_sync(int error) {
  return error == EINVAL || error == ENOTSUP || error == EROFS || error == ENOSYS;
}

Expected<void> cannot_open(const std::string& path, const char* purpose, int error) {
  const bool refused = error == EACCES || error == EPERM || error == EROFS;
  std::string advice;
  if (refused) advice = "choose a place that this user may use, or grant access to it";
  if (error == ENOENT) advice = "create the folder first, or check the spelling";
  if (error == EISDIR) advice = "name a file inside that folder";
  if (is_full(error)) advice = "free some room, or choose another place";
  return fail(refused ? ErrorCode::kPermission : ErrorCode::kIo,
              fmt::format("cannot open '{}' for {}: {}", path, purpose, std::strerror(error)),
              advice);
}

// A new name is on the disk only when its folder is. Best effort: the rows themselves are checked.
void sync_folder_of(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

std::string line_of(const Row& row) {
  return json_of(row).dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

JsonLinesWriter::JsonLinesWriter(std::string path, int fd, bool regular, bool owned)
    : path_(std::move(path)), fd_(fd), regular_(regular), owned_(owned) {}

JsonLinesWriter::~JsonLinesWriter() {
  // Gives back what was reserved beyond the end: cutting at the present size frees it.
  struct stat status;
  if (regular_ && reserved_ > 0 && ::fstat(fd_, &status) == 0) {
    [[maybe_unused]] int ignored = ::ftruncate(fd_, status.st_size);
  }
  if (owned_) ::close(fd_);
}

Expected<std::unique_ptr<JsonLinesWriter>> JsonLinesWriter::open(const std::string& path) {
  return open(path, O_CREAT | O_TRUNC);
}

Expected<std::unique_ptr<JsonLinesWriter>> JsonLinesWriter::append_to(const std::string& path) {
  return open(path, O_APPEND);
}

Expected<std::unique_ptr<JsonLinesWriter>> JsonLinesWriter::open(const std::string& path,
                                                                 int flags) {
  const bool standard_output = path == "-";
  const int fd =
      standard_output ? STDOUT_FILENO : ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0644);
  struct stat status;
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    return tl::make_unexpected(cannot_open(path, "writing", errno).error());
  }
  if (!standard_output) sync_folder_of(path);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return std::unique_ptr<JsonLinesWriter>(new JsonLinesWriter(
      standard_output ? "standard output" : path, fd, S_ISREG(status.st_mode), !standard_output));
}

// Makes sure that the file system has room up to `size`. False with errno when it is full.
bool JsonLinesWriter::reserve(off_t size) {
  if (!regular_ || reserved_ < 0 || size <= reserved_) return true;
  const off_t stepped = (size + kStepBytes - 1) / kStepBytes * kStepBytes;
  for (off_t goal : {stepped, size}) {
    if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, reserved_, goal - reserved_) == 0) {
      reserved_ = goal;
      return true;
    }
  }
  if (is_full(errno)) return false;
  reserved_ = -1;  // this file system cannot reserve: write() will say when it is full
  return true;
}

// Writes and syncs the line that begins at `start`. False with errno; then the file ends at
// `start`.
bool JsonLinesWriter::append(const std::string& line, off_t start) {
  size_t done = 0;
  int error = 0;
  while (done < line.size() && error == 0) {
    const ssize_t written = ::write(fd_, line.data() + done, line.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written == 0) {
      error = ENOSPC;  // a device that takes nothing and gives no reason
    } else if (errno == EAGAIN) {
      struct pollfd writable = {.fd = fd_, .events = POLLOUT, .revents = 0};
      ::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (error == 0 && ::fsync(fd_) != 0 && !cannot_sync(errno)) error = errno;
  if (error == 0) return true;
  if (!regular_) {
    torn_ = done > 0;
  } else if (::ftruncate(fd_, start) != 0 || ::lseek(fd_, start, SEEK_SET) != start) {
    torn_ = true;
  }
  errno = error;
  return false;
}

Expected<void> JsonLinesWriter::explain(int error) {
  const std::string kept = fmt::format("; the {} rows before it are whole and valid", rows_);
  if (is_full(error)) {
    failure_ = "disk full";
    return fail(
        ErrorCode::kIo,
        fmt::format("no room for another row in {} ({}){}", path_, std::strerror(error), kept),
        "free some room or raise the quota, or write elsewhere with --out DIR or --json FILE; "
        "then run again");
  }
  if (error == EPIPE) {
    failure_ = "output closed";
    return fail(ErrorCode::kIo, fmt::format("whoever read {} has stopped reading{}", path_, kept),
                "keep the reader until the run ends, or write to a file with --json FILE");
  }
  failure_ = "write failed";
  return fail(ErrorCode::kIo,
              fmt::format("cannot write a row to {}: {}{}", path_, std::strerror(error), kept),
              "check the device (dmesg), or write elsewhere with --out DIR or --json FILE");
}

Expected<void> JsonLinesWriter::write(const Row& row) {
  SKIDPROOF_CHECK(check_row(row));
  const std::string line = line_of(row);
  const bool end = std::holds_alternative<EndRow>(row);

  std::lock_guard lock(mutex_);
  if (torn_ || (!failure_.empty() && !end)) {
    return fail(ErrorCode::kIo, fmt::format("{} takes no more rows: {}", path_, failure_));
  }
  // Others may write to the same standard output: ask where the line begins, do not remember.
  off_t start = 0;
  if (regular_) {
    const bool appends = (::fcntl(fd_, F_GETFL) & O_APPEND) != 0;
    start = ::lseek(fd_, 0, appends ? SEEK_END : SEEK_CUR);
    if (start > reserved_ && reserved_ >= 0) reserved_ = start;
  }
  const off_t size = start + static_cast<off_t>(line.size());
  if (!end && !reserve(size + kSpareBytes)) return explain(errno);
  if (!append(line, start)) return explain(errno);
  ++rows_;
  return {};
}

size_t JsonLinesWriter::rows() const {
  std::lock_guard lock(mutex_);
  return rows_;
}

std::string JsonLinesWriter::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

// ---------------------------------------------------------------------------------------------------

namespace {

Expected<std::string> contents_of(const std::string& path) {
  const bool standard_input = path == "-";
  const int fd = standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return tl::make_unexpected(cannot_open(path, "reading", errno).error());
  std::string text;
  char buffer[65536];
  int error = 0;
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got > 0) {
      text.append(buffer, static_cast<size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      error = got == 0 ? 0 : errno;
      break;
    }
  }
  if (!standard_input) ::close(fd);
  if (error != 0) return tl::make_unexpected(cannot_open(path, "reading", error).error());
  return text;
}

void read_line(RowsFile& file, size_t number, std::string_view line, bool whole) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find_first_not_of(" \t") == std::string_view::npos) return;
  Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    file.truncated = file.truncated || !whole;
    file.problems.push_back(
        {number, whole ? "not JSON" : "the last line breaks off: writing was cut short"});
  } else if (!json.is_object() || !json.contains("type") || !json["type"].is_string()) {
    file.problems.push_back({number, "JSON, but not a row: an object with a `type`"});
  } else {
    file.rows.push_back({number, std::move(json)});
  }
}

}  // namespace

Expected<RowsFile> read_rows(const std::string& path) {
  const std::string text = SKIDPROOF_TRY(contents_of(path));
  RowsFile file;
  file.path = path;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const bool whole = end != std::string::npos;
    const size_t stop = whole ? end : text.size();
    read_line(file, ++number, std::string_view(text).substr(begin, stop - begin), whole);
    begin = stop + 1;
  }
  file.ended = !file.rows.empty() && file.rows.back().json["type"] == "end";
  return file;
}

}  // namespace skidproof::results
