//===- Atomics.cpp - Atomic memory operations on other PEs ------------------===//
//
// Relaxed, for the whole system: what an op's `sem` asks for, the lowering's
// fences around the call do. Machines have atomics of 32 and 64 bits; those of
// fewer bits exchange a word when it has not changed, until they succeed.
//
//===----------------------------------------------------------------------===//

#include "Memory.h"
#include "World.h"

using namespace triton_dist::device;

template <typename T> constexpr bool kHasAtomics = sizeof(T) >= 4;

/// The numbers behind an element and its argument: 16-bit floats add as floats.
template <typename T> struct SumOf {
  using Type = T;
};
template <> struct SumOf<_Float16> {
  using Type = float;
};
template <> struct SumOf<__bf16> {
  using Type = float;
};

template <typename T> static T compareSwap(Global<T> *at, T expected, T desired) {
  auto bits = __builtin_bit_cast(Bits<T>, expected);
  __scoped_atomic_compare_exchange_n((Global<Bits<T>> *)at, &bits, __builtin_bit_cast(Bits<T>, desired),
                                     /*weak=*/false, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
  return __builtin_bit_cast(T, bits);
}

/// Replaces an element by `change` of it; what it was.
template <typename T, typename Change> static T update(Global<T> *at, Change change) {
  T seen = loadRelaxed(at);
  for (;;) {
    T before = compareSwap(at, seen, change(seen));
    if (__builtin_bit_cast(Bits<T>, before) == __builtin_bit_cast(Bits<T>, seen))
      return seen;
    seen = before;
  }
}

template <typename T> static T swap(Global<T> *at, T value) {
  if constexpr (kHasAtomics<T>)
    return __builtin_bit_cast(T, exchange((Global<Bits<T>> *)at, __builtin_bit_cast(Bits<T>, value)));
  else
    return update(at, [=](T) { return value; });
}

template <typename T> static T addInteger(Global<T> *at, T value) {
  if constexpr (kHasAtomics<T>)
    return fetchAdd((Global<Bits<T>> *)at, (Bits<T>)value);
  else
    return update(at, [=](T seen) { return (T)(seen + value); });
}

template <typename T> static T addFloat(Global<T> *at, T value) {
  if constexpr (kHasAtomics<T>)
    return fetchAdd(at, value);
  else
    return update(at, [=](T seen) { return (T)((float)seen + (float)value); });
}

#define DEFINE_BITWISE(NAME, CALL, OPERATOR)                                                                           \
  template <typename T> static T NAME(Global<T> *at, T value) {                                                        \
    if constexpr (kHasAtomics<T>)                                                                                      \
      return CALL((Global<Bits<T>> *)at, (Bits<T>)value);                                                              \
    else                                                                                                               \
      return update(at, [=](T seen) { return (T)(seen OPERATOR value); });                                             \
  }

DEFINE_BITWISE(bitAnd, fetchAnd, &)
DEFINE_BITWISE(bitOr, fetchOr, |)
DEFINE_BITWISE(bitXor, fetchXor, ^)

#define ELEMENT(TYPE, VALUE) __builtin_bit_cast(TYPE, VALUE)
#define ARGUMENT(TYPE, VALUE) __builtin_bit_cast(Argument<TYPE>, VALUE)

#define DEFINE_EXCHANGES(TYPE, NAME, ADD)                                                                              \
  Argument<TYPE> triton_dist_atomic_fetch_##NAME(TYPE *src, int32_t pe) {                                              \
    return ARGUMENT(TYPE, loadRelaxed(onPe(src, pe)));                                                                 \
  }                                                                                                                    \
  void triton_dist_atomic_set_##NAME(TYPE *dst, Argument<TYPE> value, int32_t pe) {                                    \
    storeRelaxed(onPe(dst, pe), ELEMENT(TYPE, value));                                                                 \
  }                                                                                                                    \
  Argument<TYPE> triton_dist_atomic_swap_##NAME(TYPE *dst, Argument<TYPE> value, int32_t pe) {                         \
    return ARGUMENT(TYPE, swap(onPe(dst, pe), ELEMENT(TYPE, value)));                                                  \
  }                                                                                                                    \
  Argument<TYPE> triton_dist_atomic_compare_swap_##NAME(TYPE *dst, Argument<TYPE> cond, Argument<TYPE> value,          \
                                                        int32_t pe) {                                                  \
    return ARGUMENT(TYPE, compareSwap(onPe(dst, pe), ELEMENT(TYPE, cond), ELEMENT(TYPE, value)));                      \
  }                                                                                                                    \
  void triton_dist_atomic_inc_##NAME(TYPE *dst, int32_t pe) { ADD(onPe(dst, pe), (TYPE)1); }                           \
  Argument<TYPE> triton_dist_atomic_fetch_inc_##NAME(TYPE *dst, int32_t pe) {                                          \
    return ARGUMENT(TYPE, ADD(onPe(dst, pe), (TYPE)1));                                                                \
  }                                                                                                                    \
  void triton_dist_atomic_add_##NAME(TYPE *dst, Argument<TYPE> value, int32_t pe) {                                    \
    ADD(onPe(dst, pe), ELEMENT(TYPE, value));                                                                          \
  }                                                                                                                    \
  Argument<TYPE> triton_dist_atomic_fetch_add_##NAME(TYPE *dst, Argument<TYPE> value, int32_t pe) {                    \
    return ARGUMENT(TYPE, ADD(onPe(dst, pe), ELEMENT(TYPE, value)));                                                   \
  }

#define DEFINE_BITWISE_ROUTINES(TYPE, NAME, OP, FUNCTION)                                                              \
  void triton_dist_atomic_##OP##_##NAME(TYPE *dst, TYPE value, int32_t pe) { FUNCTION(onPe(dst, pe), value); }         \
  TYPE triton_dist_atomic_fetch_##OP##_##NAME(TYPE *dst, TYPE value, int32_t pe) {                                     \
    return FUNCTION(onPe(dst, pe), value);                                                                             \
  }

extern "C" {
TRITON_DIST_FOR_INTEGERS(DEFINE_EXCHANGES, addInteger)
TRITON_DIST_FOR_FLOATS(DEFINE_EXCHANGES, addFloat)
TRITON_DIST_FOR_INTEGERS(DEFINE_BITWISE_ROUTINES, and, bitAnd)
TRITON_DIST_FOR_INTEGERS(DEFINE_BITWISE_ROUTINES, or, bitOr)
TRITON_DIST_FOR_INTEGERS(DEFINE_BITWISE_ROUTINES, xor, bitXor)
} // extern "C"
