//===- Copy.h - Moving bytes with many threads ------------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_COPY_H
#define TRITON_DIST_DEVICE_COPY_H

#include "Target.h"

#include <stddef.h>
#include <stdint.h>

namespace triton_dist::device {

/// The widest access of a thread: 16 bytes.
using Vector = uint32_t __attribute__((ext_vector_type(4)));

/// How many loads a thread has under way. A load from a GPU's memory takes some 700 ns, so that the bytes under way
/// decide over the bandwidth of a program.
constexpr uint32_t kInFlight = 8;

/// Copies the elements at `at` and each `stride` further on, N at most, with all loads under way at once: beyond the
/// end they load the last element again.
template <uint32_t N, typename T>
inline void copyLast(Global<T> *to, const Global<T> *from, size_t at, uint32_t stride, size_t count) {
  T element[N];
#pragma unroll
  for (uint32_t i = 0; i < N; ++i) {
    size_t index = at + i * stride;
    element[i] = from[index < count ? index : count - 1];
  }
#pragma unroll
  for (uint32_t i = 0; i < N; ++i)
    if (at + i * stride < count)
      to[at + i * stride] = element[i];
}

/// Copies `count` aligned elements.
template <typename Scope, typename T>
inline void copyElements(Global<char> *dst, const Global<char> *src, size_t count) {
  auto to = (Global<T> *)dst;
  auto from = (const Global<T> *)src;
  uint32_t stride = Scope::size();
  size_t at = Scope::rank();
  T element[kInFlight];
  for (; at + (kInFlight - 1) * stride < count; at += kInFlight * stride) {
#pragma unroll
    for (uint32_t i = 0; i < kInFlight; ++i)
      element[i] = from[at + i * stride];
#pragma unroll
    for (uint32_t i = 0; i < kInFlight; ++i)
      to[at + i * stride] = element[i];
  }
  // The rest takes one round, of no more loads than it needs: they are what a small copy consists of.
  if (at >= count)
    return;
  if (at + stride >= count)
    to[at] = from[at];
  else if (at + 2 * stride >= count)
    copyLast<2>(to, from, at, stride, count);
  else if (at + 4 * stride >= count)
    copyLast<4>(to, from, at, stride, count);
  else
    copyLast<kInFlight>(to, from, at, stride, count);
}

/// Copies bytes by elements as wide as T, and single bytes before and behind those that are aligned.
template <typename Scope, typename T> inline void copyAs(Global<char> *dst, const Global<char> *src, size_t nbytes) {
  size_t before = -(uintptr_t)dst % sizeof(T);
  if (before > nbytes)
    before = nbytes;
  size_t count = (nbytes - before) / sizeof(T);
  size_t aligned = count * sizeof(T);
  copyElements<Scope, T>(dst + before, src + before, count);
  for (size_t i = Scope::rank(); i < nbytes - aligned; i += Scope::size()) {
    size_t at = i < before ? i : i + aligned;
    dst[at] = src[at];
  }
}

/// Copies bytes between addresses of any alignment, by the widest accesses that fit both. All threads of the scope call
/// it; each has done its part when it returns.
template <typename Scope> TRITON_DIST_OUTLINED void copy(Global<char> *dst, const Global<char> *src, size_t nbytes) {
  uintptr_t apart = (uintptr_t)dst ^ (uintptr_t)src;
  if (apart % 16 == 0)
    copyAs<Scope, Vector>(dst, src, nbytes);
  else if (apart % 8 == 0)
    copyAs<Scope, uint64_t>(dst, src, nbytes);
  else if (apart % 4 == 0)
    copyAs<Scope, uint32_t>(dst, src, nbytes);
  else if (apart % 2 == 0)
    copyAs<Scope, uint16_t>(dst, src, nbytes);
  else
    copyAs<Scope, uint8_t>(dst, src, nbytes);
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_COPY_H
