//===- Atomics.h - Atomic operations on plain memory ------------*- C++ -*-===//
//
// Symmetric memory is plain bytes that several processes map, so an atomic
// object cannot be constructed there: these act on an address. All of them are
// lock-free, hence atomic between processes too (a lock would live in one).
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_RUNTIME_ATOMICS_H
#define TRITON_DIST_RUNTIME_ATOMICS_H

#include <cstdint>
#include <type_traits>

namespace triton_dist {

enum class Order : int {
  Relaxed = __ATOMIC_RELAXED,
  Acquire = __ATOMIC_ACQUIRE,
  Release = __ATOMIC_RELEASE,
  AcquireRelease = __ATOMIC_ACQ_REL,
  SequentiallyConsistent = __ATOMIC_SEQ_CST,
};

template <typename T>
constexpr bool isAtomicWord = std::is_same_v<T, uint8_t> || std::is_same_v<T, uint16_t> ||
                              std::is_same_v<T, uint32_t> || std::is_same_v<T, uint64_t>;

/// Order is Relaxed, Acquire or SequentiallyConsistent.
template <typename T> T atomicLoad(const T *address, Order order) {
  static_assert(isAtomicWord<T> && __atomic_always_lock_free(sizeof(T), 0));
  return __atomic_load_n(address, static_cast<int>(order));
}

/// Order is Relaxed, Release or SequentiallyConsistent.
template <typename T> void atomicStore(T *address, T value, Order order) {
  static_assert(isAtomicWord<T> && __atomic_always_lock_free(sizeof(T), 0));
  __atomic_store_n(address, value, static_cast<int>(order));
}

/// Adds modulo 2^bits; returns what was there before.
template <typename T> T atomicFetchAdd(T *address, T value, Order order) {
  static_assert(isAtomicWord<T> && __atomic_always_lock_free(sizeof(T), 0));
  return __atomic_fetch_add(address, value, static_cast<int>(order));
}

/// Combines by and; returns what was there before.
template <typename T> T atomicFetchAnd(T *address, T value, Order order) {
  static_assert(isAtomicWord<T> && __atomic_always_lock_free(sizeof(T), 0));
  return __atomic_fetch_and(address, value, static_cast<int>(order));
}

/// Combines by or; returns what was there before.
template <typename T> T atomicFetchOr(T *address, T value, Order order) {
  static_assert(isAtomicWord<T> && __atomic_always_lock_free(sizeof(T), 0));
  return __atomic_fetch_or(address, value, static_cast<int>(order));
}

/// Combines by exclusive or; returns what was there before.
template <typename T> T atomicFetchXor(T *address, T value, Order order) {
  static_assert(isAtomicWord<T> && __atomic_always_lock_free(sizeof(T), 0));
  return __atomic_fetch_xor(address, value, static_cast<int>(order));
}

/// Stores `value`; returns what was there before.
template <typename T> T atomicExchange(T *address, T value, Order order) {
  static_assert(isAtomicWord<T> && __atomic_always_lock_free(sizeof(T), 0));
  return __atomic_exchange_n(address, value, static_cast<int>(order));
}

/// Stores `value` if `expected` is there; returns what was there before, so
/// that the swap happened exactly when the result equals `expected`.
template <typename T> T atomicCompareSwap(T *address, T expected, T value, Order order) {
  static_assert(isAtomicWord<T> && __atomic_always_lock_free(sizeof(T), 0));
  // A failed swap is only a load, which cannot release.
  Order failed = order == Order::AcquireRelease ? Order::Acquire : order == Order::Release ? Order::Relaxed : order;
  __atomic_compare_exchange_n(address, &expected, value, /*weak=*/false, static_cast<int>(order),
                              static_cast<int>(failed));
  return expected;
}

/// Orders every access before it against every access after it, for all PEs.
inline void atomicFence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

} // namespace triton_dist

#endif // TRITON_DIST_RUNTIME_ATOMICS_H
