//===- Order.cpp - Ordering, completion, barriers ---------------------------===//
//
// Puts are stores of this GPU: ordering them is a fence, and completing them no
// more than that, but quiet also holds back later loads. A thread that has met a PE
// sees what it stored before, so that a barrier is no more than a sync.
//
//===----------------------------------------------------------------------===//

#include "Scope.h"
#include "Sync.h"

using namespace triton_dist::device;

#define DEFINE_BARRIERS(SCOPE, SUFFIX)                                                                                 \
  int32_t triton_dist_sync##SUFFIX(int32_t handle, int32_t site) {                                                     \
    if (!team(handle).size)                                                                                            \
      return -1;                                                                                                       \
    syncTeam<SCOPE>(handle, site);                                                                                     \
    return 0;                                                                                                          \
  }                                                                                                                    \
  int32_t triton_dist_barrier##SUFFIX(int32_t handle, int32_t site) { return triton_dist_sync##SUFFIX(handle, site); } \
  void triton_dist_sync_all##SUFFIX(int32_t site) { triton_dist_sync##SUFFIX(0, site); }                               \
  void triton_dist_barrier_all##SUFFIX(int32_t site) { triton_dist_barrier##SUFFIX(0, site); }

extern "C" {
void triton_dist_fence() { fence(); }
void triton_dist_quiet() { fenceSequential(); }
TRITON_DIST_FOR_SCOPES(DEFINE_BARRIERS)
} // extern "C"
