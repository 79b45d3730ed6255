//===- Poll.cpp - Wait reports of polling loops in kernels ------------------===//
//
// For polling loops that a kernel contains itself, around its own loads or
// atomics: what waitUntil does after a poll.
//
//===----------------------------------------------------------------------===//

#include "Compare.h"

using namespace triton_dist::device;

TRITON_DIST_CONSTANT WaitState triton_dist_wait_state;

/// The PE that writes a row. `writer`: its lower 16 bits are the PE of row 0, and the upper ones the distance between
/// the PEs of neighbouring rows, less 1; negative if unknown.
static int32_t writerOf(int32_t row, int32_t writer) {
  return writer < 0 ? writer : (writer & 0xffff) + row * ((writer >> 16) + 1);
}

/// As lookAtClock of Compare.h; one thread of each warp looks for an awaited word and reports it.
TRITON_DIST_CALLED static uint32_t lookAtClock(uint32_t state, Global<int32_t> *words, int32_t cmp, int32_t expected,
                                               int32_t writer, int32_t rows, int32_t columns, int32_t rowStep,
                                               int32_t columnStep, int32_t site) {
  WaitClock clock(state - kPolls); // the count has overflowed into the next bit
  uint32_t waited = clock.exceeded();
  if (waited == 0 || threadInBlock() % threadsInWarp() != 0)
    return uint32_t(clock);
#pragma clang loop unroll(disable)
  for (int32_t row = 0; row < rows; ++row)
#pragma clang loop unroll(disable)
    for (int32_t column = 0; column < columns; ++column) {
      Global<int32_t> *at = words + row * rowStep + column * columnStep;
      int32_t seen = loadRelaxed(at);
      if (!compares((int32_t)((uint32_t)seen - (uint32_t)expected), cmp, 0)) {
        report(at, cmp, expected, seen, site, writerOf(row, writer), waited);
        return uint32_t(clock);
      }
    }
  return uint32_t(clock);
}

extern "C" {

/// After a poll of the loop; called by all threads of the waiting warps. The loop waits for rows of int32 words, each
/// of which must compare with `expected`, as numbers that wrap around. Steps are in words.
/// `writer`: see writerOf.
uint32_t triton_dist_poll(uint32_t state, char *words, int32_t cmp, int32_t expected, int32_t writer, int32_t rows,
                          int32_t columns, int32_t rowStep, int32_t columnStep, int32_t site) {
  if (__builtin_expect((++state & (kPolls - 1)) == 0, false))
    return lookAtClock(state, global((int32_t *)words), cmp, expected, writer, rows, columns, rowStep, columnStep,
                       site);
  return state;
}

} // extern "C"
