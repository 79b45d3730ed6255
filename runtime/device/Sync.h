//===- Sync.h - A team's members wait for each other ------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_SYNC_H
#define TRITON_DIST_DEVICE_SYNC_H

#include "Compare.h"
#include "World.h"

namespace triton_dist::device {

/// Returns when every member of the team has called it. What any of them wrote before is then visible to all threads of
/// the scope, and may be overwritten where it was only read.
///
/// Every member counts its calls, and tells each of the others its count, in a word for this PE alone: nothing is ever
/// reset, so a member that is late finds what it waits for or something greater. One program of a PE at a time.
/// `site`: see Awaited.
template <typename Scope> TRITON_DIST_OUTLINED void syncTeam(int32_t handle, int32_t site) {
  Team members = team(handle);
  SyncArea *area = triton_dist_p2p_state.sync + handle;
  uint64_t epoch = *global(&area->epoch) + 1;
  int32_t me = myPe();
  Scope::sync(); // all have read the count, and what they wrote precedes the fence of each
  for (int32_t i = Scope::rank(); i < members.size; i += Scope::size()) {
    int32_t pe = worldPe(members, i);
    if (pe == me)
      continue;
    fenceRelease();
    storeRelaxed(onPe(&area->arrived[me], pe), epoch);
  }
  for (int32_t i = Scope::rank(); i < members.size; i += Scope::size())
    if (int32_t pe = worldPe(members, i); pe != me)
      waitUntil(global(&area->arrived[pe]), kGe, epoch, site, pe);
  fenceAcquire();
  if (Scope::rank() == 0)
    *global(&area->epoch) = epoch;
  Scope::sync(); // what one of them has seen, all of them see
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_SYNC_H
