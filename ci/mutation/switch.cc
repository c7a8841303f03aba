// Reads which mutant runs, before any other code of the program. While tracing, what is reached goes into a file that
// forked processes share, however they end.
#include "switch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

unsigned skidproof_active_mutant;
unsigned char* skidproof_reached_mutants;

namespace {

constexpr unsigned kTraced = 1u << 16;

void trace_into(const char* path) {
  const int file = ::open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0 || ::ftruncate(file, kTraced) != 0) std::abort();
  void* bytes = ::mmap(nullptr, kTraced, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (bytes == MAP_FAILED) std::abort();
  ::close(file);
  skidproof_reached_mutants = static_cast<unsigned char*>(bytes);
  skidproof_active_mutant = skidproof::mutants::kTrace;
}

[[gnu::constructor(101)]] void read_switch() {
  if (const char* path = std::getenv("SKIDPROOF_MUTANT_TRACE"); path != nullptr) {
    trace_into(path);
  } else if (const char* number = std::getenv("SKIDPROOF_MUTANT"); number != nullptr) {
    skidproof_active_mutant = static_cast<unsigned>(std::strtoul(number, nullptr, 10));
  }
}

}  // namespace
