// Tapes that are whole, cut short, of another version, and broken in a thousand ways.
#include "pebs/tape/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "pebs/tape/tape_machine.h"
#include "pebs/tape/testing/experiment.h"
#include "pebs/tape/writer.h"

namespace skidproof::tape {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Tape {
  TapeHeader header;
  std::vector<Section> sections;
  std::vector<std::string> seen;  // by the experiment of each section
  std::vector<std::byte> bytes;
};

const Tape& tape() {
  static const Tape one = [] {
    Tape all;
    for (uint64_t i = 0; i < 4; ++i) {
      Recorded one_test = recorded({.period = 50 + i}, fmt::format("Suite.Test{}", i));
      all.header.identity = one_test.identity;
      all.sections.push_back(std::move(one_test.section));
      all.seen.push_back(std::move(one_test.seen));
    }
    all.header.facts = {.version = "0.1.0",
                        .run = "run",
                        .started = "2026-01-01T00:00:00.000Z",
                        .command = {"skidproof", "run"},
                        .seed = 9,
                        .repeat = 2,
                        .filter = "Suite.*",
                        .host = "lab",
                        .os = "Linux",
                        .defects = {"skid-none"},
                        .rough = "7"};
    all.bytes = tape_of(all.header, all.sections);
    return all;
  }();
  return one;
}

std::unique_ptr<TapeReader> read(std::span<const std::byte> bytes) {
  auto reader = TapeReader::parse(bytes, "test.tape");
  EXPECT_TRUE(reader) << reader.error().text();
  return reader ? std::move(*reader) : nullptr;
}

Error refused(std::span<const std::byte> bytes) {
  auto reader = TapeReader::parse(bytes, "test.tape");
  EXPECT_FALSE(reader);
  return reader ? Error{} : reader.error();
}

TEST(TapeReader, GivesBackWhatWasWritten) {
  const auto reader = read(tape().bytes);
  EXPECT_THAT(reader->damage(), IsEmpty());
  EXPECT_EQ(reader->sections(), 4u);
  const RunFacts& facts = reader->header().facts;
  EXPECT_EQ(facts.seed, 9u);
  EXPECT_EQ(facts.repeat, 2u);
  EXPECT_EQ(facts.filter, "Suite.*");
  EXPECT_EQ(facts.command, tape().header.facts.command);
  EXPECT_EQ(facts.defects, tape().header.facts.defects);
  EXPECT_EQ(reader->header().identity.name, "model:sandy-bridge");
  for (const Section& section : tape().sections) {
    const auto content = reader->content(section.key);
    ASSERT_TRUE(content) << content.error().text();
    EXPECT_EQ(*content, section.content);
  }
}

TEST(TapeReader, AFileIsTheSame) {
  const std::string path = ::testing::TempDir() + fmt::format("tape-{}.tape", ::getpid());
  auto writer = TapeWriter::create(path, tape().header);
  ASSERT_TRUE(writer) << writer.error().text();
  for (const Section& section : tape().sections) ASSERT_TRUE((*writer)->write(section));
  ASSERT_TRUE((*writer)->finish());
  EXPECT_EQ((*writer)->bytes(), tape().bytes.size());
  const auto reader = TapeReader::open(path);
  ASSERT_TRUE(reader) << reader.error().text();
  EXPECT_THAT((*reader)->damage(), IsEmpty());
  EXPECT_EQ(*(*reader)->content(tape().sections[2].key), tape().sections[2].content);
  std::filesystem::remove(path);
}

TEST(TapeReader, WhatIsNoTapeIsRefused) {
  EXPECT_THAT(refused({}).message, HasSubstr("is no tape"));
  const std::string text = "{\"type\":\"run\"}\n";
  EXPECT_THAT(refused(std::as_bytes(std::span(text))).message, HasSubstr("is no tape"));
  for (const char* path : {"/nonexistent.tape", "/", "/dev/null"}) {
    const auto reader = TapeReader::open(path);
    ASSERT_FALSE(reader) << path;
    EXPECT_EQ(reader.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(reader.error().message, HasSubstr(path));
  }
}

TEST(TapeReader, AnotherVersionIsNamed) {
  std::vector<std::byte> bytes = tape().bytes;
  bytes[kMagic.size()] = std::byte{9};
  const Error error = refused(bytes);
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, AllOf(HasSubstr("of version 9"), HasSubstr("reads version 5")));
}

TEST(TapeReader, ADamagedHeaderIsTheEnd) {
  std::vector<std::byte> bytes = tape().bytes;
  bytes[kPreambleBytes + kFrameBytes + 3] ^= std::byte{1};
  const Error error = refused(bytes);
  EXPECT_EQ(error.code, ErrorCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("header of the tape 'test.tape' is damaged"));
}

TEST(TapeReader, ACutLosesOnlyWhatLiesBehindIt) {
  const std::vector<std::byte> two =
      tape_of(tape().header, {tape().sections[0], tape().sections[1]});
  const size_t index =
      index_frame(std::vector{tape().sections[0].key, tape().sections[1].key}).size();
  const size_t whole = two.size() - index;  // the first two sections, to the byte
  for (size_t size : {whole, whole + 1, whole + 100}) {
    const auto reader = read(std::span(tape().bytes).first(size));
    EXPECT_THAT(reader->damage(), Not(IsEmpty()));
    EXPECT_EQ(reader->sections(), 2u);
    EXPECT_TRUE(reader->content(tape().sections[1].key));
    const auto lost = reader->content(tape().sections[2].key);
    ASSERT_FALSE(lost);
    EXPECT_EQ(lost.error().code, ErrorCode::kIo) << "it may have been on the tape";
  }
}

TEST(TapeReader, OneDamagedSectionIsNamedAndTheOthersAreRead) {
  std::vector<std::byte> bytes = tape().bytes;
  const size_t front = preamble().size() + header_frame(tape().header).size();
  bytes[front + section_frame(tape().sections[0]).size() + 200] ^= std::byte{0x10};
  const auto reader = read(bytes);
  EXPECT_THAT(reader->damage(), ::testing::Contains(HasSubstr("Suite.Test1 is lost")));
  EXPECT_TRUE(reader->content(tape().sections[0].key));
  EXPECT_TRUE(reader->content(tape().sections[2].key));
  EXPECT_TRUE(reader->content(tape().sections[3].key));
  const auto lost = reader->content(tape().sections[1].key);
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message, HasSubstr("Suite.Test1 was lost"));
}

