// Colour, columns and the progress bar.
#include "harness/cli/text.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace skidproof::cli {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool colour_refused() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') ||
         (terminal != nullptr && std::string_view(terminal) == "dumb");
}

std::string cut_short(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  text.resize(limit - 3);
  return text + "...";
}

}  // namespace

Text::Text(std::FILE* stream)
    : stream_(stream),
      terminal_(::isatty(::fileno(stream)) == 1),
      colour_(terminal_ && !colour_refused()) {}

std::string Text::paint(Paint paint, std::string_view text) const {
  if (!colour_) return std::string(text);
  static constexpr const char* kCodes[] = {"31", "32", "33", "36", "1", "2"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(paint)], text);
}

void Text::line(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fputc('\n', stream_);
  if (terminal_) std::fflush(stream_);
}

size_t width_of(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      ++width;
    }
  }
  return width;
}

std::string pad_right(std::string_view text, size_t width) {
  const size_t have = width_of(text);
  return std::string(text) + std::string(have < width ? width - have : 0, ' ');
}

std::string pad_left(std::string_view text, size_t width) {
  const size_t have = width_of(text);
  return std::string(have < width ? width - have : 0, ' ') + std::string(text);
}

namespace {

// One paragraph; its own leading spaces are kept, and its further lines stand under its first word.
std::string wrap_paragraph(std::string_view text, size_t indent, size_t width) {
  const size_t first = std::min(text.find_first_not_of(' '), text.size());
  std::string out(first, ' ');
  text.remove_prefix(first);
  const std::string margin(indent + first, ' ');
  size_t column = margin.size();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const size_t wide = width_of(word);
    if (column > margin.size() && column + 1 + wide > width) {
      out += '\n' + margin;
      column = margin.size();
    } else if (column > margin.size()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += wide;
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::string wrap(std::string_view text, size_t indent, size_t width) {
  std::string out;
  while (true) {
    const size_t end = text.find('\n');
    out += wrap_paragraph(text.substr(0, end), indent, width);
    if (end == std::string_view::npos) return out;
    out += '\n' + std::string(indent, ' ');
    text.remove_prefix(end + 1);
  }
}

std::string indented(std::string_view message, size_t first, size_t rest) {
  std::string out(first, ' ');
  for (const char c : message.substr(0, message.find_last_not_of('\n') + 1)) {
    out += c;
    if (c == '\n') out.append(rest, ' ');
  }
  return out;
}

void Table::print(const Text& text, size_t indent) const {
  std::vector<size_t> widths;
  for (const auto& cells : rows_) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width_of(cells[i]));
  }
  for (const auto& cells : rows_) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < cells.size(); ++i) {
      const bool right = i < right_.size() && right_[i];
      if (right) {
        line += pad_left(cells[i], widths[i]);
      } else {
        line += i + 1 == cells.size() ? cells[i] : pad_right(cells[i], widths[i]);
      }
      if (i + 1 < cells.size()) line += "  ";
    }
    text.line(line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

std::string duration_text(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  return seconds < 100 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string count_of(uint64_t n, std::string_view singular, std::string_view plural) {
  if (n == 1) return fmt::format("1 {}", singular);
  return plural.empty() ? fmt::format("{} {}s", n, singular) : fmt::format("{} {}", n, plural);
}

std::string evidence_text(const results::Json& item) {
  if (item.is_string()) return item.get<std::string>();
  const bool shape = item.is_object() && item.contains("kind");
  if (shape && item["kind"] == "histogram" && item.contains("bins")) {
    std::string text;
    for (const auto& bin : item["bins"]) {
      text += fmt::format("{}{} × {}", text.empty() ? "" : ", ", bin[0].dump(), bin[1].dump());
      if (text.size() > 160) return text + ", ...";
    }
    return fmt::format("{} {}", text.empty() ? "(empty)" : text, item.value("unit", ""));
  }
  if (shape && item["kind"] == "series" && item.contains("y")) {
    return fmt::format("{} in {}", count_of(item["y"].size(), "point"), item.value("unit", ""));
  }
  return cut_short(item.dump(-1, ' ', false, results::Json::error_handler_t::replace), 200);
}

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text += separator;
    text += item;
  }
  return text;
}

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1), began_(now()) {}

void Progress::update(size_t done, size_t total, std::string_view label) {
  const double time = now();
  if (!terminal_ || time - began_ < 1 || time - drawn_ < 0.1) return;
  drawn_ = time;
  shown_ = true;
  constexpr size_t kWide = 24;
  const size_t filled = total == 0 ? 0 : std::min(done, total) * kWide / total;
  fmt::print(stderr, "\r\x1b[K{} [{}{}] {}/{} {}", what_, std::string(filled, '#'),
             std::string(kWide - filled, '.'), done, total, label.substr(0, 60));
  std::fflush(stderr);
}

void Progress::clear() {
  if (!shown_) return;
  shown_ = false;
  drawn_ = 0;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace skidproof::cli
