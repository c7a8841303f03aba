// A tape's frames as bytes.
#ifndef SKIDPROOF_PEBS_TAPE_FRAME_H_
#define SKIDPROOF_PEBS_TAPE_FRAME_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/expected.h"
#include "pebs/tape/tape.h"

namespace skidproof::tape {

// The magic and the version.
std::vector<std::byte> preamble();

std::vector<std::byte> frame_of(FrameKind kind, std::span<const std::byte> payload);
std::vector<std::byte> header_frame(const TapeHeader& header);
std::vector<std::byte> section_frame(const Section& section);
std::vector<std::byte> index_frame(std::span<const SectionKey> keys);

// A frame where one stands, with nothing of its payload understood yet.
struct Frame {
  FrameKind kind = FrameKind::kHeader;
  std::span<const std::byte> payload;
  size_t bytes = 0;  // of the whole frame
};
// The frame that begins with the first byte; nothing where it is not whole, or not what was written.
std::optional<Frame> frame_at(std::span<const std::byte> bytes);

// A section's frame with its content still compressed.
struct PackedSection {
  SectionKey key;
  uint64_t size = 0;  // of its content
  std::span<const std::byte> packed;
};
std::optional<PackedSection> packed_section(std::span<const std::byte> payload);
// Errors: kIo, where it is not what was packed.
Expected<std::vector<std::byte>> unpack(const PackedSection& section);

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_FRAME_H_
