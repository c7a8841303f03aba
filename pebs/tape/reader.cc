#include "pebs/tape/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "pebs/tape/bytes.h"
#include "pebs/tape/fields.h"

namespace skidproof::tape {
namespace {

constexpr char kAnotherCopy[] = "get another copy of the tape, or record it again";

// Of places that look like a frame behind one piece of damage: no more than summing all of them may cost.
constexpr size_t kMostTries = 1000;

size_t find(std::span<const std::byte> bytes, std::string_view magic, size_t from) {
  const auto wanted = std::as_bytes(std::span(magic));
  const auto found = std::search(bytes.begin() + static_cast<ptrdiff_t>(from), bytes.end(),
                                 wanted.begin(), wanted.end());
  return static_cast<size_t>(found - bytes.begin());
}

std::string text_of(const SectionKey& key) {
  std::string text = key.test;
  if (key.repetition != 0) text += fmt::format(", repetition {}", key.repetition);
  if (key.attempt != 0) text += fmt::format(", attempt {}", key.attempt);
  return text;
}

}  // namespace

// A file's bytes.
class TapeReader::Mapping {
 public:
  static Expected<std::shared_ptr<const Mapping>> of(const std::string& path) {
    const auto cannot = [&](const std::string& why) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("cannot read the tape '{}': {}", path, why),
                  "name a file that `skidproof run --tape` wrote: --machine tape:FILE");
    };
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return cannot(std::strerror(errno));
    struct stat status {};
    const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    const auto size = static_cast<size_t>(status.st_size);
    void* at = MAP_FAILED;
    if (known && size != 0) at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    if (!known) return cannot("it is no ordinary file");
    if (size == 0) return cannot("it is empty");
    if (at == MAP_FAILED) return cannot(std::strerror(errno));
    return std::make_shared<const Mapping>(at, size);
  }
  Mapping(void* at, size_t size) : at_(at), size_(size) {}
  ~Mapping() { ::munmap(at_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(at_), size_}; }

 private:
  void* const at_;
  const size_t size_;
};

TapeReader::TapeReader(std::span<const std::byte> bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)) {}

Expected<std::unique_ptr<TapeReader>> TapeReader::open(const std::string& path) {
  auto mapping = SKIDPROOF_TRY(Mapping::of(path));
  auto reader = SKIDPROOF_TRY(parse(mapping->bytes(), path));
  reader->mapping_ = std::move(mapping);
  return reader;
}

Expected<std::unique_ptr<TapeReader>> TapeReader::parse(std::span<const std::byte> bytes,
                                                        std::string name) {
  std::unique_ptr<TapeReader> reader(new TapeReader(bytes, std::move(name)));
  SKIDPROOF_CHECK(reader->read());
  return reader;
}

Expected<void> TapeReader::read() {
  const std::vector<std::byte> ours = preamble();
  if (bytes_.size() < ours.size() ||
      !std::equal(kMagic.begin(), kMagic.end(), bytes_.begin(),
                  [](char a, std::byte b) { return std::byte(a) == b; })) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is no tape", name_),
                "name a file that `skidproof run --tape` wrote: --machine tape:FILE");
  }
  if (!std::equal(ours.begin(), ours.end(), bytes_.begin())) {
    uint32_t version = 0;
    std::memcpy(&version, bytes_.data() + kMagic.size(), sizeof version);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the tape '{}' is of version {}, and this program reads version {}",
                            name_, version, kVersion),
                "replay it with the skidproof that recorded it");
  }
  const std::optional<Frame> first = frame_at(bytes_.subspan(ours.size()));
  if (!first || first->kind != FrameKind::kHeader) {
    return fail(ErrorCode::kIo, fmt::format("the header of the tape '{}' is damaged", name_),
                kAnotherCopy);
  }
  Decoder in(first->payload);
  header_ = decode<TapeHeader>(in);
  if (!in.good() || !in.at_end()) {
    return fail(ErrorCode::kIo,
                fmt::format("the header of the tape '{}' cannot be understood: another skidproof, "
                            "with other microarchs, wrote it",
                            name_),
                "replay it with the skidproof that recorded it");
  }
  read_frames(ours.size() + first->bytes);
  compare_with_index();
  return {};
}

void TapeReader::read_frames(size_t at) {
  while (at < bytes_.size()) {
    const std::optional<Frame> frame = frame_at(bytes_.subspan(at));
    if (frame) {
      take(*frame, at);
      at += frame->bytes;
      continue;
    }
    size_t next = at, tries = 0;
    do {
      next = find(bytes_, kFrameMagic, next + 1);
      if (++tries == kMostTries) next = bytes_.size();
    } while (next < bytes_.size() && !frame_at(bytes_.subspan(next)));
    damage_.push_back(fmt::format("bytes {} to {} are damaged", at, next - 1));
    at = next;
  }
}

void TapeReader::take(const Frame& frame, size_t at) {
  if (has_index_) {
    damage_.push_back(fmt::format("from byte {} on something stands behind the end", at));
  } else if (frame.kind == FrameKind::kIndex) {
    Decoder in(frame.payload);
    index_ = decode<std::vector<SectionKey>>(in);
    has_index_ = true;
    if (!in.good() || !in.at_end()) damage_.push_back("the index cannot be understood");
  } else if (auto section = packed_section(frame.payload);
             section && frame.kind == FrameKind::kSection) {
    by_key_[section->key].push_back(*section);
    ++sections_;
  } else {
    damage_.push_back(fmt::format("the frame at byte {} cannot be understood", at));
  }
}

void TapeReader::compare_with_index() {
  if (!has_index_) {
    damage_.push_back("its end is missing");
    return;
  }
  for (const SectionKey& key : index_) ++lost_[key];
  for (const auto& [key, sections] : by_key_) {
    size_t& left = lost_[key];
    if (sections.size() > left) {
      damage_.push_back(fmt::format("{} is not in the index", text_of(key)));
    }
    left -= std::min(left, sections.size());
  }
  std::erase_if(lost_, [](const auto& entry) { return entry.second == 0; });
  for (const auto& [key, count] : lost_) damage_.push_back(text_of(key) + " is lost");
}

Expected<std::vector<std::byte>> TapeReader::content(const SectionKey& key, size_t turn) const {
  const auto found = by_key_.find(key);
  const bool lost = lost_.contains(key);
  if (found != by_key_.end() && turn < found->second.size() && !lost) {
    return unpack(found->second[turn]);
  }
  if (lost || !damage_.empty()) {
    return fail(ErrorCode::kIo,
                fmt::format("the tape '{}' is damaged, and {} {}", name_, text_of(key),
                            lost ? "was lost" : "is not on what is left of it"),
                kAnotherCopy);
  }
  return fail(ErrorCode::kNotRecorded,
              fmt::format("{} is not on the tape '{}'", text_of(key), name_));
}

}  // namespace skidproof::tape
