//===- Shared.h - Counted references under Python's lock --------*- C++ -*-===//
//
// As std::shared_ptr, whose counts are atomic and take a newer glibc than
// wheels may.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_SHARED_H
#define TRITON_DIST_NATIVE_CALLS_SHARED_H

#include <cstddef>
#include <utility>

namespace triton_dist {

/// What a Shared can own.
struct Counted {
  mutable size_t references = 0;
};

template <typename T> class Shared {
public:
  Shared() = default;
  explicit Shared(T *made) : value(made) { ++value->references; }
  Shared(const Shared &other) : value(other.value) {
    if (value)
      ++value->references;
  }
  Shared(Shared &&other) noexcept : value(std::exchange(other.value, nullptr)) {}
  Shared &operator=(Shared other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
  ~Shared() {
    if (value && --value->references == 0)
      delete value;
  }

  T *get() const { return value; }
  T &operator*() const { return *value; }
  T *operator->() const { return value; }
  explicit operator bool() const { return value != nullptr; }
  bool operator==(const Shared &other) const { return value == other.value; }
  bool operator!=(const Shared &other) const { return value != other.value; }

private:
  T *value = nullptr;
};

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_SHARED_H
