// A table of decisions: what shows each of them, and what does not.
#ifndef SKIDPROOF_PEBS_MODEL_TESTING_DECISIONS_H_
#define SKIDPROOF_PEBS_MODEL_TESTING_DECISIONS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>

namespace skidproof::model {

// `Part` is Behaviour or one of its members. `shows` drives a model and says what became of it.
template <class Part>
struct Decision {
  const char* name;
  void (*change)(Part&);
  std::function<uint64_t()> shows;
  uint64_t conforming, deviating;
};

// `make(change)` makes the model that `shows` drives, with that change of a conforming behaviour.
template <class Part, class Make>
void expect_each_shows(std::span<const Decision<Part>> decisions, Make make) {
  for (const Decision<Part>& d : decisions) {
    SCOPED_TRACE(d.name);
    make([](Part&) {});
    EXPECT_EQ(d.shows(), d.conforming);
    make(d.change);
    EXPECT_EQ(d.shows(), d.deviating);
  }
}

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_TESTING_DECISIONS_H_
