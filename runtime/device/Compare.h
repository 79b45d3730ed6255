//===- Compare.h - Comparing words that others write ------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_COMPARE_H
#define TRITON_DIST_DEVICE_COMPARE_H

#include "Enums.h"
#include "Memory.h"
#include "WaitReport.h"

namespace triton_dist::device {

template <typename T> bool compares(T seen, int32_t cmp, T value) {
  switch (cmp) {
  case kEq:
    return seen == value;
  case kNe:
    return seen != value;
  case kGt:
    return seen > value;
  case kGe:
    return seen >= value;
  case kLt:
    return seen < value;
  default:
    return seen <= value;
  }
}

/// Reports a word that compares false after the timeout. `state` is of a WaitClock; returns the new one. `site` and
/// `pe`: see report.
template <typename T>
TRITON_DIST_CALLED uint32_t lookAtClock(uint32_t state, Global<T> *at, int32_t cmp, T value, int32_t site, int32_t pe) {
  WaitClock clock(state);
  if (uint32_t waited = clock.exceeded())
    if (T seen = loadRelaxed(at); !compares(seen, cmp, value))
      report(at, cmp, value, seen, site, pe, waited);
  return uint32_t(clock);
}

/// Calls `poll` until it returns true; after each kPolls calls, `look`, which maps the state of a WaitClock to the
/// next. The inner loop contains no call: around one ptxas would load the address anew for each poll.
template <typename Poll, typename Look> void pollUntil(Poll poll, Look look) {
  for (uint32_t state = 0;; state = look(state)) {
    keepLoop();
#pragma clang loop unroll(disable)
    for (uint32_t polls = 0; polls < kPolls; ++polls) {
      if (poll())
        return;
      relax();
    }
  }
}

/// Polls a word until it compares true, and returns that value. As pollUntil, but that the count of polls costs no
/// time: it goes down while the load is in flight, one branch decides whether the loop goes on, and the one behind it
/// does not depend on the load.
template <typename T> T waitUntil(Global<T> *at, int32_t cmp, T value, int32_t site, int32_t pe = -1) {
  for (uint32_t state = 0;; state = lookAtClock(state, at, cmp, value, site, pe)) {
    keepLoop();
    T seen;
    uint32_t left = kPolls;
#pragma clang loop unroll(disable)
    do {
      seen = loadRelaxed(at);
      --left;
      relax();
    } while (!compares(seen, cmp, value) & (left != 0));
    if (__builtin_expect(left != 0, true)) // else the last poll does not count
      return seen;
  }
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_COMPARE_H
