// A tape: all that crossed the Machine interface while a run's tests were at it. Replayed it is a machine
// (tape_machine.h), which gives the answers that the recorded one gave.
//
// The file, numbers of fixed size in little-endian order:
//   magic       8 bytes, kMagic
//   version     4 bytes, kVersion
//   frames      each: 8 bytes kFrameMagic, 4 bytes FrameKind, 8 bytes length of the payload, 8 bytes XXH64 of
//               kind, length and payload, then the payload:
//     header    first; a TapeHeader
//     section   one for each attempt of a test: its SectionKey, the size of its content, and the content,
//               compressed (zstd)
//     index     last: the keys of all sections in their order
//
// A tape that was cut short lacks its index; the sections before the cut are whole. A reader checks every frame's
// sum, and finds the next frame behind damage by its magic.
//
// A section's content is self-contained: the seed that the machine was asked for, its identity where that is not the
// header's, then the calls in their order. A call is: Call, the question, the program where it is new, what the test
// had changed in memory, the answer, and what the machine changed in memory. Memory is a block's number in
// the order of allocation, an offset and bytes; of what a test put into a data block, which may be megabytes
// that its seed gives again, a sum stands in their place.
#ifndef SKIDPROOF_PEBS_TAPE_TAPE_H_
#define SKIDPROOF_PEBS_TAPE_TAPE_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pebs/machine.h"

namespace skidproof::tape {

inline constexpr std::string_view kMagic = "\x93SKTAPE\n";
inline constexpr std::string_view kFrameMagic =
    "\x93"
    "frame\r\n";
// Another one for every change of what stands in a frame.
inline constexpr uint32_t kVersion = 5;

enum class FrameKind : uint32_t { kHeader = 1, kSection = 2, kIndex = 3 };

inline constexpr size_t kPreambleBytes = kMagic.size() + 4;
inline constexpr size_t kFrameBytes = kFrameMagic.size() + 4 + 8 + 8;
// Of a section's content: beyond it lies only what no run would leave.
inline constexpr uint64_t kMaximumContent = uint64_t{1} << 30;

// What was run, where and when.
struct RunFacts {
  std::string version;               // of skidproof
  std::string run;                   // id
  std::string started;               // UTC
  std::vector<std::string> command;  // argv
  uint64_t seed = 1;
  unsigned repeat = 1;
  std::string filter = "*";
  std::string host;  // its name and operating system; may be empty
  std::string os;
  std::vector<std::string> defects;  // armed in the model
  std::string rough;                 // what of the model is rough; empty: nothing
  bool all = false;                  // also what stands on broken ground
  bool errata = true;                // listed errata explain failures
  std::string shape =
      {};  // measured sizes that programs went by (pebs/footprint.h); empty: none were given
};

struct TapeHeader {
  Identity identity;  // of the machine that was recorded
  RunFacts facts;
};

// One attempt of a test.
struct SectionKey {
  std::string test;
  unsigned repetition = 0;
  unsigned attempt = 0;
  // clang-tidy 14 takes what is generated for a comparison with a pointer. NOLINTNEXTLINE(modernize-use-nullptr)
  auto operator<=>(const SectionKey&) const = default;
};

struct Section {
  SectionKey key;
  std::vector<std::byte> content;
};

enum class Call : uint8_t { kCpuid, kReadMsr, kWriteMsr, kReadCounter, kAllocate, kRun };

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_TAPE_H_
