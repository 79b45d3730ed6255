//===- rocshmem_stub.cpp - ROCSHMEM's device functions, doing nothing of use -===//
//
// Has the names and parameters of rocSHMEM 3.4.0 (ROCm 7.14), and with
// -DROCSHMEM_STUB_ROCM=6 those of rocSHMEM 2.0 (ROCm 6.4) where they differ. The
// tests compile it to bitcode, so that the compiler, not us, says which symbols
// these functions have and how their arguments travel. Every body stores its
// arguments where the optimiser cannot follow, and none is inlined: what a kernel
// passes is found again in its machine code.
//
//===----------------------------------------------------------------------===//

using size_t = __SIZE_TYPE__;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;
using schar = signed char;
using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned;
using ulong = unsigned long;

#define DEVICE __attribute__((noinline, visibility("default")))

namespace rocshmem {

typedef struct rocshmem_ctx {
  void *ctx_opaque;
  void *team_opaque;
} rocshmem_ctx_t;
typedef uint64_t *rocshmem_team_t;

// HIP's __device__ and __constant__ are address spaces.
extern "C" {
__attribute__((address_space(1), visibility("default"))) rocshmem_ctx_t ROCSHMEM_CTX_DEFAULT = {};
__attribute__((address_space(4), visibility("default"))) rocshmem_team_t ROCSHMEM_TEAM_WORLD = nullptr;
}

/// Where arguments end.
inline volatile char *sink;

template <typename T> void keep(T value) { *(volatile T *)sink = value; }
void keep(rocshmem_ctx_t context) {
  keep(context.ctx_opaque);
  keep(context.team_opaque);
}
template <typename Result, typename... Arguments> Result act(Arguments... arguments) {
  (keep(arguments), ...);
  return *(volatile Result *)sink;
}
template <typename... Arguments> void act(Arguments... arguments) { (keep(arguments), ...); }

//===----------------------------------------------------------------------===//
// Queries, ordering
//===----------------------------------------------------------------------===//

DEVICE int rocshmem_my_pe() { return act<int>(); }
DEVICE int rocshmem_n_pes() { return act<int>(); }
DEVICE void *rocshmem_ptr(const void *dest, int pe) { return act<void *>(dest, pe); }
DEVICE void rocshmem_fence() { act(1); }
DEVICE void rocshmem_fence(int pe) { act(pe); }
DEVICE void rocshmem_quiet() { act(2); }
DEVICE int rocshmem_team_translate_pe(rocshmem_team_t src_team, int src_pe, rocshmem_team_t dest_team) {
  return act<int>(src_team, src_pe, dest_team);
}

//===----------------------------------------------------------------------===//
// Remote memory access, signals
//===----------------------------------------------------------------------===//

#define RMA(NAME)                                                                                                      \
  DEVICE void rocshmem_##NAME(void *dest, const void *source, size_t nelems, int pe) { act(dest, source, nelems, pe); }
#define RMA_SIGNAL(NAME)                                                                                               \
  DEVICE void rocshmem_##NAME(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal,      \
                              int sig_op, int pe) {                                                                    \
    act(dest, source, nelems, sig_addr, signal, sig_op, pe);                                                           \
  }
#define EVERY_SCOPE(MACRO, NAME) MACRO(NAME) MACRO(NAME##_wave) MACRO(NAME##_wg)

EVERY_SCOPE(RMA, putmem)
EVERY_SCOPE(RMA, getmem)
EVERY_SCOPE(RMA, putmem_nbi)
EVERY_SCOPE(RMA, getmem_nbi)
EVERY_SCOPE(RMA_SIGNAL, putmem_signal)
EVERY_SCOPE(RMA_SIGNAL, putmem_signal_nbi)

DEVICE uint64_t rocshmem_signal_fetch(const uint64_t *sig_addr) { return act<uint64_t>(sig_addr); }

//===----------------------------------------------------------------------===//
// Elements: p, g, waits, tests
//===----------------------------------------------------------------------===//

#define ELEMENT(T)                                                                                                     \
  DEVICE void rocshmem_##T##_p(T *dest, T value, int pe) { act(dest, value, pe); }                                     \
  DEVICE T rocshmem_##T##_g(const T *source, int pe) { return act<T>(source, pe); }                                    \
  DEVICE void rocshmem_##T##_wait_until(T *ivars, int cmp, T val) { act(ivars, cmp, val); }                            \
  DEVICE void rocshmem_##T##_wait_until_all(T *ivars, size_t nelems, const int *status, int cmp, T val) {              \
    act(ivars, nelems, status, cmp, val);                                                                              \
  }                                                                                                                    \
  DEVICE size_t rocshmem_##T##_wait_until_any(T *ivars, size_t nelems, const int *status, int cmp, T val) {            \
    return act<size_t>(ivars, nelems, status, cmp, val);                                                               \
  }                                                                                                                    \
  DEVICE size_t rocshmem_##T##_wait_until_some(T *ivars, size_t nelems, size_t *indices, const int *status, int cmp,   \
                                               T val) {                                                                \
    return act<size_t>(ivars, nelems, indices, status, cmp, val);                                                      \
  }                                                                                                                    \
  DEVICE void rocshmem_##T##_wait_until_all_vector(T *ivars, size_t nelems, const int *status, int cmp, T *vals) {     \
    act(ivars, nelems, status, cmp, vals);                                                                             \
  }                                                                                                                    \
  DEVICE size_t rocshmem_##T##_wait_until_any_vector(T *ivars, size_t nelems, const int *status, int cmp, T *vals) {   \
    return act<size_t>(ivars, nelems, status, cmp, vals);                                                              \
  }                                                                                                                    \
  DEVICE size_t rocshmem_##T##_wait_until_some_vector(T *ivars, size_t nelems, size_t *indices, const int *status,     \
                                                      int cmp, T *vals) {                                              \
    return act<size_t>(ivars, nelems, indices, status, cmp, vals);                                                     \
  }                                                                                                                    \
  DEVICE int rocshmem_##T##_test(T *ivars, int cmp, T val) { return act<int>(ivars, cmp, val); }

