//===- Query.cpp - Who and where --------------------------------------------===//

#include "World.h"

using namespace triton_dist::device;

/// Whether kernels may load from and store to a PE of the world. Our own puts reach all PEs: these are mapped, and only
/// pretended to be on other hosts. Kernels of worlds without such hosts do not ask.
static bool isNear([[maybe_unused]] int32_t pe) {
#ifndef TRITON_DIST_PRETENDED_HOSTS
  return true;
#else
  return !(triton_dist_p2p_state.unreachable[(uint32_t)pe / 32] >> ((uint32_t)pe % 32) & 1);
#endif
}

TRITON_DIST_CONSTANT State triton_dist_p2p_state;

extern "C" {

int32_t triton_dist_my_pe() { return triton_dist_p2p_state.pe; }

int32_t triton_dist_n_pes() { return triton_dist_p2p_state.nPes; }

int32_t triton_dist_team_my_pe(int32_t handle) { return memberOf(team(handle), myPe()); }

int32_t triton_dist_team_n_pes(int32_t handle) {
  Team asked = team(handle);
  return asked.size ? asked.size : -1;
}

int32_t triton_dist_team_translate_pe(int32_t srcTeam, int32_t srcPe, int32_t destTeam) {
  Team source = team(srcTeam);
  if ((uint32_t)srcPe >= (uint32_t)source.size)
    return -1;
  return memberOf(team(destTeam), worldPe(source, srcPe));
}

int64_t triton_dist_heap_distance(int32_t pe) { return triton_dist_p2p_state.distance[pe]; }

int32_t triton_dist_is_reachable(int32_t pe) {
  return (uint32_t)pe < (uint32_t)triton_dist_p2p_state.nPes && isNear(pe);
}

void *triton_dist_ptr(void *pointer, int32_t pe) { return isNear(pe) ? (void *)onPe((char *)pointer, pe) : nullptr; }

#ifdef TRITON_DIST_PRETENDED_HOSTS
/// NVSHMEM knows real hosts only. In worlds with pretended hosts its kernels are linked with this in place of its own.
void *nvshmem_ptr(const void *pointer, int32_t pe) {
  return triton_dist_is_reachable(pe) ? (void *)onPe((char *)pointer, pe) : nullptr;
}
#endif

} // extern "C"
