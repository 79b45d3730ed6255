//===- Nvptx.h - NVIDIA GPUs, from sm_70 on ---------------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_NVPTX_H
#define TRITON_DIST_DEVICE_TARGET_NVPTX_H

#include <stdint.h>

#define TRITON_DIST_GLOBAL __attribute__((address_space(1)))
#define TRITON_DIST_CONSTANT __attribute__((address_space(4)))

#include "Vector.h"

namespace triton_dist::device {

/// LLVM's intrinsic, which has no builtin in clang: bar.sync for some of a block's threads.
void barrierOfThreads(uint32_t barrier, uint32_t threads) __asm("llvm.nvvm.barrier.cta.sync.aligned.count")
    __attribute__((convergent));

inline uint32_t threadInBlock() { return __nvvm_read_ptx_sreg_tid_x(); }
inline uint32_t threadsInBlock() { return triton_dist_program_threads(); }
inline void syncBlock() { barrierOfThreads(0, threadsInBlock()); }

inline uint32_t threadsInWarp() { return 32; }
inline void syncWarp() { __nvvm_bar_warp_sync(0xffffffff); }

inline void relax() {}

// Written as instructions: of an `if` around each, LLVM makes a net of branches, whose compilation takes its time.

inline void loadIf(bool condition, Vector &vector, const TRITON_DIST_GLOBAL Vector *at) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %5, 0;\n\t@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n\t}"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "l"(at), "r"((int)condition)
               : "memory");
}
inline void loadIf(bool condition, uint64_t &word, const TRITON_DIST_GLOBAL uint64_t *at) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %2, 0;\n\tmov.b64 %0, 0;\n\t@p ld.global.b64 %0, [%1];\n\t}"
               : "=&l"(word)
               : "l"(at), "r"((int)condition)
               : "memory");
}
inline void storeIf(bool condition, TRITON_DIST_GLOBAL Vector *at, Vector vector) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %5, 0;\n\t@p st.global.v4.b32 [%4], {%0, %1, %2, %3};\n\t}" ::"r"(vector.x),
      "r"(vector.y), "r"(vector.z), "r"(vector.w), "l"(at), "r"((int)condition)
      : "memory");
}
inline void storeIf(bool condition, TRITON_DIST_GLOBAL uint64_t *at, uint64_t word) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %2, 0;\n\t@p st.global.b64 [%0], %1;\n\t}" ::"l"(at), "l"(word),
               "r"((int)condition)
               : "memory");
}

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
