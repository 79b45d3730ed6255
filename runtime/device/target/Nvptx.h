//===- Nvptx.h - NVIDIA GPUs, from sm_70 on ---------------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_NVPTX_H
#define TRITON_DIST_DEVICE_TARGET_NVPTX_H

#include <stdint.h>

#define TRITON_DIST_GLOBAL __attribute__((address_space(1)))
#define TRITON_DIST_CONSTANT __attribute__((address_space(4)))
#define TRITON_DIST_CALLED __attribute__((noinline, cold))

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

inline uint32_t programId(int axis) {
  return axis == 0   ? __nvvm_read_ptx_sreg_ctaid_x()
         : axis == 1 ? __nvvm_read_ptx_sreg_ctaid_y()
                     : __nvvm_read_ptx_sreg_ctaid_z();
}
inline uint32_t programs(int axis) {
  return axis == 0   ? __nvvm_read_ptx_sreg_nctaid_x()
         : axis == 1 ? __nvvm_read_ptx_sreg_nctaid_y()
                     : __nvvm_read_ptx_sreg_nctaid_z();
}
inline int64_t nanoseconds() { return __nvvm_read_ptx_sreg_globaltimer(); }

inline void keepLoop() { asm volatile("" ::: "memory"); }
inline void keepOrder() { asm volatile("" ::: "memory"); }
inline void relax() {}

/// To be called by all threads with an address before a copy that some threads may have no part in. ptxas keeps what
/// all accesses have in common (the descriptor of memory) in uniform registers from the first access on that all
/// threads come by; where that lies behind a branch, it moves it there anew for every access. This one never happens:
/// the address is a multiple of 16, which ptxas does not know.
inline void passAccess(uintptr_t aligned) {
  asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 odd;\n\t.reg .b32 nothing;\n\tand.b64 odd, %0, 1;\n\t"
               "setp.ne.b64 p, odd, 0;\n\t@p ld.volatile.global.b32 nothing, [%0];\n\t}" ::"l"(aligned)
               : "memory");
}

// The loop of copies is written as instructions, in one piece: LLVM, which would make a net of branches of the round's
// conditions, and then look for what else it could do with the loop, has nothing to do with it, so that a kernel
// compiles in less time. ptxas finds the distances of a round to be numbers.

#define TRITON_DIST_REST(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define TRITON_DIST_PLACE_AND_LOAD(I)                                                                                  \
  "mul.lo.u64 on, %4, " #I ";\n\t"                                                                                     \
  "setp.gt.u64 p" #I ", left, on;\n\t"                                                                                 \
  "add.u64 from" #I ", from, on;\n\t"                                                                                  \
  "add.u64 to" #I ", to, on;\n\t"                                                                                      \
  "@p" #I " ld.global.v4.b32 {a" #I ", b" #I ", c" #I ", d" #I "}, [from" #I "];\n\t"
#define TRITON_DIST_STORE(I) "@p" #I " st.global.v4.b32 [to" #I "], {a" #I ", b" #I ", c" #I ", d" #I "};\n\t"

/// See PlainAccess.h.
inline void copyRounds(TRITON_DIST_GLOBAL char *dst, const TRITON_DIST_GLOBAL char *src, uint64_t at, uint64_t nbytes,
                       uint64_t stride) {
  static_assert(kInFlight == 8, "what is written here");
  if (at >= nbytes)
    return;
  // clang-format off
  asm volatile("{\n\t"
               ".reg .pred p<8>, more;\n\t"
               ".reg .b32 a<8>, b<8>, c<8>, d<8>;\n\t"
               ".reg .b64 at, left, round, on, from, to, from<8>, to<8>;\n\t"
               "mov.b64 at, %2;\n\t"
               "sub.u64 left, %3, at;\n\t"
               "mul.lo.u64 round, %4, 8;\n\t"
               "ROUND:\n\t"
               "add.u64 from, %1, at;\n\t"
               "add.u64 to, %0, at;\n\t"
               "ld.global.v4.b32 {a0, b0, c0, d0}, [from];\n\t"
               TRITON_DIST_REST(TRITON_DIST_PLACE_AND_LOAD)
               "st.global.v4.b32 [to], {a0, b0, c0, d0};\n\t"
               TRITON_DIST_REST(TRITON_DIST_STORE)
               "add.u64 at, at, round;\n\t"
               "sub.u64 left, left, round;\n\t"
               "setp.lt.u64 more, at, %3;\n\t"
               "@more bra ROUND;\n\t"
               "}" ::"l"(dst), "l"(src), "l"(at), "l"(nbytes), "l"(stride)
               : "memory");
  // clang-format on
}

#undef TRITON_DIST_REST
#undef TRITON_DIST_PLACE_AND_LOAD
#undef TRITON_DIST_STORE

inline void loadIf(bool condition, uint64_t &word, const TRITON_DIST_GLOBAL uint64_t *at) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %2, 0;\n\tmov.b64 %0, 0;\n\t@p ld.global.b64 %0, [%1];\n\t}"
               : "=&l"(word)
               : "l"(at), "r"((int)condition)
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
