//===- Backoff.h - Wait politely for another process ------------*- C++ -*-===//

#ifndef TRITON_DIST_RUNTIME_BACKOFF_H
#define TRITON_DIST_RUNTIME_BACKOFF_H

#include <chrono>

namespace triton_dist {

/// What to do between two looks at a condition. PEs often outnumber cores, so
/// a spinning thread may keep the awaited one from running: yield a few
/// times, then sleep, longer each time, up to a bound that keeps a wake-up
/// quick.
class Backoff {
public:
  void pause();
  void reset() { rounds = 0; }

private:
  static constexpr int kYields = 32;
  static constexpr std::chrono::microseconds kShortest{5};
  static constexpr std::chrono::microseconds kLongest{1000};

  int rounds = 0;
};

} // namespace triton_dist

#endif // TRITON_DIST_RUNTIME_BACKOFF_H
