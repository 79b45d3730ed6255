//===- WaitReport.h - Reports of waits that exceed a timeout ----*- C++ -*-===//
//
// A waiting loop counts its polls in a register. Every kPolls polls it reads the
// clock. After the host's timeout it writes one record to the host's memory and
// goes on waiting. A shorter wait only pays for the counter.
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

/// The word and the condition that a wait waits for.
struct Awaited {
  uint64_t address;
  int64_t expected;
  int64_t seen;
  int32_t cmp;
  int32_t site; // the lowering's number for the op
  int32_t pe;   // the PE that writes the word, or -1 if unknown
};

/// The time in ticks, which wraps around.
inline uint32_t ticks() { return (uint64_t)nanoseconds() >> kTickShift & ((1u << kTickBits) - 1); }

template <typename Host> void report(const Host *host, const Awaited &awaited, uint32_t waited) {
  uint32_t number = fetchAdd(global(host->count), 1u) + 1;
  Global<WaitRecord> *record = global(host->records) + number % kWaitRecords;
  storeRelaxed(&record->number, 0u);
  fenceRelease();
  record->address = awaited.address;
  record->expected = awaited.expected;
  record->seen = awaited.seen;
  for (int axis = 0; axis < 3; ++axis)
    record->program[axis] = programId(axis);
  record->kernel = host->kernel;
  record->site = awaited.site;
  record->pe = awaited.pe;
  record->cmp = awaited.cmp;
  record->ticks = waited;
  fenceRelease();
  storeRelaxed(&record->number, number);
}

/// The duration of one wait. It occupies one 32-bit register, since warps with few registers wait, too. From the lowest
/// bit: the count of polls, whether the wait has been reported, and the tick at which it began (0 before it is known).
class WaitClock {
public:
  WaitClock() = default;
  explicit WaitClock(uint32_t state) : state(state) {}
  explicit operator uint32_t() const { return state; }

  /// Called after a poll that did not end the wait. `awaited` is a function that is called for a report. If several
  /// threads wait for the same word, all but one are `silent`.
  template <typename Function> void tick(Function awaited, bool silent = false) {
    if (__builtin_expect((++state & (kPolls - 1)) == 0, false))
      look(awaited, silent);
  }

private:
  static constexpr uint32_t kBeganShift = 32 - kTickBits;
  static constexpr uint32_t kReported = kPolls;
  static_assert(kReported << 1 == 1u << kBeganShift, "layout of the state");

  template <typename Function> void look(Function awaited, bool silent) {
    state -= kPolls;                                         // the count has overflowed into the next bit
    const auto *host = &triton_dist_wait_state + zeroHere(); // keeps the loads of its members out of the fast path
    if (host->timeout == 0 || state & kReported)
      return;
    uint32_t now = ticks();
    if (state == 0) {
      state = now << kBeganShift;
      return;
    }
    uint32_t waited = (now - (state >> kBeganShift)) & ((1u << kTickBits) - 1);
    if (waited < host->timeout)
      return;
    state |= kReported;
    if (!silent)
      report(host, awaited(), waited);
  }

  uint32_t state = 0;
};

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_WAITREPORT_H
