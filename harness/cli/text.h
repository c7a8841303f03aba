// Text for people: colour where a terminal takes it, aligned tables, wrapped paragraphs.
#ifndef SKIDPROOF_HARNESS_CLI_TEXT_H_
#define SKIDPROOF_HARNESS_CLI_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "results/row.h"

namespace skidproof::cli {

enum class Paint : uint8_t { kRed, kGreen, kYellow, kCyan, kBold, kDim };

// Writes to a stream; paints only when it is a terminal and NO_COLOR is not set (https://no-color.org).
class Text {
 public:
  explicit Text(std::FILE* stream);

  std::string paint(Paint paint, std::string_view text) const;
  // The line and its end.
  void line(std::string_view text = {}) const;
  bool terminal() const { return terminal_; }
  std::FILE* stream() const { return stream_; }

 private:
  std::FILE* stream_;
  bool terminal_;
  bool colour_;
};

// Characters on a terminal: UTF-8 code points, colour sequences not counted.
size_t width_of(std::string_view text);
// Padded with spaces on the right, or on the left, to a width.
std::string pad_right(std::string_view text, size_t width);
std::string pad_left(std::string_view text, size_t width);
// Broken between words so that no line is wider, each after the first beginning with `indent` spaces.
std::string wrap(std::string_view text, size_t indent, size_t width = 100);

// A message of several lines, such as GoogleTest's: its first behind `first` spaces, the others behind
// `rest`.
std::string indented(std::string_view message, size_t first, size_t rest);

// Rows of cells, each column as wide as its widest cell; the last is not padded.
class Table {
 public:
  explicit Table(std::vector<bool> right_aligned = {}) : right_(std::move(right_aligned)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void print(const Text& text, size_t indent = 0) const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "1.25 s", "12 ms".
std::string duration_text(double seconds);
// "1 test", "2 tests".
std::string count_of(uint64_t n, std::string_view singular, std::string_view plural = {});
// One item of a row's evidence on one line.
std::string evidence_text(const results::Json& item);
// "a, b, c" of any strings.
std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ");

// A bar on stderr for what takes more than a second; silent when stderr is no terminal.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(size_t done, size_t total, std::string_view label);
  void clear();  // takes the bar away so that lines can be printed

 private:
  const std::string what_;
  const bool terminal_;
  double began_;
  double drawn_ = 0;
  bool shown_ = false;
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_TEXT_H_
