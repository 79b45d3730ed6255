//===- Copy.cpp - putmem, getmem --------------------------------------------===//
//
// Stores have left and loads have returned when a routine does, so that the
// non-blocking ones are the same.
//
//===----------------------------------------------------------------------===//

#include "Copy.h"
#include "Scope.h"
#include "World.h"

using namespace triton_dist::device;

#define DEFINE_COPIES(SCOPE, SUFFIX, NBI)                                                                              \
  void triton_dist_putmem##NBI##SUFFIX(char *dst, const char *src, size_t nbytes, int32_t pe) {                        \
    copy<SCOPE>(bytesOnPe(dst, pe), bytesHere(src), nbytes);                                                           \
  }                                                                                                                    \
  void triton_dist_getmem##NBI##SUFFIX(char *dst, const char *src, size_t nbytes, int32_t pe) {                        \
    copy<SCOPE>(bytesHere(dst), bytesOnPe(src, pe), nbytes);                                                           \
  }

extern "C" {
TRITON_DIST_FOR_SCOPES(DEFINE_COPIES, )
TRITON_DIST_FOR_SCOPES(DEFINE_COPIES, _nbi)
} // extern "C"
