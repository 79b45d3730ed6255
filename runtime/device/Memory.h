//===- Memory.h - Single words and fences, for the whole system -*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_MEMORY_H
#define TRITON_DIST_DEVICE_MEMORY_H

#include "Target.h"
#include "Types.h"

namespace triton_dist::device {

template <typename T> T loadRelaxed(Global<T> *at) {
  Bits<T> bits = __scoped_atomic_load_n((Global<Bits<T>> *)at, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
  return __builtin_bit_cast(T, bits);
}

template <typename T> void storeRelaxed(Global<T> *at, T value) {
  __scoped_atomic_store_n((Global<Bits<T>> *)at, __builtin_bit_cast(Bits<T>, value), __ATOMIC_RELAXED,
                          __MEMORY_SCOPE_SYSTEM);
}

/// What this thread did and saw before comes before what it writes after, for a thread that sees the latter.
inline void fenceRelease() { __scoped_atomic_thread_fence(__ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM); }

/// What others published with what this thread has read before, it and those that it meets see after. Waits for
/// nothing.
inline void fenceAcquire() { __scoped_atomic_thread_fence(__ATOMIC_ACQUIRE, __MEMORY_SCOPE_SYSTEM); }

/// Both.
inline void fence() { __scoped_atomic_thread_fence(__ATOMIC_ACQ_REL, __MEMORY_SCOPE_SYSTEM); }

/// A fence that also comes before later loads: they see nothing older.
inline void fenceSequential() { __scoped_atomic_thread_fence(__ATOMIC_SEQ_CST, __MEMORY_SCOPE_SYSTEM); }

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_MEMORY_H
