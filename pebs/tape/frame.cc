#include "pebs/tape/frame.h"

#include <fmt/format.h>
#include <xxhash.h>
#include <zstd.h>

#include <cstring>
#include <memory>

#include "pebs/tape/bytes.h"
#include "pebs/tape/fields.h"

namespace skidproof::tape {
namespace {

// At 3 a section is packed at some hundred MB a second to about a twentieth.
constexpr int kLevel = 3;

void put_fixed(std::vector<std::byte>& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(std::byte(value >> (8 * i)));
}
uint64_t fixed_at(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  }
  return value;
}
void put_text(std::vector<std::byte>& out, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}
bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

uint64_t sum_of(uint64_t kind, std::span<const std::byte> payload) {
  std::vector<std::byte> front;
  put_fixed(front, kind, 4);
  put_fixed(front, payload.size(), 8);
  return XXH64(payload.data(), payload.size(), XXH64(front.data(), front.size(), 0));
}

}  // namespace

std::vector<std::byte> preamble() {
  std::vector<std::byte> out;
  put_text(out, kMagic);
  put_fixed(out, kVersion, 4);
  return out;
}

std::vector<std::byte> frame_of(FrameKind kind, std::span<const std::byte> payload) {
  std::vector<std::byte> out;
  out.reserve(kFrameBytes + payload.size());
  put_text(out, kFrameMagic);
  put_fixed(out, static_cast<uint32_t>(kind), 4);
  put_fixed(out, payload.size(), 8);
  put_fixed(out, sum_of(static_cast<uint32_t>(kind), payload), 8);
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

std::vector<std::byte> header_frame(const TapeHeader& header) {
  Encoder out;
  encode(out, header);
  return frame_of(FrameKind::kHeader, out.bytes());
}

std::vector<std::byte> section_frame(const Section& section) {
  std::vector<std::byte> packed(ZSTD_compressBound(section.content.size()));
  const size_t size = ZSTD_compress(packed.data(), packed.size(), section.content.data(),
                                    section.content.size(), kLevel);
  packed.resize(ZSTD_isError(size) != 0 ? 0 : size);  // only without memory: read, it is damage
  Encoder out;
  encode(out, section.key);
  out.number(section.content.size());
  out.blob(packed);
  return frame_of(FrameKind::kSection, out.bytes());
}

std::vector<std::byte> index_frame(std::span<const SectionKey> keys) {
  Encoder out;
  encode(out, std::vector<SectionKey>(keys.begin(), keys.end()));
  return frame_of(FrameKind::kIndex, out.bytes());
}

std::optional<Frame> frame_at(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameBytes || !begins_with(bytes, kFrameMagic)) return std::nullopt;
  const auto fixed = bytes.subspan(kFrameMagic.size());
  const uint64_t kind = fixed_at(fixed.first(4));
  const uint64_t size = fixed_at(fixed.subspan(4, 8));
  const uint64_t sum = fixed_at(fixed.subspan(12, 8));
  if (size > bytes.size() - kFrameBytes) return std::nullopt;
  const auto payload = bytes.subspan(kFrameBytes, size);
  if (sum != sum_of(kind, payload)) return std::nullopt;
  if (kind < static_cast<uint32_t>(FrameKind::kHeader) ||
      kind > static_cast<uint32_t>(FrameKind::kIndex)) {
    return std::nullopt;
  }
  return Frame{static_cast<FrameKind>(kind), payload, kFrameBytes + payload.size()};
}

std::optional<PackedSection> packed_section(std::span<const std::byte> payload) {
  Decoder in(payload);
  PackedSection section;
  section.key = decode<SectionKey>(in);
  section.size = in.number();
  section.packed = in.blob();
  if (!in.good() || !in.at_end()) return std::nullopt;
  return section;
}

Expected<std::vector<std::byte>> unpack(const PackedSection& section) {
  const auto damaged = [&](const char* why) {
    return fail(
        ErrorCode::kIo,
        fmt::format("what the tape holds of {} cannot be unpacked: {}", section.key.test, why),
        "get another copy of the tape");
  };
  if (section.size > kMaximumContent) return damaged("its size cannot be");
  // Grows with what comes out, not with what was promised.
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                        ZSTD_freeDStream);
  std::vector<std::byte> content;
  ZSTD_inBuffer in{section.packed.data(), section.packed.size(), 0};
  size_t left = 1;
  while (left != 0) {
    const size_t had = content.size();
    const size_t room = std::min<size_t>(ZSTD_DStreamOutSize() + had, section.size - had + 1);
    content.resize(had + room);
    ZSTD_outBuffer out{content.data() + had, room, 0};
    left = ZSTD_decompressStream(stream.get(), &out, &in);
    if (ZSTD_isError(left) != 0) return damaged(ZSTD_getErrorName(left));
    content.resize(had + out.pos);
    if (content.size() > section.size) return damaged("it is longer than it says");
    if (left != 0 && out.pos < room && in.pos == in.size) return damaged("it breaks off");
  }
  if (content.size() != section.size || in.pos != in.size) return damaged("its size is another");
  return content;
}

}  // namespace skidproof::tape
