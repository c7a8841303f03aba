// The tag array against a list kept by hand.
#include "pebs/model/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/random.h"

namespace skidproof::model {
namespace {

// True LRU, said plainly: per set a list, most recent first.
class Reference {
 public:
  Reference(uint32_t sets, uint32_t ways) : sets_(sets), ways_(ways) {}
  bool touch(uint32_t number) {
    auto& set = lists_[number % sets_];
    auto at = std::find(set.begin(), set.end(), number);
    bool hit = at != set.end();
    if (hit) set.erase(at);
    set.push_front(number);
    if (set.size() > ways_) set.pop_back();
    return hit;
  }
  bool erase(uint32_t number) { return std::erase(lists_[number % sets_], number) > 0; }
  uint32_t most_recent(uint32_t number) { return lists_[number % sets_].front(); }

 private:
  uint32_t sets_, ways_;
  std::map<uint32_t, std::deque<uint32_t>> lists_;
};

// One access in one of the ways that the array offers; says whether the number was there.
template <class Array>
bool access(Array& array, uint32_t number, uint32_t tag, uint64_t manner) {
  unsigned way = array.find(number);
  bool there = way != array.kAbsent;
  if (manner == 0 && tag == number) {
    EXPECT_EQ(array.touch(number), there);
  } else if (manner == 1 && array.usual()) {
    auto set = array.open(number);
    EXPECT_EQ(set.hit(), there);
    there ? array.close(set, tag) : array.close_absent(set, tag);
  } else if (manner == 2 && tag == number) {
    EXPECT_EQ(array.touch_front(number, true), way < 4);
    EXPECT_EQ(array.find(number), way);  // skipped
    EXPECT_EQ(array.touch_front(number, false), way < 4);
    EXPECT_EQ(array.find(number), way < 4 ? 0 : way);
    if (way >= 4) array.touch(number);
  } else {
    there ? array.promote(way, tag) : array.insert(tag);
  }
  return there;
}

template <unsigned kUsualWays, bool kMarks>
void expect_lru(uint32_t ways) {
  SCOPED_TRACE(ways);
  TagArray<kUsualWays, kMarks> array(16 * ways, ways);
  Reference reference(16, ways);
  ASSERT_EQ(array.sets(), 16u);
  Random random(ways);
  for (int n = 0; n < 20'000; ++n) {
    uint32_t number = static_cast<uint32_t>(random.below(16 * ways * 2));
    if (random.chance(1, 50)) {
      bool there = array.find(number) != array.kAbsent;
      array.erase(number);
      ASSERT_EQ(there, reference.erase(number));
      ASSERT_EQ(array.find(number), array.kAbsent);
      continue;
    }
    uint32_t tag = number | (kMarks && random.chance(1, 4) ? Tag::kMark : 0);
    bool there = access(array, number, tag, random.below(4));
    ASSERT_EQ(there, reference.touch(number)) << "access " << n;
    ASSERT_EQ(array.most_recent(number), tag);
    ASSERT_EQ(array.find(number), 0u);
  }
}

TEST(TagArray, KeepsTheMostRecentOfEachSet) {
  for (uint32_t ways = 1; ways <= 16; ++ways) {
    expect_lru<4, false>(ways);
    expect_lru<8, false>(ways);
    expect_lru<8, true>(ways);
    expect_lru<16, false>(ways);
  }
}

TEST(TagArray, RoundsSetsDownToAPowerOfTwo) {
  EXPECT_EQ(TagArray<8>(512, 8).sets(), 64u);
  EXPECT_EQ(TagArray<8>(768, 8).sets(), 64u);
  EXPECT_EQ(TagArray<8>(0, 8).sets(), 1u);
}

TEST(TagArray, HasAtLeastOneWayAndAtMostTheMaximum) {
  EXPECT_EQ(TagArray<8>(64, 0).sets(), 64u);
  EXPECT_EQ(TagArray<8>(64, 2 * TagArray<8>::kMaximumWays).sets(), 64 / TagArray<8>::kMaximumWays);
}

}  // namespace
}  // namespace skidproof::model
