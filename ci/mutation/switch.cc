// Reads which mutant runs, before any other code of the program; writes down what was reached at its end.
#include "switch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

unsigned skidproof_active_mutant;

namespace {

unsigned char reached[1u << 20];

void write_trace() {
  std::FILE* file = std::fopen(std::getenv("SKIDPROOF_MUTANT_TRACE"), "w");
  if (file == nullptr) std::abort();
  for (unsigned n = 0; n < sizeof reached; ++n) {
    if (reached[n] != 0) std::fprintf(file, "%u\n", n);
  }
  std::fclose(file);
}

[[gnu::constructor(101)]] void read_switch() {
  if (std::getenv("SKIDPROOF_MUTANT_TRACE") != nullptr) {
    skidproof_active_mutant = skidproof::mutants::kTrace;
    std::atexit(write_trace);
  } else if (const char* number = std::getenv("SKIDPROOF_MUTANT"); number != nullptr) {
    skidproof_active_mutant = static_cast<unsigned>(std::strtoul(number, nullptr, 10));
  }
}

}  // namespace

void skidproof_note_mutant(unsigned first) {
  if (first < sizeof reached) reached[first] = 1;
}
