//===- SymmetricHeap.cpp - Every PE's heap, in every process --------------===//

#include "TritonDist/Runtime/SymmetricHeap.h"

#include <cassert>
#include <stdexcept>

using namespace triton_dist;

namespace {
constexpr size_t kGuard = size_t(1) << 20; // a whole number of pages anywhere

size_t roundUpToPages(size_t size) {
  size_t page = pageSize();
  return (size + page - 1) / page * page;
}
} // namespace

SymmetricHeap::SymmetricHeap(int pe, int nPes, size_t size)
    : self(pe), bytes(roundUpToPages(size)), memories(nPes), addresses(nPes * (roundUpToPages(size) + kGuard)) {
  assert(0 <= pe && pe < nPes);
  memories[pe] = SharedMemory::create("triton_dist_heap_" + std::to_string(pe), bytes);
  addresses.map(pe * stride(), memories[pe]);
}

void SymmetricHeap::attach(int pe, int fd) {
  assert(!memories[pe] && "attached twice");
  memories[pe] = SharedMemory::adopt(fd, bytes);
  addresses.map(pe * stride(), memories[pe]);
}

size_t SymmetricHeap::stride() const { return bytes + kGuard; }

std::byte *SymmetricHeap::base(int pe) const { return addresses.begin() + pe * stride(); }

std::optional<SymmetricHeap::Place> SymmetricHeap::find(uint64_t address) const {
  auto begin = reinterpret_cast<uint64_t>(addresses.begin());
  if (address < begin || address - begin >= addresses.size())
    return std::nullopt;
  uint64_t offset = (address - begin) % stride();
  if (offset >= bytes)
    return std::nullopt;
  return Place{static_cast<int>((address - begin) / stride()), offset};
}

void SymmetricHeap::check(Place place, size_t count) const {
  assert(0 <= place.pe && static_cast<size_t>(place.pe) < memories.size());
  if (place.offset > bytes || count > bytes - place.offset)
    throw std::out_of_range(std::to_string(count) + " bytes at offset " + std::to_string(place.offset) +
                            " leave the symmetric heap of PE " + std::to_string(place.pe) + ", which has " +
                            std::to_string(bytes) + " bytes");
}

void SymmetricHeap::write(Place place, const void *source, size_t count) const {
  check(place, count);
  memories[place.pe].write(place.offset, source, count);
}

void SymmetricHeap::read(Place place, void *destination, size_t count) const {
  check(place, count);
  memories[place.pe].read(place.offset, destination, count);
}

void SymmetricHeap::writeStrided(Place place, ptrdiff_t stride, const void *source, ptrdiff_t sourceStride, size_t size,
                                 size_t count) const {
  auto *from = static_cast<const std::byte *>(source);
  for (size_t i = 0; i < count; ++i)
    write({place.pe, place.offset + i * stride}, from + i * sourceStride, size);
}

void SymmetricHeap::readStrided(Place place, ptrdiff_t stride, void *destination, ptrdiff_t destinationStride,
                                size_t size, size_t count) const {
  auto *to = static_cast<std::byte *>(destination);
  for (size_t i = 0; i < count; ++i)
    read({place.pe, place.offset + i * stride}, to + i * destinationStride, size);
}
