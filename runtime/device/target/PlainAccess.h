//===- PlainAccess.h - Conditional accesses where an `if` will do *- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_PLAINACCESS_H
#define TRITON_DIST_DEVICE_TARGET_PLAINACCESS_H

#include "Vector.h"

namespace triton_dist::device {

template <typename T> void loadIf(bool condition, T &element, const TRITON_DIST_GLOBAL T *at) {
  element = T();
  if (condition)
    element = *at;
}

template <typename T> void storeIf(bool condition, TRITON_DIST_GLOBAL T *at, T element) {
  if (condition)
    *at = element;
}

/// See Nvptx.h.
inline void passAccess(uintptr_t) {}

/// One thread's part of a copy: the vectors `at`, `at + stride`, … bytes behind the pointers, up to `nbytes`, kInFlight
/// in a round. The last round differs from others by its missing loads and stores only: one piece of code, without
/// branches, serves all sizes.
inline void copyRounds(TRITON_DIST_GLOBAL char *dst, const TRITON_DIST_GLOBAL char *src, uint64_t at, uint64_t nbytes,
                       uint64_t stride) {
  for (; at < nbytes; at += kInFlight * stride) {
    uint64_t left = nbytes - at;
    Vector vectors[kInFlight];
#pragma unroll
    for (uint32_t i = 0; i < kInFlight; ++i)
      loadIf(i * stride < left, vectors[i], (const TRITON_DIST_GLOBAL Vector *)(src + at + i * stride));
#pragma unroll
    for (uint32_t i = 0; i < kInFlight; ++i)
      storeIf(i * stride < left, (TRITON_DIST_GLOBAL Vector *)(dst + at + i * stride), vectors[i]);
  }
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_PLAINACCESS_H
