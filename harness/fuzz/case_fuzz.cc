// Files of fuzz cases from anywhere: whatever the bytes, an error or a case that means the same after it was
// written again, and that assembles.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "harness/fuzz/case.h"
#include "harness/fuzz/execute.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skidproof::fuzz;
  auto parsed = parse_case({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  auto again = case_of(json_of(*parsed));
  if (!again || *again != *parsed) std::abort();
  if (!Executor::program_of(*parsed)) std::abort();
  return 0;
}
