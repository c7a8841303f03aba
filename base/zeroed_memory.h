// An array of zeros whose pages cost nothing before they are used.
#ifndef SKIDPROOF_BASE_ZEROED_MEMORY_H_
#define SKIDPROOF_BASE_ZEROED_MEMORY_H_

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace skidproof {

namespace internal {

// Mapped memory of zeros. A few blocks that were given back are kept and cleared for whoever asks for as many bytes, which
// takes less time than letting their pages come into being again; large ones are not. Any thread may ask.
class ZeroedPages {
 public:
  // Throws std::bad_alloc.
  void* take(size_t bytes) {
    if (void* at = kept(bytes)) return std::memset(at, 0, bytes);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return at;
  }
  void give(void* at, size_t bytes) {
    if (bytes <= kLargest) {
      std::lock_guard<std::mutex> lock(mutex_);
      std::swap(at, kept_[next_].at);
      std::swap(bytes, kept_[next_].bytes);
      next_ = (next_ + 1) % kept_.size();
    }
    if (at != nullptr) ::munmap(at, bytes);
  }

 private:
  static constexpr size_t kLargest = size_t{1} << 20;
  struct Block {
    void* at = nullptr;
    size_t bytes = 0;
  };
  void* kept(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Block& block : kept_) {
      if (block.bytes == bytes) return std::exchange(block, {}).at;
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::array<Block, 8> kept_;
  size_t next_ = 0;  // where the next one that is given back goes
};
inline ZeroedPages& zeroed_pages() {
  static auto* const pages = new ZeroedPages;  // some are given back behind the end of main
  return *pages;
}

}  // namespace internal

// `size` elements of a type that is what it is when all its bytes are zero. Large arrays are mapped, where a page comes
// into being when it is first touched; small ones are allocated. Moved from, it has none.
template <typename T>
class ZeroedMemory {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  // Throws std::bad_alloc.
  explicit ZeroedMemory(size_t size) : bytes_(size * sizeof(T)) {
    if (mapped()) {
      data_ = static_cast<T*>(internal::zeroed_pages().take(bytes_));
    } else {
      data_ = static_cast<T*>(::operator new(bytes_, kAlignment));
      clear();
    }
  }
  ~ZeroedMemory() {
    if (data_ == nullptr) return;
    if (mapped()) {
      internal::zeroed_pages().give(data_, bytes_);
    } else {
      ::operator delete(data_, kAlignment);
    }
  }
  ZeroedMemory(ZeroedMemory&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  ZeroedMemory(const ZeroedMemory&) = delete;
  ZeroedMemory& operator=(const ZeroedMemory&) = delete;
  ZeroedMemory& operator=(ZeroedMemory&&) = delete;

  // As of a pointer: what it points to is no part of it.
  T& operator[](size_t n) const { return data_[n]; }

  // All zeros again.
  void clear() { std::memset(static_cast<void*>(data_), 0, bytes_); }

 private:
  static constexpr size_t kLarge = size_t{64} << 10;
  static constexpr std::align_val_t kAlignment{alignof(T)};
  bool mapped() const { return bytes_ >= kLarge; }

  size_t bytes_;
  T* data_;
};

}  // namespace skidproof

#endif  // SKIDPROOF_BASE_ZEROED_MEMORY_H_
