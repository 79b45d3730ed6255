//===- State.h - What the device library knows of its world -----*- C++ -*-===//
//
// The one description of the memory that host and device share. The host fills
// the state of every kernel that was linked with this library; it learns the
// layout from StateLayout.cpp, which is compiled with this header, and types no
// offset itself.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_DEVICE_STATE_H
#define TRITON_DIST_DEVICE_STATE_H

#include <stdint.h>

namespace triton_dist::device {

/// As many GPUs as the largest NVLink domain (NVL72) connects by load and
/// store. Beyond it there is no world for this library.
constexpr int32_t kMaxPes = 72;

/// What NVSHMEM allows by default. Team 0 is the world.
constexpr int32_t kMaxTeams = 32;

/// PEs start, start + stride, … of the world; size 0 where there is no team.
struct Team {
  int32_t start;
  int32_t stride;
  int32_t size;
};

/// Where the PEs of one team meet: see Sync.h. Symmetric memory, zero at first.
struct SyncArea {
  uint64_t arrived[kMaxPes]; // by number in the world: how often that PE has told us that it arrived
  uint64_t epoch;            // how often this PE has passed; nobody else looks
};

struct State {
  int32_t pe;
  int32_t nPes;
  SyncArea *sync;            // kMaxTeams of them, a symmetric address
  int64_t distance[kMaxPes]; // bytes from this PE's heap to each PE's, as both are mapped here
  Team teams[kMaxTeams];
};

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_STATE_H
