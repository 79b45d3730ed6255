//===- Scope.h - Which threads of a program do something together *- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_SCOPE_H
#define TRITON_DIST_DEVICE_SCOPE_H

#include "Target.h"

namespace triton_dist::device {

/// One thread, the caller.
struct Thread {
  static uint32_t rank() { return 0; }
  static uint32_t size() { return 1; }
  static void sync() {}
};

/// The threads of the caller's warp.
struct Warp {
  static uint32_t rank() { return threadInBlock() % threadsInWarp(); }
  static uint32_t size() { return threadsInWarp(); }
  static void sync() { syncWarp(); }
};

/// All threads of the program.
struct Block {
  static uint32_t rank() { return threadInBlock(); }
  static uint32_t size() { return threadsInBlock(); }
  static void sync() { syncBlock(); }
};

} // namespace triton_dist::device

/// Expands DEFINE(scope, suffix of the routine's name, further arguments…) for every scope.
#define TRITON_DIST_FOR_SCOPES(DEFINE, ...)                                                                            \
  DEFINE(Thread, , ##__VA_ARGS__)                                                                                      \
  DEFINE(Warp, _warp, ##__VA_ARGS__)                                                                                   \
  DEFINE(Block, _block, ##__VA_ARGS__)

#endif // TRITON_DIST_DEVICE_SCOPE_H
