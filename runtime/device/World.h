//===- World.h - PEs, teams, and objects on other PEs -----------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_WORLD_H
#define TRITON_DIST_DEVICE_WORLD_H

#include "State.h"
#include "Target.h"

#include <stddef.h>

/// Filled by the host before the first launch: it finds the symbol in the loaded module.
extern "C" TRITON_DIST_CONSTANT triton_dist::device::State triton_dist_p2p_state;

namespace triton_dist::device {

inline int32_t myPe() { return triton_dist_p2p_state.pe; }

/// The copy on `pe` of the symmetric object at `pointer`. By way of an integer: to C++ it is another object.
template <typename T> Global<T> *onPe(T *pointer, int32_t pe) {
  return (Global<T> *)((uintptr_t)pointer + triton_dist_p2p_state.distance[pe]);
}

/// Bytes on a PE by where this PE's copy lies and how far away that PE's is. Heaps are mapped at pages' boundaries, so
/// the former alone tells how they are aligned, and no thread need wait until the latter is loaded.
struct Bytes {
  uintptr_t here;
  int64_t away;

  Global<char> *at(size_t offset) const { return (Global<char> *)(here + away + offset); }
};

inline Bytes bytesHere(const void *pointer) { return {(uintptr_t)pointer, 0}; }
inline Bytes bytesOnPe(const void *pointer, int32_t pe) {
  return {(uintptr_t)pointer, triton_dist_p2p_state.distance[pe]};
}

/// A team by its handle; one of size 0 where the handle names none.
inline Team team(int32_t handle) {
  if ((uint32_t)handle >= (uint32_t)kMaxTeams)
    return {0, 1, 0};
  return {triton_dist_p2p_state.teams[handle].start, triton_dist_p2p_state.teams[handle].stride,
          triton_dist_p2p_state.teams[handle].size};
}

/// The number in the world of a team's member.
inline int32_t worldPe(Team team, int32_t member) { return team.start + member * team.stride; }

/// The number in `team` of a PE of the world, or -1.
inline int32_t memberOf(Team team, int32_t pe) {
  for (int32_t member = 0; member < team.size; ++member)
    if (worldPe(team, member) == pe)
      return member;
  return -1;
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_WORLD_H
