//===- Target.h - What the library asks of a machine ------------*- C++ -*-===//
//
// One header per machine in target/, each of which defines
//
//   TRITON_DIST_GLOBAL, TRITON_DIST_CONSTANT   where data and the state lie
//   TRITON_DIST_CALLED                         a function that kernels rarely execute; where calls are cheap (NVIDIA's
//                                              GPUs), they call it and inline it nowhere
//   threadInBlock, threadsInBlock, syncBlock   the program's threads
//   threadsInWarp, syncWarp                    those of one warp
//   programId                                  the program's number along an axis of the grid
//   programs                                   how many there are along it; 0 if unknown
//   relax                                      what to do between two looks at a word
//   keepLoop                                   no instruction; LLVM merges the loop that begins with it with no other
//   keepOrder                                  no instruction; LLVM moves no load or store of memory across it
//   nanoseconds                                a clock
//   fetchAdd, fetchAnd, fetchOr, fetchXor, exchange
//                                              on 32 and 64 bits, relaxed, for the whole system
//
// The host's is for tests.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_DEVICE_TARGET_H
#define TRITON_DIST_DEVICE_TARGET_H

#include <stdint.h>

/// How many threads a program has. The lowering defines it in every kernel, so that what is computed from it is
/// constant there. Of a warp-specialised kernel's threads, a program's are those outside of the regions.
extern "C" __attribute__((const)) uint32_t triton_dist_program_threads();

#if defined(__NVPTX__)
#include "target/Nvptx.h"
#elif defined(__AMDGCN__)
#include "target/Amdgcn.h"
#else
#include "target/Host.h"
#endif

/// A function that stays one in the library, which so remains small. Kernels inline it, as they do all of the library
/// but TRITON_DIST_CALLED (cmake/link_device_library.py).
#define TRITON_DIST_OUTLINED __attribute__((noinline)) static

namespace triton_dist::device {

/// Objects in global memory. Routines take generic pointers, but what they are handed is never shared or private
/// memory, and GPUs access global memory faster when told.
template <typename T> using Global = TRITON_DIST_GLOBAL T;

template <typename T> inline Global<T> *global(T *pointer) { return (Global<T> *)pointer; }

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_H
