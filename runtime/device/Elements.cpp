//===- Elements.cpp - Single elements, and elements at a stride -------------===//

#include "Memory.h"
#include "Scope.h"
#include "World.h"

#include <stddef.h>

using namespace triton_dist::device;

template <typename Scope, typename T>
static void copyStrided(Global<T> *dst, const Global<T> *src, ptrdiff_t dstStride, ptrdiff_t srcStride, size_t nelems) {
  uint32_t step = Scope::size();
#pragma unroll 4
  for (size_t i = Scope::rank(); i < nelems; i += step)
    dst[(ptrdiff_t)i * dstStride] = src[(ptrdiff_t)i * srcStride];
}

// p and g are relaxed atomics: others may poll what p writes, and write what g reads.
#define DEFINE_ELEMENT(TYPE, NAME)                                                                                     \
  void triton_dist_p_##NAME(Bits<TYPE> *dst, Argument<TYPE> value, int32_t pe) {                                       \
    storeRelaxed(onPe(dst, pe), __builtin_bit_cast(Bits<TYPE>, value));                                                \
  }                                                                                                                    \
  Argument<TYPE> triton_dist_g_##NAME(Bits<TYPE> *src, int32_t pe) {                                                   \
    return __builtin_bit_cast(Argument<TYPE>, loadRelaxed(onPe(src, pe)));                                             \
  }

#define DEFINE_STRIDED(SCOPE, SUFFIX, TYPE, NAME)                                                                      \
  void triton_dist_iput_##NAME##SUFFIX(Bits<TYPE> *dst, const Bits<TYPE> *src, ptrdiff_t dstStride,                    \
                                       ptrdiff_t srcStride, size_t nelems, int32_t pe) {                               \
    copyStrided<SCOPE, Bits<TYPE>>(onPe(dst, pe), global(src), dstStride, srcStride, nelems);                          \
  }                                                                                                                    \
  void triton_dist_iget_##NAME##SUFFIX(Bits<TYPE> *dst, const Bits<TYPE> *src, ptrdiff_t dstStride,                    \
                                       ptrdiff_t srcStride, size_t nelems, int32_t pe) {                               \
    copyStrided<SCOPE, Bits<TYPE>>(global(dst), onPe(src, pe), dstStride, srcStride, nelems);                          \
  }

#define DEFINE_STRIDED_OF_TYPE(TYPE, NAME) TRITON_DIST_FOR_SCOPES(DEFINE_STRIDED, TYPE, NAME)

extern "C" {
TRITON_DIST_FOR_TYPES(DEFINE_ELEMENT)
TRITON_DIST_FOR_TYPES(DEFINE_STRIDED_OF_TYPE)
} // extern "C"
