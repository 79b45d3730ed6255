//===- Multiply.cpp - A GEMM by cuBLAS ------------------------------------===//

#include "Multiply.h"

#include "Object.h"

using namespace triton_dist;

constexpr int Success = 0;         // CUBLAS_STATUS_SUCCESS
constexpr int AsItIs = 0;          // CUBLAS_OP_N
constexpr int Float32Sums = 68;    // CUBLAS_COMPUTE_32F
constexpr int TensorCores = 99;    // CUBLAS_GEMM_DEFAULT_TENSOR_OP
constexpr float One = 1, Zero = 0; // alpha and beta, which cuBLAS reads on the host

static void *pointer(Address address) { return reinterpret_cast<void *>(address); }

bool Gemm::run(void *stream, Address a, Address b, Address c) const {
  int status;
  const char *function;
  Py_BEGIN_ALLOW_THREADS;
  // A new stream takes cuBLAS' own workspace, so this comes first.
  function = "cublasSetStream_v2";
  status = setStream(handle, stream);
  if (status == Success) {
    function = "cublasSetWorkspace_v2";
    status = setWorkspace(handle, workspace, workspaceBytes);
  }
  if (status == Success) {
    function = "cublasGemmEx";
    status = gemmEx(handle, transa, AsItIs, m, n, k, &One, pointer(b), type, lda, pointer(a), type, ldb, &Zero,
                    pointer(c), type, ldc, Float32Sums, TensorCores);
  }
  Py_END_ALLOW_THREADS;
  if (status == Success)
    return true;
  // In the words of PyTorch.
  PyErr_Format(PyExc_RuntimeError, "CUDA error: %s when calling `%s`", statusName(status), function);
  return false;
}
