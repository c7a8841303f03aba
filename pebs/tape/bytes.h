// Numbers, texts and blocks of bytes in a row: what a tape's sections and header are made of.
#ifndef SKIDPROOF_PEBS_TAPE_BYTES_H_
#define SKIDPROOF_PEBS_TAPE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skidproof::tape {

// Numbers are LEB128: seven bits in a byte, the lowest first.
class Encoder {
 public:
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(std::byte(value | 0x80));
    bytes_.push_back(std::byte(value));
  }
  // With its length before it.
  void blob(std::span<const std::byte> bytes) {
    number(bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void text(std::string_view text) { blob(std::as_bytes(std::span(text))); }

  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::exchange(bytes_, {}); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what an Encoder wrote, or anything else: past the first mistake every answer is empty, and
// good() is false. Nothing is allocated for a length that the bytes do not bear out.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : left_(bytes) {}

  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = std::to_integer<uint64_t>(left_.front());
      left_ = left_.subspan(1);
      if (shift == 63 && byte > 1) break;  // more than 64 bits
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  // How many elements follow; each has at least a byte.
  size_t count() {
    const uint64_t value = number();
    if (value <= left_.size()) return static_cast<size_t>(value);
    fail();
    return 0;
  }
  std::span<const std::byte> blob() {
    const size_t size = count();
    const std::span<const std::byte> bytes = left_.first(size);
    left_ = left_.subspan(size);
    return bytes;
  }
  std::string text() {
    const std::span<const std::byte> bytes = blob();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void fail() {
    good_ = false;
    left_ = {};
  }
  bool good() const { return good_; }
  bool at_end() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool good_ = true;
};

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_BYTES_H_
