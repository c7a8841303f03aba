// NetBurst's tables against the manual's, written out again.
#include "pebs/arch/netburst.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "pebs/arch/generations.h"
#include "pebs/arch/reserved.h"

namespace skidproof::arch::netburst {
namespace {

TEST(NetBurst, HasFortyFiveEscrs) {
  unsigned count = 0;
  for (uint32_t msr = 0x300; msr < 0x400; ++msr) count += is_escr(msr);
  EXPECT_EQ(count, kEscrs);
  for (uint32_t msr : {0x3BFu, 0x3C6u, 0x3C7u, 0x3CEu, 0x3DFu, 0x3E2u}) EXPECT_FALSE(is_escr(msr));
}

// 18.15 "Performance Counter MSRs and Associated CCCR and ESCR MSRs".
TEST(NetBurst, EscrOfACccrSelect) {
  EXPECT_EQ(escr_of(0, 6), MSR_FSB_ESCR0);
  EXPECT_EQ(escr_of(1, 6), MSR_FSB_ESCR0);
  EXPECT_EQ(escr_of(2, 6), MSR_FSB_ESCR0 + 1);
  EXPECT_EQ(escr_of(8, 2), MSR_SAAT_ESCR0);
  EXPECT_EQ(escr_of(10, 2), MSR_SAAT_ESCR0 + 1);
  for (unsigned counter : {12u, 13u, 16u}) {
    EXPECT_EQ(escr_of(counter, 4), MSR_CRU_ESCR0);
    EXPECT_EQ(escr_of(counter, 5), MSR_CRU_ESCR2);
    EXPECT_EQ(escr_of(counter, 6), MSR_CRU_ESCR4);
    EXPECT_EQ(escr_of(counter, 2), MSR_RAT_ESCR0);
  }
  for (unsigned counter : {14u, 15u, 17u}) {
    EXPECT_EQ(escr_of(counter, 5), MSR_CRU_ESCR3);
    EXPECT_EQ(escr_of(counter, 3), 0u) << "there is no SSU_ESCR1";
  }
  EXPECT_EQ(escr_of(4, 5), 0u) << "reserved";
}

TEST(NetBurst, EverySelectNamesAnEscrThatExists) {
  for (unsigned counter = 0; counter < kCounters; ++counter) {
    for (unsigned select = 0; select < 8; ++select) {
      const uint32_t msr = escr_of(counter, select);
      EXPECT_TRUE(msr == 0 || is_escr(msr)) << counter << " " << select;
    }
  }
}

TEST(NetBurst, NumbersEachCounterOnceForSessions) {
  const std::set<unsigned> all(kSessionCounters.begin(), kSessionCounters.end());
  EXPECT_EQ(all.size(), kCounters);
  EXPECT_EQ(*all.rbegin(), kCounters - 1);
  EXPECT_EQ(kSessionCounters[0], kPreciseCounters[0]);
}

// Table 19-33.
TEST(NetBurst, ReplayTags) {
  struct Row {
    const char* name;
    uint32_t enable, matrix;
  };
  for (const Row& row :
       {Row{"1st_level_load_miss_retired", 1u << 0, 1},
        Row{"2nd_level_load_miss_retired", 1u << 1, 1}, Row{"DTLB_load_miss_retired", 1u << 2, 1},
        Row{"DTLB_store_miss_retired", 1u << 2, 2}, Row{"DTLB_all_miss_retired", 1u << 2, 3},
        Row{"tagged_mispred_branch", 1u << 15 | 1u << 16, 1u << 4},
        Row{"MOB_load_replay_retired", 1u << 9, 1}, Row{"split_load_retired", 1u << 10, 1},
        Row{"split_store_retired", 1u << 10, 2}}) {
    const Event* event = kNetBurst.event(row.name);
    ASSERT_NE(event, nullptr) << row.name;
    EXPECT_EQ(event->metric->enable, row.enable) << row.name;
    EXPECT_EQ(event->metric->matrix, row.matrix) << row.name;
    EXPECT_EQ(event->metric->enable & ~pebs_enable::kDefined, 0u) << row.name;
    EXPECT_EQ(event->pebs_counters, 1) << row.name;
  }
}

TEST(NetBurst, LayoutsByMode) {
  EXPECT_FALSE(kNetBurst.architectural_perfmon());
  EXPECT_EQ(kNetBurst.record_in(Mode::kProtected32).bytes, 0x28);
  EXPECT_EQ(kNetBurst.record_in(Mode::kLong).bytes, 0x90);
  EXPECT_EQ(kNetBurst.ds_in(Mode::kProtected32).field_bytes, 4u);
  EXPECT_EQ(kNetBurst.ds_in(Mode::kProtected32).pebs_index, 0x14u);
  EXPECT_EQ(kNetBurst.ds_in(Mode::kLong).pebs_index, 0x28u);
  EXPECT_EQ(kNetBurst.branch_record_in(Mode::kProtected32).bytes, 12u);
  EXPECT_EQ(kNetBurst.branch_record_in(Mode::kReal).bytes, 12u);
  EXPECT_EQ(kNetBurst.branch_record_in(Mode::kLong).bytes, 24u);
  EXPECT_EQ(&kSandyBridge.record_in(Mode::kProtected32), kSandyBridge.record) << "DTES64";
  EXPECT_EQ(kSandyBridge.branch_record_in(Mode::kProtected32).bytes, 24u) << "DTES64";
}

// [SDM Figure 17-12]
TEST(NetBurst, BitsOfMsrDebugctla) {
  const BranchTrace& bits = kNetBurst.branch_trace;
  EXPECT_EQ(bits.messages, 1u << 2);
  EXPECT_EQ(bits.store, 1u << 3);
  EXPECT_EQ(bits.interrupt, 1u << 4);
  EXPECT_EQ(bits.off_os, 1u << 5);
  EXPECT_EQ(bits.off_usr, 1u << 6);
  EXPECT_EQ(writable_debugctl(kNetBurst), 0x7Fu);
}

}  // namespace
}  // namespace skidproof::arch::netburst
