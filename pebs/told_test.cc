// Leaves of processors that are known.
#include "pebs/told.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace skidproof {
namespace {

class Leaves : public Machine {
 public:
  using Regs = CpuidResult;
  explicit Leaves(std::map<std::pair<uint32_t, uint32_t>, Regs> leaves)
      : leaves_(std::move(leaves)) {}
  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t leaf, uint32_t sub) const override {
    const auto found = leaves_.find({leaf, sub});
    return found == leaves_.end() ? Regs{} : found->second;
  }
  Expected<uint64_t> rdmsr(uint32_t) override { return none(); }
  Expected<void> wrmsr(uint32_t, uint64_t) override { return none(); }
  Expected<Memory> allocate(const MemoryRequest&) override { return none(); }
  Expected<RunLog> run(const Program&, const RunPlan&) override { return none(); }

 private:
  static tl::unexpected<Error> none() { return fail(ErrorCode::kNotAvailable, "leaves alone"); }
  Identity identity_;
  std::map<std::pair<uint32_t, uint32_t>, Regs> leaves_;
};

// Type, level, and as many ways, bytes of a line and sets.
Leaves::Regs cache(uint32_t type, uint32_t level, uint32_t ways, uint32_t line, uint32_t sets) {
  return {.eax = type | level << 5, .ebx = (ways - 1) << 22 | (line - 1), .ecx = sets - 1};
}

TEST(Told, DataAndUnifiedCachesOfLeaf4) {
  const Leaves machine({{{0, 0}, {.eax = 0x20}},
                        {{4, 0}, cache(2, 1, 8, 64, 64)},  // instructions: not asked for
                        {{4, 1}, cache(1, 1, 12, 64, 64)},
                        {{4, 2}, cache(3, 2, 16, 64, 2048)}});
  const auto l1 = told_cache(machine, 1), l2 = told_cache(machine, 2);
  ASSERT_TRUE(l1 && l2);
  EXPECT_EQ(l1->bytes, 48u << 10);
  EXPECT_EQ(l1->ways, 12u);
  EXPECT_EQ(l1->line, 64u);
  EXPECT_EQ(l1->leaf, "CPUID.04H");
  EXPECT_EQ(l2->bytes, 2u << 20);
  EXPECT_FALSE(told_cache(machine, 3));
}

TEST(Told, AmdsLeafOfTheSameForm) {
  const Leaves machine({{{0, 0}, {.eax = 0x10}},
                        {{0x80000000, 0}, {.eax = 0x80000020}},
                        {{0x8000001D, 0}, cache(1, 1, 8, 64, 64)}});
  const auto l1 = told_cache(machine, 1);
  ASSERT_TRUE(l1);
  EXPECT_EQ(l1->bytes, 32u << 10);
  EXPECT_EQ(l1->leaf, "CPUID.8000001DH");
}

TEST(Told, TlbsOfLeaf18H) {
  // Ways in EBX[31:16], sets in ECX; EDX: type, level. 4 KiB pages: EBX[0].
  const Leaves machine(
      {{{0, 0}, {.eax = 0x20}},
       {{0x18, 0}, {.eax = 3}},
       {{0x18, 1}, {.ebx = 6 << 16 | 1, .ecx = 16, .edx = 4 | 1 << 5}},  // loads
       {{0x18, 2}, {.ebx = 4 << 16 | 2, .ecx = 8, .edx = 4 | 1 << 5}},   // 2 MiB alone
       {{0x18, 3}, {.ebx = 16 << 16 | 3, .ecx = 128, .edx = 3 | 2 << 5}}});
  const auto first = told_tlb(machine, 1), second = told_tlb(machine, 2);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->entries, 96u);
  EXPECT_EQ(second->entries, 2048u);
}

TEST(Told, TlbsOfAmdsLeaves) {
  const Leaves machine({{{0, 0}, {.eax = 0x10}},
                        {{0x80000000, 0}, {.eax = 0x80000020}},
                        {{0x80000005, 0}, {.ebx = 0xFF48FF40}},
                        {{0x80000006, 0}, {.ebx = 0x8C004400}}});
  const auto first = told_tlb(machine, 1), second = told_tlb(machine, 2);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->entries, 0x48u);
  EXPECT_EQ(second->entries, 0xC00u);
}

TEST(Told, NothingWhereNoLeafSaysIt) {
  const Leaves machine({{{0, 0}, {.eax = 2}}});
  EXPECT_FALSE(told_cache(machine, 1));
  EXPECT_FALSE(told_tlb(machine, 1));
}

}  // namespace
}  // namespace skidproof
