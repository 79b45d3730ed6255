//===- host.cpp - What the device library needs on this machine -------------===//

#include "WaitReport.h"
#include "World.h"

using namespace triton_dist::device;

static thread_local uint32_t thread;
static thread_local uint32_t threads;
static thread_local uint64_t *arrivals;

uint32_t triton_dist::device::threadInBlock() { return thread; }
uint32_t triton_dist::device::threadsInBlock() { return threads; }

void triton_dist::device::syncBlock() {
  uint64_t round = __atomic_fetch_add(arrivals, 1, __ATOMIC_ACQ_REL) / threads;
  while (__atomic_load_n(arrivals, __ATOMIC_ACQUIRE) < (round + 1) * threads)
    relax();
}

uint32_t triton_dist::device::programId(int axis) { return 10 + axis; }
uint32_t triton_dist::device::programs(int axis) { return 20 + axis; }

/// 40 ms, a little more than a tick, pass from one look at the clock to the next.
int64_t triton_dist::device::nanoseconds() {
  static thread_local int64_t now = 1'000'000'000;
  return now += 40'000'000;
}

/// How the caller's waits report.
extern "C" void reportWaits(const WaitState *state) { triton_dist_wait_state = *state; }

/// Makes the caller one of the threads of a program of a PE. `barriers`, zero at first, is where they meet.
extern "C" void become(const State *state, uint32_t number, uint32_t count, uint64_t *barriers) {
  triton_dist_p2p_state = *state;
  thread = number;
  threads = count;
  arrivals = barriers;
}

/// Rounds to the nearest, ties to even. Compilers' own libraries have it only lately.
extern "C" __bf16 __truncsfbf2(float value) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if (value == value)
    bits += 0x7fff + (bits >> 16 & 1);
  return __builtin_bit_cast(__bf16, (uint16_t)(bits >> 16));
}
