// Reads event lists as the program does: `read_lists FILE…`, and of a file named mapfile.csv the paths of cores' lists. For
// each, "= FILE" and its lines as the importer writes them, or "! " and the error.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "pebs/arch/perfmon/reader.h"

namespace {

using namespace skidproof::arch::perfmon;

void print(const std::string& line) { std::printf("%s\n", line.c_str()); }

void print_error(const skidproof::Error& error) {
  std::string line = "! " + error.message;
  std::replace(line.begin(), line.end(), '\n', ' ');
  print(line);
}

void show(const std::string& file) {
  print("= " + file);
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (file.ends_with("mapfile.csv")) {
    const auto paths = mapped_lists(file, text);
    if (!paths) return print_error(paths.error());
    for (const std::string& path : *paths) print(path);
    return;
  }
  const auto list = ReadList::read(file, "X/events/x.json", text);
  if (!list) return print_error(list.error());
  print(list->source());
  for (const Published& event : list->events()) print(line_of(event));
}

}  // namespace

int main(int argc, char** argv) {
  std::for_each(argv + 1, argv + argc, show);
  return 0;
}
