#include "harness/cli/kernel_files.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

namespace skidproof::cli {

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> words_in(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string chosen(const std::string& list) {
  const size_t open = list.find('[');
  const size_t close = list.find(']');
  if (open == std::string::npos || close == std::string::npos) return list;
  return list.substr(open + 1, close - open - 1);
}

bool Tree::has(std::string_view absolute) const {
  std::error_code error;
  return std::filesystem::exists(path(absolute), error);
}

}  // namespace skidproof::cli
