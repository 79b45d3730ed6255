//===- Multiply.h - A GEMM by cuBLAS ----------------------------*- C++ -*-===//
//
// All of it but the stream and the addresses of its matrices, as
// triton_dist/cublas.py packs it. It links no CUDA: Python passes cuBLAS'
// functions by address.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_MULTIPLY_H
#define TRITON_DIST_NATIVE_CALLS_MULTIPLY_H

#include "Launch.h"

#include <cstddef>
#include <cstdint>

namespace triton_dist {

/// The names are cuBLAS', whose matrices lie by columns: its first operand is b, so m is the number of columns of c.
struct Gemm {
  int (*setStream)(void *handle, void *stream);
  int (*setWorkspace)(void *handle, void *workspace, size_t bytes);
  int (*gemmEx)(void *handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a, int aType,
                int lda, const void *b, int bType, int ldb, const void *beta, void *c, int cType, int ldc,
                int computeType, int algorithm);
  const char *(*statusName)(int status);
  void *handle, *workspace;
  size_t workspaceBytes;
  int32_t transa, m, n, k, type, lda, ldb, ldc;

  /// c = a · b by rows. Python's lock is free meanwhile, as in Launch::run: the driver waits where a stream's queue is
  /// full. False with an exception set.
  bool run(void *stream, Address a, Address b, Address c) const;
};
static_assert(sizeof(Gemm) == 88, "as triton_dist/cublas.py packs it");

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_MULTIPLY_H
