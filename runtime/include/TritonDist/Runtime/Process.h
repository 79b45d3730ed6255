//===- Process.h - Which process, and does it still run ---------*- C++ -*-===//

#ifndef TRITON_DIST_RUNTIME_PROCESS_H
#define TRITON_DIST_RUNTIME_PROCESS_H

#include <cstdint>
#include <sys/types.h>

namespace triton_dist {

/// One process, past reuse of its number: the kernel's start time belongs to
/// the identity. Plain data, so that it can lie in shared memory.
struct Process {
  int64_t pid = 0;
  uint64_t startTime = 0; // clock ticks since boot

  static Process self();

  /// False once it has ended, even while its parent has not reaped it.
  bool isRunning() const;
};

} // namespace triton_dist

#endif // TRITON_DIST_RUNTIME_PROCESS_H
