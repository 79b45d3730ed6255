//===- ScopedAtomics.h - Atomics where clang's own reach --------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_SCOPEDATOMICS_H
#define TRITON_DIST_DEVICE_TARGET_SCOPEDATOMICS_H

namespace triton_dist::device {

template <typename T> T fetchAdd(TRITON_DIST_GLOBAL T *at, T value) {
  return __scoped_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}
template <typename T> T fetchAnd(TRITON_DIST_GLOBAL T *at, T value) {
  return __scoped_atomic_fetch_and(at, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}
template <typename T> T fetchOr(TRITON_DIST_GLOBAL T *at, T value) {
  return __scoped_atomic_fetch_or(at, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}
template <typename T> T fetchXor(TRITON_DIST_GLOBAL T *at, T value) {
  return __scoped_atomic_fetch_xor(at, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}
template <typename T> T exchange(TRITON_DIST_GLOBAL T *at, T value) {
  return __scoped_atomic_exchange_n(at, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_SCOPEDATOMICS_H
