//===- Heap.cpp - The symmetric heap, for C -------------------------------===//

#include "Failure.h"
#include "TritonDist/Runtime/SymmetricHeap.h"

using namespace triton_dist;

/// Gives the heap, the address of PE 0's, the distance from one PE's to the
/// next one's, and the bytes that each has.
TRITON_DIST_C int triton_dist_heap_create(int pe, int nPes, uint64_t size, SymmetricHeap **heap, uint64_t *begin,
                                          uint64_t *stride, uint64_t *bytes) {
  return failureOf([&] {
    *heap = new SymmetricHeap(pe, nPes, size);
    *begin = reinterpret_cast<uint64_t>((*heap)->base(0));
    *stride = reinterpret_cast<uint64_t>((*heap)->base(1)) - *begin; // an address only: there may be no PE 1
    *bytes = (*heap)->size();
  });
}

TRITON_DIST_C void triton_dist_heap_destroy(SymmetricHeap *heap) { delete heap; }

TRITON_DIST_C int triton_dist_heap_attach(SymmetricHeap *heap, int pe, int fd) {
  return failureOf([&] { heap->attach(pe, fd); });
}

TRITON_DIST_C int triton_dist_heap_fd(const SymmetricHeap *heap) { return heap->fd(); }

TRITON_DIST_C int triton_dist_heap_write(const SymmetricHeap *heap, int pe, uint64_t offset, const void *source,
                                         uint64_t count) {
  return failureOf([&] { heap->write({pe, offset}, source, count); });
}

TRITON_DIST_C int triton_dist_heap_read(const SymmetricHeap *heap, int pe, uint64_t offset, void *destination,
                                        uint64_t count) {
  return failureOf([&] { heap->read({pe, offset}, destination, count); });
}

TRITON_DIST_C int triton_dist_heap_write_strided(const SymmetricHeap *heap, int pe, uint64_t offset, int64_t stride,
                                                 const void *source, int64_t sourceStride, uint64_t size,
                                                 uint64_t count) {
  return failureOf([&] { heap->writeStrided({pe, offset}, stride, source, sourceStride, size, count); });
}

TRITON_DIST_C int triton_dist_heap_read_strided(const SymmetricHeap *heap, int pe, uint64_t offset, int64_t stride,
                                                void *destination, int64_t destinationStride, uint64_t size,
                                                uint64_t count) {
  return failureOf([&] { heap->readStrided({pe, offset}, stride, destination, destinationStride, size, count); });
}
