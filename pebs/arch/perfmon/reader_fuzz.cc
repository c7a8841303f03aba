// Any bytes for an event list of Intel's, or for the map of them: read or refused, never a crash; what is read has the form
// of an imported list, in its order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "pebs/arch/perfmon/reader.h"

namespace {

using namespace skidproof::arch::perfmon;

void read(std::string_view json) {
  const auto list = ReadList::read("fuzzed.json", "SNB/events/fuzzed.json", json);
  if (!list) return;
  if (list->events().empty()) std::abort();
  for (const Published& event : list->events()) {
    if (event.name.empty() || event.counters == 0) std::abort();
    const auto outside = [](char c) { return c < ' ' || c > '~'; };
    const std::string line = line_of(event);
    if (std::any_of(line.begin(), line.end(), outside)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto paths = mapped_lists("fuzzed.csv", text); paths) {
    for (const std::string& path : *paths) {
      if (path.find(',') != std::string::npos || path.starts_with('/')) std::abort();
    }
  }
  read(text);
  // The same as the fields of an event, which chance alone would hardly reach: each line a field and its value.
  std::string event = R"("EventName": "A.B", "PEBS": "1")";
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const size_t colon = std::min(line.find(':'), line.size());
    event += ", \"" + line.substr(0, colon) + "\": \"" +
             line.substr(std::min(colon + 1, line.size())) + "\"";
    begin = end + 1;
  }
  read(R"({"Header": {"Version": "1"}, "Events": [{)" + event + "}]}");
  // … and as a counter mask, with the rest as it should be.
  read(
      R"({"Header": {"Version": "1"}, "Events": [{"EventName": "A.B", "PEBS": "1", "EventCode": "1", "UMask": "1",)"
      R"("CounterMask": "0", "Counter": ")" +
      text + R"("}]})");
  return 0;
}
