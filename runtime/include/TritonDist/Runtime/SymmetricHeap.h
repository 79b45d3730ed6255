//===- SymmetricHeap.h - Every PE's heap, in every process ------*- C++ -*-===//

#ifndef TRITON_DIST_RUNTIME_SYMMETRIC_HEAP_H
#define TRITON_DIST_RUNTIME_SYMMETRIC_HEAP_H

#include "TritonDist/Runtime/SharedMemory.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace triton_dist {

/// The heaps of all PEs, mapped side by side:
///
///     | PE 0's heap | guard | PE 1's heap | guard | …
///
/// so that the address of an object on another PE is this PE's address plus a
/// constant, and an address tells which PE's heap it is in. Touching a guard is
/// a fault: running off one heap must not silently be a store to the next PE.
///
/// What lies where in a heap is not known here.
class SymmetricHeap {
public:
  /// A place in some PE's heap.
  struct Place {
    int pe;
    uint64_t offset;
  };

  /// Makes the heap of `pe`, of `size` bytes rounded up to whole pages. The
  /// others' are mapped by attach().
  SymmetricHeap(int pe, int nPes, size_t size);

  /// Maps the heap of `pe`, whose process made it. `fd`, a descriptor of it in
  /// this process, is the heap's own from then on.
  void attach(int pe, int fd);

  int fd() const { return memories[self].fd(); }
  size_t size() const { return bytes; }
  std::byte *base(int pe) const;

  /// The place of `address`, if it is inside some PE's heap.
  std::optional<Place> find(uint64_t address) const;

  /// Copies to and from the heap of `place.pe`. std::out_of_range if the range
  /// is not inside it; std::system_error if the local memory is not mapped.
  void write(Place place, const void *source, size_t count) const;
  void read(Place place, void *destination, size_t count) const;

  /// The same for `count` pieces of `size` bytes, whose beginnings lie a stride
  /// of bytes apart, in the heap and in the local memory each their own, which
  /// may be negative.
  void writeStrided(Place place, ptrdiff_t stride, const void *source, ptrdiff_t sourceStride, size_t size,
                    size_t count) const;
  void readStrided(Place place, ptrdiff_t stride, void *destination, ptrdiff_t destinationStride, size_t size,
                   size_t count) const;

private:
  void check(Place place, size_t count) const;
  size_t stride() const;

  int self;
  size_t bytes;
  std::vector<SharedMemory> memories;
  AddressRange addresses;
};

} // namespace triton_dist

#endif // TRITON_DIST_RUNTIME_SYMMETRIC_HEAP_H
