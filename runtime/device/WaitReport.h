//===- WaitReport.h - Reports of waits that exceed a timeout ----*- C++ -*-===//
//
// A waiting loop counts its polls in a register. Every kPolls polls it calls a
// function that reads the clock. After the host's timeout this function writes one
// record to the host's memory, and the wait goes on. The function stays one in the
// kernel (TRITON_DIST_CALLED), so a wait holds only the counter and the call.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_DEVICE_WAITREPORT_H
#define TRITON_DIST_DEVICE_WAITREPORT_H

#include "Memory.h"
#include "State.h"
#include "Target.h"

/// Written by a host that reads reports. It is zero when the module is loaded; then no wait reports.
extern "C" TRITON_DIST_CONSTANT triton_dist::device::WaitState triton_dist_wait_state;

namespace triton_dist::device {

/// The time in ticks, which wraps around.
inline uint32_t ticks() { return (uint64_t)nanoseconds() >> kTickShift & ((1u << kTickBits) - 1); }

/// The duration of one wait. It occupies one 32-bit register, since warps with few registers wait, too. From the lowest
/// bit: room for a count of polls, whether the wait has been reported, and the tick at which it began (0 before it is
/// known).
class WaitClock {
public:
  WaitClock() = default;
  explicit WaitClock(uint32_t state) : state(state) {}
  explicit operator uint32_t() const { return state; }

  /// Looks at the clock. Returns the duration if the wait has just exceeded the timeout, else 0.
  uint32_t exceeded() {
    uint32_t timeout = triton_dist_wait_state.timeout;
    if (timeout == 0 || state & kReported)
      return 0;
    uint32_t now = ticks();
    if (state == 0) {
      state = now << kBeganShift;
      return 0;
    }
    uint32_t waited = (now - (state >> kBeganShift)) & ((1u << kTickBits) - 1);
    if (waited < timeout)
      return 0;
    state |= kReported;
    return waited;
  }

private:
  static constexpr uint32_t kBeganShift = 32 - kTickBits;
  static constexpr uint32_t kReported = kPolls;
  static_assert(kReported << 1 == 1u << kBeganShift, "layout of the state");

  uint32_t state = 0;
};

/// Writes a record. `site`: the lowering's number for the op. `pe`: the PE that writes the word, or -1 if unknown.
template <typename T>
void report(Global<T> *at, int32_t cmp, T expected, T seen, int32_t site, int32_t pe, uint32_t waited) {
  const auto &host = triton_dist_wait_state;
  uint32_t number = fetchAdd(global(host.count), 1u) + 1;
  Global<WaitRecord> *record = global(host.records) + number % kWaitRecords;
  storeRelaxed(&record->number, 0u);
  fenceRelease();
  record->address = (uint64_t)at;
  record->expected = (int64_t)expected;
  record->seen = (int64_t)seen;
  record->site = site;
  record->pe = pe;
  record->cmp = cmp;
  record->ticks = waited;
  record->kernel = host.kernel;
  keepOrder(); // what follows takes the registers of the arguments: warps call this whose others are all in use
  for (int axis = 0; axis < 3; ++axis)
    record->program[axis] = programId(axis);
  record->programs = programs(0) * programs(1) * programs(2);
  fenceRelease();
  storeRelaxed(&record->number, number);
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_WAITREPORT_H
