#include "pebs/model/defects.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pebs/arch/microarch.h"

namespace skidproof::model {
namespace {

const arch::Microarch& sandy_bridge() { return **arch::find_microarch("sandy-bridge"); }
Expected<Behaviour> with(const std::vector<std::string>& ids) {
  return behaviour_with(sandy_bridge(), ids);
}

TEST(Defects, ShowAlwaysOrInAShareOfTheOverflows) {
  EXPECT_EQ(parse_defect("reset-never")->share, 1);
  EXPECT_EQ(parse_defect("reset-never@0.01")->share, 0.01);
  EXPECT_EQ(parse_defect("reset-never@1")->defect->id, "reset-never");
  for (const char* wrong : {"reset-never@", "reset-never@0", "reset-never@-1", "reset-never@1.5",
                            "reset-never@nan", "reset-never@0.1x", "no-such-defect@0.1"}) {
    EXPECT_FALSE(parse_defect(wrong)) << wrong;
  }
}

TEST(Defects, WhatShowsRarelyConformsOtherwise) {
  const Behaviour always = with({"reset-never"}).value();
  EXPECT_EQ(always.reload, Reload::kNone);
  EXPECT_EQ(always.otherwise, nullptr);

  const Behaviour rarely = with({"reset-never@0.25"}).value();
  EXPECT_EQ(rarely.reload, Reload::kNone);
  EXPECT_EQ(rarely.share, 0.25);
  ASSERT_NE(rarely.otherwise, nullptr);
  EXPECT_EQ(rarely.otherwise->reload, behaviour_of(sandy_bridge()).reload);
}

TEST(Defects, OneAtATimeShowsRarely) {
  // One that always shows does so in every overflow.
  const Behaviour both = with({"reset-never@0.25", "pmi-twice"}).value();
  EXPECT_TRUE(both.interrupt_repeats);
  EXPECT_TRUE(both.otherwise->interrupt_repeats);
  EXPECT_FALSE(with({"reset-never@0.25", "pmi-twice@0.25"}));
}

}  // namespace
}  // namespace skidproof::model
