//===- Copy.h - Moving bytes with many threads ------------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_COPY_H
#define TRITON_DIST_DEVICE_COPY_H

#include "World.h"

#include <stddef.h>
#include <stdint.h>

namespace triton_dist::device {

/// Copies `nbytes`, a multiple of 16, between aligned addresses.
template <typename Scope> inline void copyVectors(Global<char> *dst, const Global<char> *src, size_t nbytes) {
  copyRounds(dst, src, Scope::rank() * sizeof(Vector), nbytes, Scope::size() * sizeof(Vector));
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

/// Copies `nbytes` where the compiler knows that they and both addresses are multiples of 16: a kernel that calls this
/// alone is not linked with what other copies take.
template <typename Scope> inline void copyAligned(Bytes dst, Bytes src, size_t nbytes) {
  passAccess(src.here);
  copyVectors<Scope>(dst.at(0), src.at(0), nbytes);
}

/// Copies any `nbytes` where the compiler knows that both addresses are multiples of 16: whole vectors, and single
/// bytes behind them. A kernel that calls this is not linked with what other alignments take.
template <typename Scope> inline void copyBetweenAligned(Bytes dst, Bytes src, size_t nbytes) {
  passAccess(src.here);
  size_t whole = nbytes & -sizeof(Vector);
  for (uint32_t rest = nbytes % sizeof(Vector), i = Scope::rank(); i < rest; i += Scope::size())
    *dst.at(whole + i) = *src.at(whole + i);
  copyVectors<Scope>(dst.at(0), src.at(0), whole);
}

/// Copies bytes between addresses of any alignment. All threads of the scope call it; each has done its part when it
/// returns.
template <typename Scope> TRITON_DIST_OUTLINED void copy(Bytes dst, Bytes src, size_t nbytes) {
  size_t begin = 0, vectors = nbytes;
  // Mostly all is whole vectors, and a small copy is as fast as this is found out.
  if ((dst.here | src.here | nbytes) % sizeof(Vector)) {
    // Whole vectors or words in the middle, single bytes before and behind.
    bool isApart = (dst.here ^ src.here) % sizeof(Vector) != 0;
    uint32_t unit = isApart ? sizeof(uint64_t) : sizeof(Vector);
    uint32_t before = -(uint32_t)dst.here & (unit - 1);
    before = before < nbytes ? before : nbytes;
    uint32_t rest = before + ((uint32_t)(nbytes - before) & (unit - 1));
    size_t middle = nbytes - rest;
    for (uint32_t i = Scope::rank(); i < rest; i += Scope::size()) {
      size_t at = i < before ? i : i + middle;
      *dst.at(at) = *src.at(at);
    }
    if (isApart)
      copyShifted<Scope>(dst.at(before), src.at(before), middle / sizeof(uint64_t));
    begin = before;
    vectors = isApart ? 0 : middle;
  }
  copyVectors<Scope>(dst.at(begin), src.at(begin), vectors);
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_COPY_H
