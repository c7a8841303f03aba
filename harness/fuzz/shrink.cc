// Greedy: every change that keeps the violation stays. Each change makes the case smaller in one respect
// and larger in none, so the passes come to an end.
#include "harness/fuzz/shrink.h"

#include <algorithm>
#include <vector>

namespace skidproof::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kSeedsTried = 8;

class Shrinker {
 public:
  Shrinker(const Case& c, const Violation& violation, const Judge& judge, Clock::time_point end)
      : judge_(judge), end_(end), check_(violation.check) {
    best_.smallest = c;
    best_.violation = violation;
  }

  Shrunk run() {
    find_out_chance();
    // What comes behind the violation cannot have caused it.
    Case until = best_.smallest;
    until.steps.resize(std::min(until.steps.size(), best_.violation.step + 1));
    attempt(until);
    bool smaller = true;
    while (smaller && !late()) {
      smaller = false;
      smaller |= drop_steps();
      smaller |= drop_items();
      smaller |= simplify_runs();
      smaller |= simplify_items();
      smaller |= simplify_writes();
      smaller |= simplify_ds();
    }
    return std::move(best_);
  }

 private:
  bool late() const { return Clock::now() > end_; }

  bool violates(const Case& c) {
    if (late()) return false;
    ++best_.evaluations;
    std::optional<Violation> found = judge_(c);
    if (!found || found->check != check_) return false;
    best_.smallest = c;
    best_.violation = std::move(*found);
    return true;
  }
  bool attempt(const Case& c) {
    if (c == best_.smallest) return false;
    if (violates(c)) return true;
    if (!by_chance_) return false;
    Case other = c;
    for (unsigned seed = 1; seed <= kSeedsTried; ++seed) {
      other.machine_seed = seed;
      if (violates(other)) return true;
    }
    return false;
  }
  // The best case with one change.
  template <typename Change>
  bool with(Change change) {
    Case c = best_.smallest;
    change(c);
    return attempt(c);
  }

  void find_out_chance() {
    for (unsigned seed = 1; seed <= 3; ++seed) {
      Case c = best_.smallest;
      c.machine_seed = seed;
      std::optional<Violation> found = judge_(c);
      ++best_.evaluations;
      by_chance_ |= !found || found->check != check_;
    }
  }

  // Takes away runs of elements, long ones first.
  template <typename Select>
  bool drop(Select select) {
    bool smaller = false;
    for (size_t length = std::max<size_t>(select(best_.smallest).size() / 2, 1); length > 0;
         length /= 2) {
      for (size_t at = select(best_.smallest).size(); at > 0 && !late();) {
        at -= std::min(at, length);
        smaller |= with([&](Case& c) {
          auto& list = select(c);
          auto first = list.begin() + static_cast<ptrdiff_t>(std::min(at, list.size()));
          auto last = list.begin() + static_cast<ptrdiff_t>(std::min(at + length, list.size()));
          list.erase(first, last);
        });
      }
    }
    return smaller;
  }
  bool drop_steps() {
    return drop([](Case& c) -> std::vector<Step>& { return c.steps; });
  }
  bool drop_items() {
    return drop([](Case& c) -> std::vector<CodeItem>& { return c.code.items; });
  }

  // A number towards zero: by halves, then by one.
  template <typename Select>
  bool lower(Select select, uint64_t least = 0) {
    bool smaller = false;
    while (!late() && static_cast<uint64_t>(select(best_.smallest)) > least) {
      const auto now = static_cast<uint64_t>(select(best_.smallest));
      bool done = false;
      for (uint64_t next : {least, least + (now - least) / 2, now - (now - least) / 4, now - 1}) {
        if (next >= now) continue;
        done = with([&](Case& c) {
          auto& number = select(c);
          number = static_cast<std::remove_reference_t<decltype(number)>>(next);
        });
        if (done) break;
      }
      if (!done) break;
      smaller = true;
    }
    return smaller;
  }

