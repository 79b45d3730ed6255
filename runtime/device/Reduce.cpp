//===- Reduce.cpp - Collectives that combine elements -----------------------===//
//
// Each element is combined by one member alone, which loads it from every member
// in the order of their numbers: the result is the same on all of them, and the
// same every time. In a reduce each member combines one slice and stores it to
// all: every element crosses the links twice, however many members there are, and
// `dst` may be `src`, since an element is replaced by the one thread that read it.
// 16-bit floats are combined in 32 bits and rounded once.
//
//===----------------------------------------------------------------------===//

#include "Scope.h"
#include "Sync.h"

#include <stddef.h>

using namespace triton_dist::device;

/// What elements are combined in.
template <typename T> struct AccumulatorOf {
  using Type = T;
};
template <> struct AccumulatorOf<_Float16> {
  using Type = float;
};
template <> struct AccumulatorOf<__bf16> {
  using Type = float;
};

template <typename T, int N> using Chunk = T __attribute__((ext_vector_type(N)));

struct Sum {
  template <typename V> static V combine(V a, V b) { return a + b; }
};
struct Prod {
  template <typename V> static V combine(V a, V b) { return a * b; }
};
struct Min {
  template <typename V> static V combine(V a, V b) { return __builtin_elementwise_min(a, b); }
};
struct Max {
  template <typename V> static V combine(V a, V b) { return __builtin_elementwise_max(a, b); }
};
struct And {
  template <typename V> static V combine(V a, V b) { return a & b; }
};
struct Or {
  template <typename V> static V combine(V a, V b) { return a | b; }
};
struct Xor {
  template <typename V> static V combine(V a, V b) { return a ^ b; }
};

/// Which elements to combine, for whom, and which thread of how many this is.
struct Work {
  size_t begin;
  size_t end;
  Team members;
  Team receivers;
  uint32_t rank;
  uint32_t size;
};

/// Combines the elements by chunks of N; those of `src` of all members go to `dst` of all receivers.
template <typename Op, int N, typename T> inline void combineChunks(T *dst, const T *src, Work work) {
  using Elements = Chunk<T, N>;
  using Accumulators = Chunk<typename AccumulatorOf<T>::Type, N>;
  for (size_t at = work.begin + (size_t)work.rank * N; at < work.end; at += (size_t)work.size * N) {
    auto from = (const Elements *)(src + at);
    auto to = (Elements *)(dst + at);
    auto total = __builtin_convertvector(*onPe(from, work.members.start), Accumulators);
#pragma unroll 4
    for (int32_t i = 1; i < work.members.size; ++i)
      total = Op::combine(total, __builtin_convertvector(*onPe(from, worldPe(work.members, i)), Accumulators));
    for (int32_t i = 0; i < work.receivers.size; ++i)
      *onPe(to, worldPe(work.receivers, i)) = __builtin_convertvector(total, Elements);
  }
}

/// The same by 16 bytes where both sides are aligned, else and for the rest by single elements.
template <typename Op, typename T> TRITON_DIST_OUTLINED void combine(T *dst, const T *src, Work work) {
  constexpr int kWide = 16 / sizeof(T);
  size_t wideEnd = work.begin;
  if (((uintptr_t)(src + work.begin) | (uintptr_t)(dst + work.begin)) % 16 == 0)
    wideEnd += (work.end - work.begin) / kWide * kWide;
  Work wide = work;
  wide.end = wideEnd;
  combineChunks<Op, kWide>(dst, src, wide);
  work.begin = wideEnd;
  combineChunks<Op, 1>(dst, src, work);
}

template <typename Scope, typename Op, typename T>
static int32_t reduce(int32_t handle, T *dst, const T *src, size_t nelems, int32_t site) {
  constexpr size_t kWide = 16 / sizeof(T);
  Team members = team(handle);
  if (!members.size)
    return -1;
  size_t me = memberOf(members, myPe());
  size_t slice = (nelems + members.size - 1) / members.size;
  slice = (slice + kWide - 1) / kWide * kWide; // so that a slice is aligned as the whole is
  size_t begin = me * slice < nelems ? me * slice : nelems;
  size_t end = begin + slice < nelems ? begin + slice : nelems;
  syncTeam<Scope>(handle, site);
  combine<Op>(dst, src, {begin, end, members, members, Scope::rank(), Scope::size()});
  syncTeam<Scope>(handle, site);
  return 0;
}

template <typename Scope, typename Op, typename T>
static int32_t reducescatter(int32_t handle, T *dst, const T *src, size_t nelems, int32_t site) {
  Team members = team(handle);
  if (!members.size)
    return -1;
  Team onlyMe = {myPe(), 1, 1};
  syncTeam<Scope>(handle, site);
  combine<Op>(dst, src + memberOf(members, myPe()) * nelems,
              {0, nelems, members, onlyMe, Scope::rank(), Scope::size()});
  syncTeam<Scope>(handle, site);
  return 0;
}

#define DEFINE_REDUCTION(SCOPE, SUFFIX, TYPE, NAME, OP, FUNCTION)                                                      \
  int32_t triton_dist_reduce_##OP##_##NAME##SUFFIX(int32_t handle, TYPE *dst, const TYPE *src, size_t nelems,          \
                                                   int32_t site) {                                                     \
    return reduce<SCOPE, FUNCTION>(handle, dst, src, nelems, site);                                                    \
  }                                                                                                                    \
  int32_t triton_dist_reducescatter_##OP##_##NAME##SUFFIX(int32_t handle, TYPE *dst, const TYPE *src, size_t nelems,   \
                                                          int32_t site) {                                              \
    return reducescatter<SCOPE, FUNCTION>(handle, dst, src, nelems, site);                                             \
  }

#define DEFINE_REDUCTIONS(TYPE, NAME, OP, FUNCTION) TRITON_DIST_FOR_SCOPES(DEFINE_REDUCTION, TYPE, NAME, OP, FUNCTION)

extern "C" {
TRITON_DIST_FOR_TYPES(DEFINE_REDUCTIONS, sum, Sum)
TRITON_DIST_FOR_TYPES(DEFINE_REDUCTIONS, prod, Prod)
TRITON_DIST_FOR_TYPES(DEFINE_REDUCTIONS, min, Min)
TRITON_DIST_FOR_TYPES(DEFINE_REDUCTIONS, max, Max)
TRITON_DIST_FOR_INTEGERS(DEFINE_REDUCTIONS, and, And)
TRITON_DIST_FOR_INTEGERS(DEFINE_REDUCTIONS, or, Or)
TRITON_DIST_FOR_INTEGERS(DEFINE_REDUCTIONS, xor, Xor)
} // extern "C"
