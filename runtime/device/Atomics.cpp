//===- Atomics.cpp - Atomic memory operations on other PEs ------------------===//
//
// Relaxed, for the whole system: what an op's `sem` asks for, the lowering's
// fences around the call do.
//
//===----------------------------------------------------------------------===//

#include "Memory.h"
#include "World.h"

using namespace triton_dist::device;

template <typename T> static Global<Bits<T>> *bitsOnPe(T *pointer, int32_t pe) {
  return (Global<Bits<T>> *)onPe(pointer, pe);
}

#define BITS(TYPE, VALUE) __builtin_bit_cast(Bits<TYPE>, VALUE)
#define ELEMENT(TYPE, BITS) __builtin_bit_cast(TYPE, BITS)

#define DEFINE_FOR_NUMBERS(TYPE, NAME)                                                                                 \
  TYPE triton_dist_atomic_fetch_##NAME(TYPE *src, int32_t pe) { return loadRelaxed(onPe(src, pe)); }                   \
  void triton_dist_atomic_set_##NAME(TYPE *dst, TYPE value, int32_t pe) { storeRelaxed(onPe(dst, pe), value); }        \
  TYPE triton_dist_atomic_swap_##NAME(TYPE *dst, TYPE value, int32_t pe) {                                             \
    return ELEMENT(TYPE, exchange(bitsOnPe(dst, pe), BITS(TYPE, value)));                                              \
  }

#define DEFINE_FOR_FLOATS(TYPE, NAME)                                                                                  \
  void triton_dist_atomic_add_##NAME(TYPE *dst, TYPE value, int32_t pe) { fetchAdd(onPe(dst, pe), value); }            \
  TYPE triton_dist_atomic_fetch_add_##NAME(TYPE *dst, TYPE value, int32_t pe) { return fetchAdd(onPe(dst, pe), value); }

#define DEFINE_FOR_INTEGERS(TYPE, NAME)                                                                                \
  TYPE triton_dist_atomic_compare_swap_##NAME(TYPE *dst, TYPE cond, TYPE value, int32_t pe) {                          \
    __scoped_atomic_compare_exchange_n(onPe(dst, pe), &cond, value, /*weak=*/false, __ATOMIC_RELAXED,                  \
                                       __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);                                       \
    return cond;                                                                                                       \
  }                                                                                                                    \
  void triton_dist_atomic_inc_##NAME(TYPE *dst, int32_t pe) { fetchAdd(bitsOnPe(dst, pe), (Bits<TYPE>)1); }            \
  TYPE triton_dist_atomic_fetch_inc_##NAME(TYPE *dst, int32_t pe) {                                                    \
    return fetchAdd(bitsOnPe(dst, pe), (Bits<TYPE>)1);                                                                 \
  }                                                                                                                    \
  DEFINE_UPDATE(TYPE, NAME, add, fetchAdd)                                                                             \
  DEFINE_UPDATE(TYPE, NAME, and, fetchAnd)                                                                             \
  DEFINE_UPDATE(TYPE, NAME, or, fetchOr)                                                                               \
  DEFINE_UPDATE(TYPE, NAME, xor, fetchXor)

#define DEFINE_UPDATE(TYPE, NAME, OP, FUNCTION)                                                                        \
  void triton_dist_atomic_##OP##_##NAME(TYPE *dst, TYPE value, int32_t pe) {                                           \
    FUNCTION(bitsOnPe(dst, pe), (Bits<TYPE>)value);                                                                    \
  }                                                                                                                    \
  TYPE triton_dist_atomic_fetch_##OP##_##NAME(TYPE *dst, TYPE value, int32_t pe) {                                     \
    return FUNCTION(bitsOnPe(dst, pe), (Bits<TYPE>)value);                                                             \
  }

extern "C" {
TRITON_DIST_FOR_WIDE_INTEGERS(DEFINE_FOR_NUMBERS)
TRITON_DIST_FOR_WIDE_FLOATS(DEFINE_FOR_NUMBERS)
TRITON_DIST_FOR_WIDE_FLOATS(DEFINE_FOR_FLOATS)
TRITON_DIST_FOR_WIDE_INTEGERS(DEFINE_FOR_INTEGERS)
} // extern "C"