  bool simplify_runs() {
    bool smaller = false;
    if (best_.smallest.code.loop) {
      smaller |= with([](Case& c) {
        c.code.loop = false;
        for (Step& step : c.steps) step.iterations = 1;
      });
    }
    for (size_t i = 0; i < best_.smallest.steps.size(); ++i) {
      if (best_.smallest.steps[i].kind != Step::Kind::kRun) continue;
      smaller |= lower([i](Case& c) -> uint32_t& { return c.steps[i].iterations; }, 1);
      for (bool Step::*flag : {&Step::user, &Step::unmask, &Step::clear_status}) {
        if (best_.smallest.steps[i].*flag) {
          smaller |= with([&](Case& c) { c.steps[i].*flag = false; });
        }
      }
    }
    return smaller;
  }

  bool simplify_items() {
    bool smaller = false;
    for (size_t i = 0; i < best_.smallest.code.items.size(); ++i) {
      const CodeItem item = best_.smallest.code.items[i];
      if (item.op != Op::kNop) {
        smaller |= with([&](Case& c) { c.code.items[i] = {.op = Op::kNop}; });
      }
      smaller |= lower([i](Case& c) -> uint32_t& { return c.code.items[i].value; },
                       item.op == Op::kDelay ? 1 : 0);
      smaller |= lower([i](Case& c) -> uint8_t& { return c.code.items[i].condition; });
    }
    // Every register named costs an instruction: one for all, or one fewer.
    for (uint8_t from = kSequenceRegisters; from-- > 1;) {
      for (uint8_t to = 0; to < from; ++to) {
        smaller |= with([&](Case& c) {
          for (CodeItem& item : c.code.items) {
            if (item.a == from) item.a = to;
            if (item.b == from) item.b = to;
          }
        });
      }
    }
    return smaller;
  }

  // Bits that need not be set.
  bool simplify_writes() {
    bool smaller = false;
    for (size_t i = 0; i < best_.smallest.steps.size(); ++i) {
      for (unsigned b = 64; b-- > 0 && !late();) {
        const uint64_t bit = uint64_t{1} << b;
        if ((best_.smallest.steps[i].value & bit) == 0) continue;
        smaller |= with([&](Case& c) { c.steps[i].value &= ~bit; });
      }
    }
    return smaller;
  }

  bool simplify_ds() {
    bool smaller = false;
    const DebugStorePlan& ds = best_.smallest.ds;
    if (ds.index != 0) smaller |= with([](Case& c) { c.ds.index = 0; });
    smaller |= lower([](Case& c) -> int64_t& { return c.ds.maximum; });
    // A threshold that nothing reaches is the simplest.
    const int64_t never = kMaximumBufferBytes;
    if (ds.threshold != never) smaller |= with([&](Case& c) { c.ds.threshold = never; });
    for (size_t i = 0; i < ds.resets.size(); ++i) {
      if (ds.resets[i] != 0) smaller |= with([&](Case& c) { c.ds.resets[i] = 0; });
    }
    while (!best_.smallest.ds.resets.empty() && best_.smallest.ds.resets.back() == 0) {
      if (!with([](Case& c) { c.ds.resets.pop_back(); })) break;
      smaller = true;
    }
    for (uint64_t Case::*seed : {&Case::machine_seed, &Case::data_seed}) {
      if (best_.smallest.*seed != 1 && !by_chance_) smaller |= with([&](Case& c) { c.*seed = 1; });
    }
    return smaller;
  }

  const Judge& judge_;
  const Clock::time_point end_;
  const Check check_;
  bool by_chance_ = false;
  Shrunk best_;
};

}  // namespace

Shrunk shrink(const Case& c, const Violation& violation, const Judge& judge,
              std::chrono::milliseconds allowed) {
  return Shrinker(c, violation, judge, Clock::now() + allowed).run();
}

}  // namespace skidproof::fuzz
