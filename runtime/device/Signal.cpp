//===- Signal.cpp - Signals, alone and behind a put -------------------------===//
//
// What was published before a signal_op is ordered by the fence that the
// lowering places before the call; a signal behind a put is ordered here.
//
//===----------------------------------------------------------------------===//

#include "Compare.h"
#include "Copy.h"
#include "Enums.h"
#include "Memory.h"
#include "Scope.h"
#include "World.h"

using namespace triton_dist::device;

static void signal(Global<uint64_t> *at, uint64_t value, int32_t update) {
  if (update == kAdd)
    fetchAdd(at, value);
  else
    storeRelaxed(at, value);
}

/// Behind a copy that all threads of the scope have made.
template <typename Scope> static void signalBehind(uint64_t *signalAt, uint64_t value, int32_t update, int32_t pe) {
  Scope::sync();
  if (Scope::rank() == 0) {
    fenceRelease(); // it covers what the other threads wrote before they met
    signal(onPe(signalAt, pe), value, update);
  }
}

#define DEFINE_PUT_WITH_SIGNAL(SCOPE, SUFFIX, KIND, COPY)                                                              \
  void triton_dist_putmem_signal##KIND##SUFFIX(char *dst, const char *src, size_t nbytes, uint64_t *sigAddr,           \
                                               uint64_t value, int32_t sigOp, int32_t pe) {                            \
    COPY<SCOPE>(bytesOnPe(dst, pe), bytesHere(src), nbytes);                                                           \
    signalBehind<SCOPE>(sigAddr, value, sigOp, pe);                                                                    \
  }

extern "C" {

TRITON_DIST_FOR_SCOPES(DEFINE_PUT_WITH_SIGNAL, , copy)
TRITON_DIST_FOR_SCOPES(DEFINE_PUT_WITH_SIGNAL, _nbi, copy)
TRITON_DIST_FOR_SCOPES(DEFINE_PUT_WITH_SIGNAL, _aligned, copyAligned)
TRITON_DIST_FOR_SCOPES(DEFINE_PUT_WITH_SIGNAL, _nbi_aligned, copyAligned)
TRITON_DIST_FOR_SCOPES(DEFINE_PUT_WITH_SIGNAL, _between_aligned, copyBetweenAligned)
TRITON_DIST_FOR_SCOPES(DEFINE_PUT_WITH_SIGNAL, _nbi_between_aligned, copyBetweenAligned)

void triton_dist_signal_op(uint64_t *sigAddr, uint64_t value, int32_t sigOp, int32_t pe) {
  signal(onPe(sigAddr, pe), value, sigOp);
}

uint64_t triton_dist_signal_fetch(uint64_t *sigAddr) { return loadRelaxed(global(sigAddr)); }

uint64_t triton_dist_signal_wait_until(uint64_t *sigAddr, int32_t cmp, uint64_t value, int32_t site) {
  return waitUntil(global(sigAddr), cmp, value, site);
}

} // extern "C"