TEST(TapeReader, WhatWasNeverRecordedIsTold) {
  const auto reader = read(tape().bytes);
  const auto other = reader->content({.test = "Suite.Other"});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kNotRecorded);
  const auto again = reader->content({.test = "Suite.Test1", .attempt = 1});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kNotRecorded);
  EXPECT_THAT(again.error().message, HasSubstr("Suite.Test1, attempt 1 is not on the tape"));
}

TEST(TapeReader, AKeyThatComesTwiceIsReadInTurns) {
  Section first{.key = {.test = "calibration/skew"}, .content = {std::byte{1}}};
  Section second{.key = first.key, .content = {std::byte{2}}};
  const std::vector<std::byte> bytes = tape_of(tape().header, {first, second});
  const auto reader = read(bytes);
  EXPECT_EQ(*reader->content(first.key, 0), first.content);
  EXPECT_EQ(*reader->content(first.key, 1), second.content);
  EXPECT_FALSE(reader->content(first.key, 2));
}

TEST(TapeReader, ASizeThatCannotBeIsNotBelieved) {
  PackedSection section{.key = {.test = "Suite.Test"}, .size = uint64_t{1} << 40, .packed = {}};
  EXPECT_FALSE(unpack(section));
  // A section that unpacks to more than it says.
  const std::vector<std::byte> frame =
      section_frame({.key = {}, .content = std::vector<std::byte>(100000)});
  PackedSection packed = *packed_section(frame_at(frame)->payload);
  packed.size = 1000;
  const auto content = unpack(packed);
  ASSERT_FALSE(content);
  EXPECT_THAT(content.error().message, HasSubstr("longer than it says"));
  packed.size = 200000;
  EXPECT_FALSE(unpack(packed));
}

// One of the ways in which a file goes bad.
std::vector<std::byte> corrupted(std::vector<std::byte> bytes, Random& random) {
  const auto at = static_cast<ptrdiff_t>(random.below(bytes.size()));
  const auto end = at + static_cast<ptrdiff_t>(random.between(
                            1, std::min<uint64_t>(4096, bytes.size() - static_cast<size_t>(at))));
  switch (random.below(7)) {
    case 0:
      bytes[static_cast<size_t>(at)] ^= std::byte(1 << random.below(8));
      break;
    case 1:
      bytes.resize(static_cast<size_t>(at));
      break;
    case 2:
      bytes.insert(bytes.begin() + at, random.between(1, 64), std::byte(random.next()));
      break;
    case 3:
      bytes.erase(bytes.begin() + at, bytes.begin() + end);
      break;
    case 4:
      bytes.insert(bytes.end(), random.between(1, 64), std::byte(random.next()));
      break;
    case 5:  // a length, perhaps
      for (ptrdiff_t i = at; i < std::min(at + 8, static_cast<ptrdiff_t>(bytes.size())); ++i) {
        bytes[static_cast<size_t>(i)] = std::byte{0xFF};
      }
      break;
    default:
      std::fill(bytes.begin() + at, bytes.begin() + end, std::byte{0});
  }
  return bytes;
}

TEST(TapeReader, AThousandCorruptedTapesAreAllFound) {
  Random random(2026);
  size_t refused_at_once = 0, replayed = 0, lost = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<std::byte> bytes = corrupted(tape().bytes, random);
    if (bytes == tape().bytes) continue;  // zeros over zeros
    const auto reader = TapeReader::parse(bytes, "test.tape");
    if (!reader) {
      ++refused_at_once;
      continue;
    }
    ASSERT_THAT((*reader)->damage(), Not(IsEmpty()))
        << "corruption " << i << " passes as the original";
    for (size_t n = 0; n < tape().sections.size(); ++n) {
      auto content = (*reader)->content(tape().sections[n].key);
      if (!content) {
        ++lost;
        continue;
      }
      // What is left is what was recorded.
      ASSERT_EQ(*content, tape().sections[n].content);
      const auto machine = TapeMachine::create(*content, (*reader)->header().identity, 7);
      ASSERT_TRUE(machine);
      if (i % 20 == 0) {
        EXPECT_EQ(experiment(**machine, {.period = 50 + n}), tape().seen[n]);
      }
      ++replayed;
    }
  }
  EXPECT_GT(refused_at_once, 5u);
  EXPECT_GT(lost, 500u);
  EXPECT_GT(replayed, 500u);
}

}  // namespace
}  // namespace skidproof::tape
