//===- Barrier.cpp - A barrier between processes --------------------------===//

#include "TritonDist/Runtime/Barrier.h"

#include "TritonDist/Runtime/Backoff.h"

using namespace triton_dist;

bool Barrier::wait(uint64_t ticket, int n, std::chrono::duration<double> limit) const {
  auto deadline = std::chrono::steady_clock::now() + limit;
  for (Backoff backoff; !passed(ticket, n); backoff.pause())
    if (std::chrono::steady_clock::now() >= deadline)
      return false;
  return true;
}
