//===- Host.h - A program of one thread on the CPU, for tests ---*- C++ -*-===//
//
// A PE is a thread of the process, and has a state of its own.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_DEVICE_TARGET_HOST_H
#define TRITON_DIST_DEVICE_TARGET_HOST_H

#include <stdint.h>

#define TRITON_DIST_GLOBAL
#define TRITON_DIST_CONSTANT thread_local

#include "ScopedAtomics.h"

extern "C" int sched_yield(void) noexcept;

namespace triton_dist::device {

inline uint32_t threadInBlock() { return 0; }
inline uint32_t threadsInBlock() { return 1; }
inline void syncBlock() {}

inline uint32_t threadsInWarp() { return 1; }
inline void syncWarp() {}

inline void relax() { sched_yield(); }

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_HOST_H
