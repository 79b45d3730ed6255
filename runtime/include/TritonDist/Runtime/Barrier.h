//===- Barrier.h - A barrier between processes ------------------*- C++ -*-===//

#ifndef TRITON_DIST_RUNTIME_BARRIER_H
#define TRITON_DIST_RUNTIME_BARRIER_H

#include "TritonDist/Runtime/Atomics.h"

#include <chrono>

namespace triton_dist {

/// A barrier that n processes use again and again. Lies in shared memory, all
/// zero at first.
///
/// It only counts arrivals. No PE arrives for a round before the last is
/// complete, so the arrivals of round k carry the tickets [k n, (k+1) n) and
/// the round is complete when (k+1) n have come: there is nothing to reset.
/// Arriving and passing are apart, so that one thread can wait for several
/// things at once.
class Barrier {
public:
  /// What was written before is seen by every PE that passes.
  uint64_t arrive() { return atomicFetchAdd<uint64_t>(&arrivals, 1, Order::AcquireRelease); }

  bool passed(uint64_t ticket, int n) const { return atomicLoad(&arrivals, Order::Acquire) >= (ticket / n + 1) * n; }

  /// Waits at most `limit`; whether it has passed.
  bool wait(uint64_t ticket, int n, std::chrono::duration<double> limit) const;

private:
  uint64_t arrivals;
};

} // namespace triton_dist

#endif // TRITON_DIST_RUNTIME_BARRIER_H
