//===- Copy.cpp - putmem, getmem --------------------------------------------===//
//
// Stores have left and loads have returned when a routine does, so that the
// non-blocking ones are the same. The lowering asks for the aligned ones where it
// knows that a copy is of whole vectors, and for those between aligned addresses
// where it knows this of the addresses alone.
//
//===----------------------------------------------------------------------===//

#include "Copy.h"
#include "Scope.h"
#include "World.h"

using namespace triton_dist::device;

#define DEFINE_COPIES(SCOPE, SUFFIX, KIND, COPY)                                                                       \
  void triton_dist_putmem##KIND##SUFFIX(char *dst, const char *src, size_t nbytes, int32_t pe) {                       \
    COPY<SCOPE>(bytesOnPe(dst, pe), bytesHere(src), nbytes);                                                           \
  }                                                                                                                    \
  void triton_dist_getmem##KIND##SUFFIX(char *dst, const char *src, size_t nbytes, int32_t pe) {                       \
    COPY<SCOPE>(bytesHere(dst), bytesOnPe(src, pe), nbytes);                                                           \
  }

extern "C" {
TRITON_DIST_FOR_SCOPES(DEFINE_COPIES, , copy)
TRITON_DIST_FOR_SCOPES(DEFINE_COPIES, _nbi, copy)
TRITON_DIST_FOR_SCOPES(DEFINE_COPIES, _aligned, copyAligned)
TRITON_DIST_FOR_SCOPES(DEFINE_COPIES, _nbi_aligned, copyAligned)
TRITON_DIST_FOR_SCOPES(DEFINE_COPIES, _between_aligned, copyBetweenAligned)
TRITON_DIST_FOR_SCOPES(DEFINE_COPIES, _nbi_between_aligned, copyBetweenAligned)
} // extern "C"
