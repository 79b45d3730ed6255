// Stands for cuBLAS where there is no GPU: GEMMs of 16-bit floats are computed on the host when they are called, and
// each call is reported.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { Float16 = 2, Bfloat16 = 14, Compute32F = 68, DefaultTensorOp = 99 };
enum { Success = 0, NotInitialized = 1, AllocFailed = 3, InvalidValue = 7, NotSupported = 15 };

typedef struct {
  void *stream, *workspace;
  uint64_t bytes;
} Handle;

// What was called: its name and its numbers.
static void (*report)(const char *function, const uint64_t *numbers, int n);

void fake_report_cublas_to(void (*to)(const char *, const uint64_t *, int)) { report = to; }

static const char *failing = "";
static int status_of_failing;

// The function of this name returns a status from now on.
void fake_fail_cublas(const char *function, int status) {
  failing = function;
  status_of_failing = status;
}

// While it is not 0, a GEMM waits, for ten seconds at most.
static volatile int full;

void fake_fill_cublas(int fills) { full = fills; }

static int reported(const char *function, const uint64_t *numbers, int n) {
  if (strcmp(function, failing) == 0)
    return status_of_failing;
  if (report)
    report(function, numbers, n);
  return Success;
}

int cublasCreate_v2(Handle **handle) {
  Handle *made = calloc(1, sizeof *made);
  int status = reported("create", (uint64_t[]){(uint64_t)made}, 1);
  *handle = made;
  return status;
}

int cublasDestroy_v2(Handle *handle) { return reported("destroy", (uint64_t[]){(uint64_t)handle}, 1); }

// As cuBLAS, which takes a workspace of its own for a new stream.
int cublasSetStream_v2(Handle *handle, void *stream) {
  *handle = (Handle){stream};
  return reported("stream", (uint64_t[]){(uint64_t)stream}, 1);
}

int cublasSetWorkspace_v2(Handle *handle, void *workspace, size_t bytes) {
  handle->workspace = workspace;
  handle->bytes = bytes;
  return reported("workspace", (uint64_t[]){(uint64_t)workspace, bytes}, 2);
}

static float wide(const void *matrix, int type, int64_t at) {
  if (type == Float16)
    return ((const _Float16 *)matrix)[at];
  uint32_t bits = (uint32_t)((const uint16_t *)matrix)[at] << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void store(void *matrix, int type, int64_t at, float value) {
  if (type == Float16) {
    ((_Float16 *)matrix)[at] = value;
    return;
  }
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  ((uint16_t *)matrix)[at] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

int cublasGemmEx(Handle *handle, int transa, int transb, int m, int n, int k, const float *alpha, const void *a,
                 int a_type, int lda, const void *b, int b_type, int ldb, const float *beta, void *c, int c_type,
                 int ldc, int compute, int algorithm) {
  for (int i = 0; full && i < 10000; i++)
    usleep(1000);
  if (a_type != b_type || a_type != c_type || (a_type != Float16 && a_type != Bfloat16) || compute != Compute32F ||
      algorithm != DefaultTensorOp || transb != 0)
    return NotSupported;
  if (m <= 0 || n <= 0 || k <= 0 || lda < (transa ? k : m) || ldb < k || ldc < m || *alpha != 1 || *beta != 0)
    return InvalidValue;
  uint64_t numbers[] = {(uint64_t)handle,
                        (uint64_t)handle->stream,
                        (uint64_t)handle->workspace,
                        handle->bytes,
                        transa,
                        m,
                        n,
                        k,
                        (uint64_t)a,
                        (uint64_t)b,
                        (uint64_t)c,
                        a_type,
                        lda,
                        ldb,
                        ldc};
  int status = reported("gemm", numbers, sizeof numbers / sizeof *numbers);
  for (int64_t j = 0; status == Success && j < n; j++)
    for (int64_t i = 0; i < m; i++) {
      float sum = 0;
      for (int64_t l = 0; l < k; l++)
        sum += wide(a, a_type, transa ? i * lda + l : l * lda + i) * wide(b, b_type, j * ldb + l);
      store(c, c_type, j * ldc + i, sum);
    }
  return status;
}

const char *cublasGetStatusName(int status) {
  return status == NotInitialized ? "CUBLAS_STATUS_NOT_INITIALIZED"
         : status == AllocFailed  ? "CUBLAS_STATUS_ALLOC_FAILED"
         : status == InvalidValue ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == NotSupported ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                  : "CUBLAS_STATUS_EXECUTION_FAILED";
}
