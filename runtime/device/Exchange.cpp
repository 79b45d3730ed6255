//===- Exchange.cpp - Collectives that move bytes ---------------------------===//
//
// Between two barriers of the team each PE does its part by itself: before the
// first no PE's data is complete, after the second no PE's buffer is in use. A
// broadcast is pulled, so that all members' threads work on it; what each member
// sends to each is pushed, because stores need not wait.
//
//===----------------------------------------------------------------------===//

#include "Copy.h"
#include "Scope.h"
#include "Sync.h"

using namespace triton_dist::device;

template <typename Scope>
static int32_t broadcast(int32_t handle, char *dst, const char *src, size_t nbytes, int32_t root, int32_t site) {
  Team members = team(handle);
  if (!members.size)
    return -1;
  int32_t rootPe = worldPe(members, root);
  syncTeam<Scope>(handle, site);
  if (rootPe != myPe() || dst != src)
    copy<Scope>(bytesHere(dst), bytesOnPe(src, rootPe), nbytes);
  syncTeam<Scope>(handle, site);
  return 0;
}

/// Every member sends the block of `src` at `stride` times the receiver's number, and it arrives at the block of `dst`
/// of the sender's number. Members start with their successors, so that not all of them send to one.
template <typename Scope>
static int32_t exchangeBlocks(int32_t handle, char *dst, const char *src, size_t nbytes, size_t stride, int32_t site) {
  Team members = team(handle);
  if (!members.size)
    return -1;
  int32_t me = memberOf(members, myPe());
  char *there = dst + me * nbytes;
  syncTeam<Scope>(handle, site);
  for (int32_t i = 1; i <= members.size; ++i) {
    int32_t member = me + i < members.size ? me + i : me + i - members.size;
    const char *block = src + member * stride;
    if (member != me || there != block)
      copy<Scope>(bytesOnPe(there, worldPe(members, member)), bytesHere(block), nbytes);
  }
  syncTeam<Scope>(handle, site);
  return 0;
}

#define DEFINE_EXCHANGES(SCOPE, SUFFIX)                                                                                \
  int32_t triton_dist_broadcast##SUFFIX(int32_t handle, char *dst, const char *src, size_t nbytes, int32_t root,       \
                                        int32_t site) {                                                                \
    return broadcast<SCOPE>(handle, dst, src, nbytes, root, site);                                                     \
  }                                                                                                                    \
  int32_t triton_dist_fcollect##SUFFIX(int32_t handle, char *dst, const char *src, size_t nbytes, int32_t site) {      \
    return exchangeBlocks<SCOPE>(handle, dst, src, nbytes, /*stride=*/0, site);                                        \
  }                                                                                                                    \
  int32_t triton_dist_alltoall##SUFFIX(int32_t handle, char *dst, const char *src, size_t nbytes, int32_t site) {      \
    return exchangeBlocks<SCOPE>(handle, dst, src, nbytes, /*stride=*/nbytes, site);                                   \
  }

extern "C" {
TRITON_DIST_FOR_SCOPES(DEFINE_EXCHANGES)
} // extern "C"
