//===- Poll.cpp - Reports of loops that kernels wait in ---------------------===//
//
// For loops that are written in a kernel, around loads or atomics of its own:
// what waitUntil does between two looks at a word.
//
//===----------------------------------------------------------------------===//

#include "WaitReport.h"

using namespace triton_dist::device;

TRITON_DIST_CONSTANT WaitState triton_dist_wait_state;

extern "C" {

/// Called by all threads of some warps, which wait for the same: one of each warp reports.
uint32_t triton_dist_poll(uint32_t state, char *at, int32_t cmp, int32_t expected, int32_t seen, int32_t pe,
                          int32_t site) {
  WaitClock clock(state);
  bool silent = threadInBlock() % threadsInWarp() != 0;
  clock.tick([&] { return Awaited{(uint64_t)at, expected, seen, cmp, site, pe}; }, silent);
  return (uint32_t)clock;
}

} // extern "C"
