//===- Copy.h - Moving bytes with many threads ------------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_COPY_H
#define TRITON_DIST_DEVICE_COPY_H

#include "World.h"

#include <stddef.h>
#include <stdint.h>

namespace triton_dist::device {

/// How many loads a thread has under way. A load from a GPU's memory takes some 700 ns, so that the bytes under way
/// decide over the bandwidth of a program.
constexpr uint32_t kInFlight = 8;

/// Loads or stores Begin to End of a round. Those that a small copy does not have are jumped over by groups, and where
/// its end falls into a group are left out one by one.
template <uint32_t Begin, uint32_t End>
inline void loadSome(Vector *vectors, const Global<char> *src, uint32_t stride, size_t left) {
  if (left <= Begin * stride)
    return;
#pragma unroll
  for (uint32_t i = Begin; i < End; ++i)
    loadIf(i == Begin || i * stride < left, vectors[i], (const Global<Vector> *)(src + i * stride));
}
template <uint32_t Begin, uint32_t End>
inline void storeSome(Global<char> *dst, const Vector *vectors, uint32_t stride, size_t left) {
  if (left <= Begin * stride)
    return;
#pragma unroll
  for (uint32_t i = Begin; i < End; ++i)
    storeIf(i == Begin || i * stride < left, (Global<Vector> *)(dst + i * stride), vectors[i]);
}

/// Copies `nbytes`, a multiple of 16, between aligned addresses. The last round differs from others by its missing
/// loads only: one piece of code serves all sizes.
template <typename Scope> inline void copyVectors(Global<char> *dst, const Global<char> *src, size_t nbytes) {
  uint32_t stride = Scope::size() * sizeof(Vector);
  for (size_t at = Scope::rank() * sizeof(Vector); at < nbytes; at += kInFlight * stride) {
    Vector vectors[kInFlight];
    loadSome<0, 1>(vectors, src + at, stride, nbytes - at);
    loadSome<1, 4>(vectors, src + at, stride, nbytes - at);
    loadSome<4, 8>(vectors, src + at, stride, nbytes - at);
    storeSome<0, 1>(dst + at, vectors, stride, nbytes - at);
    storeSome<1, 4>(dst + at, vectors, stride, nbytes - at);
    storeSome<4, 8>(dst + at, vectors, stride, nbytes - at);
  }
}

/// Copies words to an aligned address from one of any alignment: each is put together from the two aligned words that
/// hold it.
template <typename Scope> inline void copyShifted(Global<char> *dst, const Global<char> *src, size_t words) {
  uint32_t shift = (uintptr_t)src % sizeof(uint64_t) * 8;
  auto to = (Global<uint64_t> *)dst;
  auto from = (const Global<uint64_t> *)(src - (uintptr_t)src % sizeof(uint64_t));
  uint32_t stride = Scope::size();
  for (size_t at = Scope::rank(); at < words; at += 2 * stride) {
    bool isSecond = at + stride < words;
    uint64_t low[2], high[2];
    loadIf(true, low[0], from + at);
    loadIf(isSecond, low[1], from + at + stride);
    loadIf(shift, high[0], from + at + 1); // else it may lie behind the end
    loadIf(isSecond && shift, high[1], from + at + stride + 1);
    storeIf(true, to + at, low[0] >> shift | high[0] << 1 << (63 - shift));
    storeIf(isSecond, to + at + stride, low[1] >> shift | high[1] << 1 << (63 - shift));
  }
}

/// Copies bytes between addresses of any alignment. All threads of the scope call it; each has done its part when it
/// returns.
template <typename Scope> TRITON_DIST_OUTLINED void copy(Bytes dst, Bytes src, size_t nbytes) {
  // Whole vectors or words in the middle, single bytes before and behind.
  bool isApart = (dst.here ^ src.here) % sizeof(Vector) != 0;
  uint32_t unit = isApart ? sizeof(uint64_t) : sizeof(Vector);
  uint32_t before = -(uint32_t)dst.here & (unit - 1);
  before = before < nbytes ? before : nbytes;
  uint32_t rest = before + ((uint32_t)(nbytes - before) & (unit - 1));
  size_t middle = nbytes - rest;
  if (isApart)
    copyShifted<Scope>(dst.at(before), src.at(before), middle / sizeof(uint64_t));
  else
    copyVectors<Scope>(dst.at(before), src.at(before), middle);
  for (uint32_t i = Scope::rank(); i < rest; i += Scope::size()) {
    size_t at = i < before ? i : i + middle;
    *dst.at(at) = *src.at(at);
  }
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_COPY_H
