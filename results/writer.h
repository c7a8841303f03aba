// Writing results so that they outlive a frozen machine and a full disk, and reading them back.
#ifndef SKIDPROOF_RESULTS_WRITER_H_
#define SKIDPROOF_RESULTS_WRITER_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/expected.h"
#include "results/row.h"

namespace skidproof::results {

// Appends rows to a file, one per line, each on the disk (fsync) when write() returns.
//
// There is never half a line in a file: what could only be written in part is cut off again. In a
// file system that can reserve room (fallocate), a few KiB beyond the last row stay reserved, so
// that the `end` row still fits when the disk is full and says why. After the first failure only an
// `end` row is tried: rows missing from the middle would mislead.
//
// Threads may share a writer.
class JsonLinesWriter {
 public:
  // Creates or empties the file; "-" is standard output. From then on the process ignores SIGPIPE
  // and SIGXFSZ: a reader that leaves and a file-size limit are errors here, not the end of the
  // process.
  static Expected<std::unique_ptr<JsonLinesWriter>> open(const std::string& path);
  // The same with a file that there is: rows go behind what it holds.
  static Expected<std::unique_ptr<JsonLinesWriter>> append_to(const std::string& path);
  ~JsonLinesWriter();
  JsonLinesWriter(const JsonLinesWriter&) = delete;
  JsonLinesWriter& operator=(const JsonLinesWriter&) = delete;

  // kInvalidArgument: check_row() refuses the row, nothing was written and writing may go on. kIo:
  // it could not be written; the message names the file, the advice says what to do.
  Expected<void> write(const Row& row);

  // Rows on the disk.
  size_t rows() const;
  // For the `reason` of an `end` row: "disk full", "output closed", "write failed"; empty when all
  // went well.
  std::string failure() const;
  const std::string& path() const { return path_; }

 private:
  static Expected<std::unique_ptr<JsonLinesWriter>> open(const std::string& path, int flags);
  JsonLinesWriter(std::string path, int fd, bool regular, bool owned);
  bool reserve(off_t size);
  bool append(const std::string& line, off_t start);
  Expected<void> explain(int error);

  const std::string path_;
  const int fd_;
  const bool regular_;  // a file that can be cut and reserved
  const bool owned_;    // closed by us
  mutable std::mutex mutex_;
  off_t reserved_ = 0;  // the file system has promised room up to here; -1: it makes no promises
  size_t rows_ = 0;
  bool torn_ = false;  // part of a line went into a pipe and cannot be taken back
  std::string failure_;
};

// A line that could not be read.
struct LineProblem {
  size_t line = 0;  // from 1
  std::string what;
};

struct ReadRow {
  size_t line = 0;
  Json json;  // an object with a `type`
};

struct RowsFile {
  std::string path;
  std::vector<ReadRow> rows;
  std::vector<LineProblem> problems;
  bool truncated =
      false;           // the last line breaks off: the writer's machine died in the middle of it
  bool ended = false;  // the last row is `end`; otherwise the run was cut short
};

// Reads a results file; "-" is standard input. Lines that are not rows are reported in `problems`,
// never skipped in silence. Errors (kIo, kPermission) only when the file itself cannot be read.
Expected<RowsFile> read_rows(const std::string& path);

}  // namespace skidproof::results

#endif  // SKIDPROOF_RESULTS_WRITER_H_
