// An array of zeros whose pages cost nothing before they are used.
#ifndef SKIDPROOF_BASE_ZEROED_MEMORY_H_
#define SKIDPROOF_BASE_ZEROED_MEMORY_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace skidproof {

// `size` elements of a type that is what it is when all its bytes are zero. Large arrays are mapped, where a page comes
// into being when it is first touched; small ones are allocated. Moved from, it has none.
template <typename T>
class ZeroedMemory {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  // Throws std::bad_alloc.
  explicit ZeroedMemory(size_t size) : bytes_(size * sizeof(T)) {
    if (mapped()) {
      void* at =
          ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) throw std::bad_alloc();
      data_ = static_cast<T*>(at);
    } else {
      data_ = static_cast<T*>(::operator new(bytes_, kAlignment));
      clear();
    }
  }
  ~ZeroedMemory() {
    if (data_ == nullptr) return;
    if (mapped()) {
      ::munmap(data_, bytes_);
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