ELEMENT(schar)
ELEMENT(uchar)
ELEMENT(short)
ELEMENT(ushort)
ELEMENT(int)
ELEMENT(uint)
ELEMENT(long)
ELEMENT(ulong)
ELEMENT(float)
ELEMENT(double)

//===----------------------------------------------------------------------===//
// Atomics
//===----------------------------------------------------------------------===//

#define FETCH_SET_SWAP(T, TNAME)                                                                                       \
  DEVICE T rocshmem_##TNAME##_atomic_fetch(T *source, int pe) { return act<T>(source, pe); }                           \
  DEVICE void rocshmem_##TNAME##_atomic_set(T *dest, T value, int pe) { act(dest, value, pe); }                        \
  DEVICE T rocshmem_##TNAME##_atomic_swap(T *dest, T value, int pe) { return act<T>(dest, value, pe); }
#define UPDATE(T, TNAME, OP)                                                                                           \
  DEVICE void rocshmem_##TNAME##_atomic_##OP(T *dest, T value, int pe) { act(dest, value, pe); }                       \
  DEVICE T rocshmem_##TNAME##_atomic_fetch_##OP(T *dest, T value, int pe) { return act<T>(dest, value, pe); }
#define ATOMICS(T, TNAME)                                                                                              \
  FETCH_SET_SWAP(T, TNAME)                                                                                             \
  UPDATE(T, TNAME, add)                                                                                                \
  UPDATE(T, TNAME, and)                                                                                                \
  UPDATE(T, TNAME, or)                                                                                                 \
  UPDATE(T, TNAME, xor)                                                                                                \
  DEVICE void rocshmem_##TNAME##_atomic_inc(T *dest, int pe) { act(dest, pe); }                                        \
  DEVICE T rocshmem_##TNAME##_atomic_fetch_inc(T *dest, int pe) { return act<T>(dest, pe); }                           \
  DEVICE T rocshmem_##TNAME##_atomic_compare_swap(T *dest, T cond, T value, int pe) {                                  \
    return act<T>(dest, cond, value, pe);                                                                              \
  }

ATOMICS(int32_t, int32)
ATOMICS(int64_t, int64)
ATOMICS(uint32_t, uint32)
ATOMICS(uint64_t, uint64)
FETCH_SET_SWAP(float, float)
FETCH_SET_SWAP(double, double)

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

#if ROCSHMEM_STUB_ROCM == 6

DEVICE void rocshmem_wg_barrier_all() { act(3); }
DEVICE void rocshmem_wg_sync_all() { act(4); }

#else

#define WORLD(NAME)                                                                                                    \
  DEVICE void rocshmem_##NAME() { act(3); }
#define TEAM(NAME)                                                                                                     \
  DEVICE void rocshmem_ctx_##NAME(rocshmem_ctx_t ctx, rocshmem_team_t team) { act(ctx, team); }

EVERY_SCOPE(WORLD, barrier_all)
EVERY_SCOPE(WORLD, sync_all)
EVERY_SCOPE(TEAM, barrier)
EVERY_SCOPE(TEAM, sync)

DEVICE int rocshmem_team_my_pe(rocshmem_team_t team) { return act<int>(team); }
DEVICE int rocshmem_team_n_pes(rocshmem_team_t team) { return act<int>(team); }

DEVICE void rocshmem_ctx_char_broadcast_wg(rocshmem_ctx_t ctx, rocshmem_team_t team, char *dest, const char *source,
                                           int nelems, int pe_root) {
  act(ctx, team, dest, source, nelems, pe_root);
}
DEVICE void rocshmem_ctx_char_fcollect_wg(rocshmem_ctx_t ctx, rocshmem_team_t team, char *dest, const char *source,
                                          int nelems) {
  act(ctx, team, dest, source, nelems);
}
DEVICE void rocshmem_ctx_char_alltoall_wg(rocshmem_ctx_t ctx, rocshmem_team_t team, char *dest, const char *source,
                                          int nelems) {
  act(ctx, team, dest, source, nelems);
}

#define REDUCE(T, OP)                                                                                                  \
  DEVICE int rocshmem_ctx_##T##_##OP##_reduce_wg(rocshmem_ctx_t ctx, rocshmem_team_t team, T *dest, const T *source,   \
                                                 int nreduce) {                                                        \
    return act<int>(ctx, team, dest, source, nreduce);                                                                 \
  }
#define ARITHMETIC(T) REDUCE(T, sum) REDUCE(T, prod) REDUCE(T, min) REDUCE(T, max)
#define BITWISE(T) REDUCE(T, and) REDUCE(T, or) REDUCE(T, xor)

ARITHMETIC(short)
ARITHMETIC(int)
ARITHMETIC(long)
ARITHMETIC(float)
ARITHMETIC(double)
BITWISE(short)
BITWISE(int)
BITWISE(long)

#endif

} // namespace rocshmem
