//===- Atomics.cpp - Atomic operations on an address, for C ---------------===//
//
// The caller has checked that the address is mapped and aligned. An order is a
// value of triton_dist::Order.
//
//===----------------------------------------------------------------------===//

#include "TritonDist/Runtime/Atomics.h"
#include "Failure.h"

using namespace triton_dist;

template <typename T> static T *pointer(uint64_t address) { return reinterpret_cast<T *>(address); }

#define UPDATE(NAME, FUNCTION, BITS)                                                                                   \
  TRITON_DIST_C uint##BITS##_t triton_dist_##NAME##BITS(uint64_t address, uint##BITS##_t value, int order) {           \
    return FUNCTION(pointer<uint##BITS##_t>(address), value, Order(order));                                            \
  }

#define WORD(BITS)                                                                                                     \
  TRITON_DIST_C uint##BITS##_t triton_dist_load##BITS(uint64_t address, int order) {                                   \
    return atomicLoad(pointer<uint##BITS##_t>(address), Order(order));                                                 \
  }                                                                                                                    \
  TRITON_DIST_C void triton_dist_store##BITS(uint64_t address, uint##BITS##_t value, int order) {                      \
    atomicStore(pointer<uint##BITS##_t>(address), value, Order(order));                                                \
  }                                                                                                                    \
  TRITON_DIST_C uint##BITS##_t triton_dist_compare_swap##BITS(uint64_t address, uint##BITS##_t expected,               \
                                                              uint##BITS##_t value, int order) {                       \
    return atomicCompareSwap(pointer<uint##BITS##_t>(address), expected, value, Order(order));                         \
  }                                                                                                                    \
  UPDATE(exchange, atomicExchange, BITS)                                                                               \
  UPDATE(fetch_add, atomicFetchAdd, BITS)                                                                              \
  UPDATE(fetch_and, atomicFetchAnd, BITS)                                                                              \
  UPDATE(fetch_or, atomicFetchOr, BITS)                                                                                \
  UPDATE(fetch_xor, atomicFetchXor, BITS)

WORD(8)
WORD(16)
WORD(32)
WORD(64)

TRITON_DIST_C void triton_dist_fence() { atomicFence(); }
