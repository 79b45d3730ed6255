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

/// Polls a word until it compares true, and returns that value. `site` and `pe`: see Awaited.
template <typename T> T waitUntil(Global<T> *at, int32_t cmp, T value, int32_t site, int32_t pe = -1) {
  for (WaitClock clock;;) {
    T seen = loadRelaxed(at);
    if (compares(seen, cmp, value))
      return seen;
    clock.tick([&] { return Awaited{(uint64_t)at, (int64_t)value, (int64_t)seen, cmp, site, pe}; });
    relax();
  }
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_COMPARE_H
