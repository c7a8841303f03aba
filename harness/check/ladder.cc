// Which stage is the lowest that did not hold.
#include "harness/check/ladder.h"

#include <fmt/core.h>

namespace skidproof::check {

using results::Status;

void Ladder::note(Stage stage, const std::string& id, Status status) {
  if (status != Status::kFail && status != Status::kError) return;
  Rung& rung = broken_[static_cast<size_t>(stage)];
  if (rung.broken++ == 0) {
    rung.first = fmt::format("{} {}", id, status == Status::kFail ? "failed" : "was in error");
  }
}

std::optional<std::string> Ladder::broken_below(Stage stage) const {
  for (Stage lower : kStages) {
    if (lower >= stage) break;
    const Rung& rung = broken_[static_cast<size_t>(lower)];
    if (rung.broken == 0) continue;
    const std::string more = rung.broken == 1 ? "" : fmt::format(", and {} more", rung.broken - 1);
    return fmt::format("stage `{}` did not hold: {}{}; --all goes on", name_of(lower), rung.first,
                       more);
  }
  return std::nullopt;
}

}  // namespace skidproof::check
