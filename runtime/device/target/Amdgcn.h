//===- Amdgcn.h - AMD GPUs --------------------------------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_AMDGCN_H
#define TRITON_DIST_DEVICE_TARGET_AMDGCN_H

#include <stdint.h>

#define TRITON_DIST_GLOBAL __attribute__((address_space(1)))
#define TRITON_DIST_CONSTANT __attribute__((address_space(4)))
#define TRITON_DIST_CALLED inline

#include "PlainAccess.h"
#include "ScopedAtomics.h"

namespace triton_dist::device {

inline uint32_t threadInBlock() { return __builtin_amdgcn_workitem_id_x(); }
inline uint32_t threadsInBlock() { return triton_dist_program_threads(); }

/// s_barrier makes threads meet; the fences make visible what they wrote. Released for the whole GPU: what is released
/// for the work-group, other waves see, but cannot publish, as a fence waits for the stores of its own wave only
/// (llvm/llvm-project#160501).
inline void syncBlock() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

inline uint32_t threadsInWarp() { return __builtin_amdgcn_wavefrontsize(); }

inline void syncWarp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

inline uint32_t programId(int axis) {
  return axis == 0   ? __builtin_amdgcn_workgroup_id_x()
         : axis == 1 ? __builtin_amdgcn_workgroup_id_y()
                     : __builtin_amdgcn_workgroup_id_z();
}

/// Known only from the packet of the dispatch, for which a kernel has to ask.
inline uint32_t programs(int) { return 0; }

inline void keepLoop() {}
inline void keepOrder() {}
inline void relax() { __builtin_amdgcn_s_sleep(1); }

/// The real-time counter, of 100 MHz.
inline int64_t nanoseconds() { return 10 * (int64_t)__builtin_readsteadycounter(); }

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_AMDGCN_H
