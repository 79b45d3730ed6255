//===- Host.h - Programs on the CPU, for tests ------------------*- C++ -*-===//
//
// Threads of a program, and those of other PEs, are threads of the process; each
// has a copy of its PE's state.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_DEVICE_TARGET_HOST_H
#define TRITON_DIST_DEVICE_TARGET_HOST_H

#include <stdint.h>

#define TRITON_DIST_GLOBAL
#define TRITON_DIST_CONSTANT thread_local
#define TRITON_DIST_CALLED inline

#include "PlainAccess.h"
#include "ScopedAtomics.h"

extern "C" int sched_yield(void) noexcept;

namespace triton_dist::device {

// Defined by the test.
uint32_t threadInBlock();
uint32_t threadsInBlock();
void syncBlock();
uint32_t programId(int axis);
uint32_t programs(int axis);
int64_t nanoseconds();

// A program is one warp.
inline uint32_t threadsInWarp() { return threadsInBlock(); }
inline void syncWarp() { syncBlock(); }

inline void keepLoop() {}
inline void keepOrder() {}
inline void relax() { sched_yield(); }

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_HOST_H
