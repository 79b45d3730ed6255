//===- Poll.cpp - Wait reports of polling loops in kernels ------------------===//
//
// For polling loops that a kernel contains itself, around its own loads or
// atomics: the step of waitUntil between two polls.
//
//===----------------------------------------------------------------------===//

#include "WaitReport.h"

using namespace triton_dist::device;

TRITON_DIST_CONSTANT WaitState triton_dist_wait_state;

extern "C" {

/// Called by all threads of the waiting warps. One thread of each warp reports.
uint32_t triton_dist_poll(uint32_t state, char *at, int32_t cmp, int32_t expected, int32_t seen, int32_t pe,
                          int32_t site) {
  WaitClock clock(state);
  bool silent = threadInBlock() % threadsInWarp() != 0;
  clock.tick([&] { return Awaited{(uint64_t)at, expected, seen, cmp, site, pe}; }, silent);
  return (uint32_t)clock;
}

} // extern "C"
