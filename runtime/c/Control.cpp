//===- Control.cpp - The control block of a world, for C ------------------===//
//
// Texts are UTF-8, and pass as an address and a length. A text that is given
// back is written to `text`, of `capacity` bytes, with a zero behind it.
//
//===----------------------------------------------------------------------===//

#include "Failure.h"
#include "TritonDist/Runtime/ControlBlock.h"

#include <algorithm>
#include <cstring>

using namespace triton_dist;

using Caller = ControlBlock::Caller;

static void give(std::string_view from, char *text, uint64_t capacity) {
  size_t length = std::min<size_t>(from.size(), capacity - 1);
  std::memcpy(text, from.data(), length);
  text[length] = '\0';
}

static Barrier &barrierOf(const ControlBlock *block, int caller) {
  return Caller(caller) == Caller::Host ? block->hostBarrier() : block->kernelBarrier();
}

TRITON_DIST_C int triton_dist_control_create(int nPes, ControlBlock **block) {
  return failureOf([&] { *block = new ControlBlock(ControlBlock::create(nPes)); });
}

TRITON_DIST_C int triton_dist_control_open(int fd, int nPes, ControlBlock **block) {
  return failureOf([&] { *block = new ControlBlock(ControlBlock::open(fd, nPes)); });
}

TRITON_DIST_C void triton_dist_control_destroy(ControlBlock *block) { delete block; }

TRITON_DIST_C int triton_dist_control_fd(const ControlBlock *block) { return block->fd(); }

TRITON_DIST_C int triton_dist_control_enter(ControlBlock *block, int pe) {
  return failureOf([&] { block->enter(pe); });
}

TRITON_DIST_C void triton_dist_control_leave(ControlBlock *block, int pe) { block->leave(pe); }

TRITON_DIST_C int triton_dist_control_state(const ControlBlock *block, int pe, int *state) {
  return failureOf([&] { *state = static_cast<int>(block->state(pe)); });
}

TRITON_DIST_C int64_t triton_dist_control_pid(const ControlBlock *block, int pe) { return block->pid(pe); }

TRITON_DIST_C void triton_dist_control_abort(ControlBlock *block, int pe, const char *reason, uint64_t length) {
  block->abort(pe, {reason, length});
}

/// The PE at whose fault the world is broken, and why; -1 if it is not.
TRITON_DIST_C int triton_dist_control_aborted(const ControlBlock *block, char *text, uint64_t capacity) {
  auto abort = block->aborted();
  if (!abort)
    return -1;
  give(abort->reason, text, capacity);
  return abort->pe;
}

TRITON_DIST_C void triton_dist_control_announce(ControlBlock *block, int caller, int pe, uint64_t round,
                                                const char *text, uint64_t length) {
  block->announce(Caller(caller), pe, round, {text, length});
}

TRITON_DIST_C void triton_dist_control_announced(const ControlBlock *block, int caller, int pe, uint64_t round,
                                                 char *text, uint64_t capacity) {
  give(block->announced(Caller(caller), pe, round), text, capacity);
}

TRITON_DIST_C uint64_t triton_dist_barrier_arrive(const ControlBlock *block, int caller) {
  return barrierOf(block, caller).arrive();
}

TRITON_DIST_C bool triton_dist_barrier_passed(const ControlBlock *block, int caller, uint64_t ticket) {
  return barrierOf(block, caller).passed(ticket, block->nPes());
}

TRITON_DIST_C bool triton_dist_barrier_wait(const ControlBlock *block, int caller, uint64_t ticket, double seconds) {
  return barrierOf(block, caller).wait(ticket, block->nPes(), std::chrono::duration<double>(seconds));
}
