//===- State.h - What the device library knows of its world -----*- C++ -*-===//
//
// The one description of the memory that host and device share. The host fills
// the states of every kernel that was linked with this library; it learns the
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
  uint64_t epoch;            // how often this PE has passed; only this PE reads it
};

struct State {
  int32_t pe;
  int32_t nPes;
  SyncArea *sync;            // kMaxTeams of them, a symmetric address
  int64_t distance[kMaxPes]; // bytes from this PE's heap to each PE's, as both are mapped here
  Team teams[kMaxTeams];
  uint32_t unreachable[(kMaxPes + 31) / 32]; // a bit for each PE that loads and stores of kernels may not reach
};

//===----------------------------------------------------------------------===//
// Wait reports: see WaitReport.h
//===----------------------------------------------------------------------===//

/// Capacity of a PE's record buffer: more than the warps that a GPU runs at a time (9728 on the largest), since
/// thousands may wait for what one of them does not send, and its own wait is the one that says why. Later reports
/// overwrite the oldest.
constexpr uint32_t kWaitRecords = 16384;

/// A wait reads the clock every kPolls polls, a power of two.
constexpr uint32_t kPolls = 4096;

/// Waits are timed by ticks of 2^kTickShift nanoseconds (34 ms), which wrap around after 2^kTickBits (4.9 hours).
constexpr uint32_t kTickShift = 25;
constexpr uint32_t kTickBits = 19;

/// The report of one wait.
struct WaitRecord {
  uint64_t address; // of the awaited word
  int64_t expected;
  int64_t seen;
  uint32_t program[3];
  int32_t kernel; // WaitState::kernel
  int32_t site;   // number of the wait in the kernel, from 1; 0 if unknown
  int32_t pe;     // the PE that is waited for, or -1
  int32_t cmp;    // the dialect's Cmp
  uint32_t ticks;
  uint32_t number;   // of the report, from 1; written last, 0 while the other fields are written
  uint32_t programs; // of the grid, modulo 2^32; 0 if unknown
};

/// The parameters of a kernel's wait reports. All zeros: no reports.
struct WaitState {
  WaitRecord *records; // kWaitRecords of them, in memory of the host
  uint32_t *count;     // number of reports begun, in memory of the GPU
  uint32_t timeout;    // ticks, at most half of the wrap-around period
  int32_t kernel;      // the host's number for the kernel
};

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_STATE_H
