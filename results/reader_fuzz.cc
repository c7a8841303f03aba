// Result files from anywhere: whatever the bytes, lines become rows or problems with a line number, and a
// row that is understood means the same after it was written again.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "results/row.h"
#include "results/writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skidproof::results;
  int fd = memfd_create("rows", 0);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  auto file = read_rows("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  if (!file) return 0;
  for (const auto& read : file->rows) {
    auto row = row_of(read.json);
    if (!row) continue;
    auto again = row_of(json_of(*row));
    if (!again || json_of(*again) != json_of(*row)) std::abort();
  }
  return 0;
}
