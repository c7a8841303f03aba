// The one outcome under way, and the one request to stop.
#include "harness/check/outcome.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace skidproof::check {
namespace {

struct StopRequest {
  std::mutex mutex;
  std::atomic<bool> asked = false;
  SkipTest why{};
};

StopRequest& stop_request() {
  static StopRequest request;
  return request;
}

}  // namespace

std::string in_lines(const std::vector<std::string>& messages) {
  std::string text;
  for (const std::string& message : messages) text += (text.empty() ? "" : "\n") + message;
  return text;
}

Outcome& outcome() {
  static Outcome current;
  return current;
}

void request_stop(results::SkipCategory category, std::string reason) {
  StopRequest& request = stop_request();
  std::lock_guard lock(request.mutex);
  if (request.asked.load()) return;
  request.why = {category, std::move(reason)};
  request.asked.store(true);
}

bool stop_requested() { return stop_request().asked.load(); }

SkipTest stop_reason() {
  StopRequest& request = stop_request();
  std::lock_guard lock(request.mutex);
  return request.why;
}

}  // namespace skidproof::check
