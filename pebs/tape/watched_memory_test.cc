#include "pebs/tape/watched_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "pebs/arch/msr.h"

namespace skidproof::tape {
namespace {

// A block of memory and the handle that the watch gave for it.
struct Watched {
  Memory memory;
  Watched(WatchedMemory& watch, size_t bytes, MemoryUse use = MemoryUse::kData) {
    auto room = std::make_shared<std::vector<std::byte>>(bytes);
    memory = watch.add({.host = *room, .address = 0x1000, .keep = room}, use);
  }
};

TEST(WatchedMemory, SeesEachChangeOnce) {
  WatchedMemory watch;
  Watched block(watch, 10000);
  EXPECT_TRUE(watch.look(Look::kEverywhere).empty());
  block.memory.host[0] = std::byte{1};
  block.memory.host[9999] = std::byte{2};
  const std::vector<Change> changes = watch.look(Look::kEverywhere);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].offset, 0u);
  EXPECT_EQ(changes[0].bytes.size(), 1u);
  EXPECT_EQ(changes[1].offset, 9999u);
  EXPECT_EQ(changes[1].bytes[0], std::byte{2});
  EXPECT_TRUE(watch.look(Look::kEverywhere).empty());
}

TEST(WatchedMemory, JoinsWhatIsClose) {
  WatchedMemory watch;
  Watched block(watch, 8192);
  for (size_t at : {4090, 4094, 4100, 4200}) block.memory.host[at] = std::byte{1};
  const std::vector<Change>& changes = watch.look(Look::kEverywhere);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].offset, 4090u);
  EXPECT_EQ(changes[0].bytes.size(), 11u);
  EXPECT_EQ(changes[1].offset, 4200u);
  EXPECT_EQ(changes[1].bytes.size(), 1u);
}

TEST(WatchedMemory, LooksWhereItIsToLook) {
  WatchedMemory watch;
  Watched data(watch, 64), store(watch, 64, MemoryUse::kDebugStore),
      code(watch, 64, MemoryUse::kCode);
  for (Watched* block : {&data, &store, &code}) block->memory.host[3] = std::byte{1};
  EXPECT_TRUE(watch.look(Look::kNowhere).empty());
  ASSERT_EQ(watch.look(Look::kDebugStore).size(), 1u);
  ASSERT_EQ(watch.look(Look::kEverywhere).size(), 1u);
  EXPECT_EQ(watch.look(Look::kEverywhere).size(), 0u) << "code comes with the program";
}

TEST(WatchedMemory, ForgetsABlockWithItsLastHandle) {
  WatchedMemory watch;
  auto block = std::make_unique<Watched>(watch, 64);
  block->memory.host[3] = std::byte{1};
  const Memory copy = block->memory;
  block.reset();
  EXPECT_EQ(watch.look(Look::kEverywhere).size(), 1u);
  copy.host[4] = std::byte{1};
  { const Memory last = std::move(const_cast<Memory&>(copy)); }
  EXPECT_TRUE(watch.look(Look::kEverywhere).empty());
  EXPECT_FALSE(watch.apply({.block = 0, .offset = 0, .bytes = std::vector<std::byte>(1)}));
}

TEST(WatchedMemory, AppliesWhatAnotherSaw) {
  WatchedMemory one, other;
  Watched source(one, 20000), target(other, 20000);
  Random random(11);
  for (int round = 0; round < 20; ++round) {
    for (uint64_t n = random.below(200); n > 0; --n) {
      source.memory.host[random.below(20000)] = std::byte(random.next());
    }
    Encoder encoded;
    encode_changes(encoded, one.look(Look::kEverywhere));
    Decoder in(encoded.bytes());
    for (const Change& change : decode_changes(in)) ASSERT_TRUE(other.apply(change));
    ASSERT_TRUE(in.good() && in.at_end());
    ASSERT_EQ(std::memcmp(source.memory.host.data(), target.memory.host.data(), 20000), 0);
    EXPECT_TRUE(other.look(Look::kEverywhere).empty()) << "what is applied is known";
  }
}

TEST(WatchedMemory, RefusesChangesThatDoNotFit) {
  WatchedMemory watch;
  Watched block(watch, 64);
  const std::vector<std::byte> bytes(8);
  EXPECT_TRUE(watch.apply({.block = 0, .offset = 56, .bytes = bytes}));
  EXPECT_FALSE(watch.apply({.block = 0, .offset = 57, .bytes = bytes}));
  EXPECT_FALSE(watch.apply({.block = 0, .offset = ~uint64_t{0}, .bytes = bytes}));
  EXPECT_FALSE(watch.apply({.block = 1, .offset = 0, .bytes = bytes}));
}

TEST(LeftRecording, IsFromTheWriteThatBeginsItToTheOneThatEndsIt) {
  const MsrWrite begin{arch::IA32_PEBS_ENABLE, 1}, end{arch::IA32_PEBS_ENABLE, 0};
  LeftRecording recording;
  EXPECT_EQ(recording.now(), Look::kNowhere);
  EXPECT_EQ(recording.around({arch::IA32_PMC0, 5}), Look::kNowhere);
  EXPECT_EQ(recording.around(begin), Look::kDebugStore);
  recording.wrote(begin);
  EXPECT_EQ(recording.now(), Look::kDebugStore);
  EXPECT_EQ(recording.around(end), Look::kDebugStore);
  recording.wrote(end);
  EXPECT_EQ(recording.now(), Look::kNowhere);
  recording.ran({.enable = {{arch::IA32_DEBUGCTL, 0xC0}}, .disable = {}});
  EXPECT_EQ(recording.now(), Look::kDebugStore);
}

}  // namespace
}  // namespace skidproof::tape
