// Parameter text from the command line: whatever the bytes, an error or values within their ranges.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kernels/kernel.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using skidproof::Parameter;
  using skidproof::Params;
  static const Parameter kDeclared[] = {
      {.name = "bytes", .brief = "", .fallback = 64, .low = 8, .high = 4096},
      {.name = "order", .brief = "", .words = {"random", "stride"}},
      {.name = "n", .brief = "", .fallback = 1}};
  auto params = Params::parse(kDeclared, {reinterpret_cast<const char*>(data), size});
  if (!params) return 0;
  uint64_t bytes = (*params)["bytes"];
  if (bytes < 8 || bytes > 4096 || (*params)["order"] > 1) std::abort();
  // What it prints must mean the same again.
  auto again = Params::parse(kDeclared, params->text());
  if (!again || again->text() != params->text()) std::abort();
  return 0;
}
