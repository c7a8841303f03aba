// Writes the sample rows to the file named on the command line, for tests in other languages.
#include <fmt/core.h>

#include "results/samples/samples.h"
#include "results/writer.h"

int main(int argc, char** argv) {
  using namespace skidproof::results;
  if (argc != 2) {
    fmt::print(stderr, "usage: {} FILE\n", argv[0]);
    return 64;
  }
  auto writer = JsonLinesWriter::open(argv[1]);
  if (!writer) {
    fmt::print(stderr, "{}\n", writer.error().text());
    return 2;
  }
  for (const Row& row : sample_rows()) {
    if (auto written = (*writer)->write(row); !written) {
      fmt::print(stderr, "{}\n", written.error().text());
      return 2;
    }
  }
  return 0;
}
