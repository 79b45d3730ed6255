//===- Elements.cpp - Single elements, and elements and blocks at a stride --===//

#include "Memory.h"
#include "Scope.h"
#include "World.h"
#include "target/Vector.h"

#include <stddef.h>

using namespace triton_dist::device;

template <typename Scope, typename T>
static void copyStrided(Global<T> *dst, const Global<T> *src, ptrdiff_t dstStride, ptrdiff_t srcStride, size_t nelems) {
  uint32_t step = Scope::size();
#pragma unroll 4
  for (size_t i = Scope::rank(); i < nelems; i += step)
    dst[(ptrdiff_t)i * dstStride] = src[(ptrdiff_t)i * srcStride];
}

/// Copies blocks of `bsize` objects; strides are from one block's first object to that of the next.
template <typename Scope, typename T>
static void walkBlocks(Global<T> *dst, const Global<T> *src, ptrdiff_t dstStride, ptrdiff_t srcStride, size_t bsize,
                       size_t nblocks) {
  if (bsize == 0)
    return;
  size_t first = Scope::rank(), step = Scope::size();
  size_t block = first / bsize, at = first % bsize, blocks = step / bsize, rest = step % bsize;
#pragma unroll 4
  while (block < nblocks) {
    dst[(ptrdiff_t)block * dstStride + (ptrdiff_t)at] = src[(ptrdiff_t)block * srcStride + (ptrdiff_t)at];
    block += blocks;
    at += rest;
    if (at >= bsize) {
      at -= bsize;
      ++block;
    }
  }
}

/// Copies blocks of elements: as vectors where all addresses and sizes are multiples of their size.
template <typename Scope, typename T>
static void copyBlocks(Global<T> *dst, const Global<T> *src, ptrdiff_t dstStride, ptrdiff_t srcStride, size_t bsize,
                       size_t nblocks) {
  constexpr ptrdiff_t elements = sizeof(Vector) / sizeof(T); // of a vector
  if (((uintptr_t)dst | (uintptr_t)src) % sizeof(Vector) || (dstStride | srcStride | (ptrdiff_t)bsize) % elements)
    walkBlocks<Scope, T>(dst, src, dstStride, srcStride, bsize, nblocks);
  else
    walkBlocks<Scope, Vector>((Global<Vector> *)dst, (const Global<Vector> *)src, dstStride / elements,
                              srcStride / elements, bsize / elements, nblocks);
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
  }                                                                                                                    \
  void triton_dist_ibput_##NAME##SUFFIX(Bits<TYPE> *dst, const Bits<TYPE> *src, ptrdiff_t dstStride,                   \
                                        ptrdiff_t srcStride, size_t bsize, size_t nblocks, int32_t pe) {               \
    copyBlocks<SCOPE, Bits<TYPE>>(onPe(dst, pe), global(src), dstStride, srcStride, bsize, nblocks);                   \
  }                                                                                                                    \
  void triton_dist_ibget_##NAME##SUFFIX(Bits<TYPE> *dst, const Bits<TYPE> *src, ptrdiff_t dstStride,                   \
                                        ptrdiff_t srcStride, size_t bsize, size_t nblocks, int32_t pe) {               \
    copyBlocks<SCOPE, Bits<TYPE>>(global(dst), onPe(src, pe), dstStride, srcStride, bsize, nblocks);                   \
  }

#define DEFINE_STRIDED_OF_TYPE(TYPE, NAME) TRITON_DIST_FOR_SCOPES(DEFINE_STRIDED, TYPE, NAME)

extern "C" {
TRITON_DIST_FOR_TYPES(DEFINE_ELEMENT)
TRITON_DIST_FOR_TYPES(DEFINE_STRIDED_OF_TYPE)
} // extern "C"
