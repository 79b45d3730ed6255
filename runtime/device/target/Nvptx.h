//===- Nvptx.h - NVIDIA GPUs, from sm_70 on ---------------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_NVPTX_H
#define TRITON_DIST_DEVICE_TARGET_NVPTX_H

#include <stdint.h>

#define TRITON_DIST_GLOBAL __attribute__((address_space(1)))
#define TRITON_DIST_CONSTANT __attribute__((address_space(4)))

namespace triton_dist::device {

inline uint32_t threadInBlock() { return __nvvm_read_ptx_sreg_tid_x(); }
inline uint32_t threadsInBlock() { return __nvvm_read_ptx_sreg_ntid_x(); }
inline void syncBlock() { __syncthreads(); }

inline uint32_t threadsInWarp() { return 32; }
inline void syncWarp() { __nvvm_bar_warp_sync(0xffffffff); }

inline void relax() {}

// LLVM writes `atomicrmw` without a scope, which PTX takes for the GPU's; only these intrinsics reach other GPUs.

inline uint32_t fetchAdd(TRITON_DIST_GLOBAL uint32_t *at, uint32_t value) {
  return __nvvm_atom_sys_add_gen_i((int *)at, value);
}
inline uint64_t fetchAdd(TRITON_DIST_GLOBAL uint64_t *at, uint64_t value) {
  return __nvvm_atom_sys_add_gen_l((long *)at, value);
}
inline float fetchAdd(TRITON_DIST_GLOBAL float *at, float value) {
  return __nvvm_atom_sys_add_gen_f((float *)at, value);
}
inline double fetchAdd(TRITON_DIST_GLOBAL double *at, double value) {
  return __nvvm_atom_sys_add_gen_d((double *)at, value);
}
inline uint32_t fetchAnd(TRITON_DIST_GLOBAL uint32_t *at, uint32_t value) {
  return __nvvm_atom_sys_and_gen_i((int *)at, value);
}
inline uint64_t fetchAnd(TRITON_DIST_GLOBAL uint64_t *at, uint64_t value) {
  return __nvvm_atom_sys_and_gen_l((long *)at, value);
}
inline uint32_t fetchOr(TRITON_DIST_GLOBAL uint32_t *at, uint32_t value) {
  return __nvvm_atom_sys_or_gen_i((int *)at, value);
}
inline uint64_t fetchOr(TRITON_DIST_GLOBAL uint64_t *at, uint64_t value) {
  return __nvvm_atom_sys_or_gen_l((long *)at, value);
}
inline uint32_t fetchXor(TRITON_DIST_GLOBAL uint32_t *at, uint32_t value) {
  return __nvvm_atom_sys_xor_gen_i((int *)at, value);
}
inline uint64_t fetchXor(TRITON_DIST_GLOBAL uint64_t *at, uint64_t value) {
  return __nvvm_atom_sys_xor_gen_l((long *)at, value);
}
inline uint32_t exchange(TRITON_DIST_GLOBAL uint32_t *at, uint32_t value) {
  return __nvvm_atom_sys_xchg_gen_i((int *)at, value);
}
inline uint64_t exchange(TRITON_DIST_GLOBAL uint64_t *at, uint64_t value) {
  return __nvvm_atom_sys_xchg_gen_l((long *)at, value);
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_NVPTX_H
