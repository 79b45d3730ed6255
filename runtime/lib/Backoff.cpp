//===- Backoff.cpp - Wait politely for another process --------------------===//

#include "TritonDist/Runtime/Backoff.h"

#include <algorithm>
#include <thread>

using namespace triton_dist;

void Backoff::pause() {
  if (rounds < kYields) {
    ++rounds;
    std::this_thread::yield();
    return;
  }
  int doublings = std::min(rounds - kYields, 8);
  if (doublings < 8)
    ++rounds;
  std::this_thread::sleep_for(std::min(kShortest * (1 << doublings), kLongest));
}
