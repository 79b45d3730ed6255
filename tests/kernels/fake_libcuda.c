// Stands for the CUDA driver where there is no GPU: every call succeeds, and launches are counted.

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static int64_t launches;
static char state[1 << 20]; // of every module's global

int64_t fake_launches(void) { return launches; }

int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra) {
  launches++;
  return 0;
}

int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer) {
  return 0; // data holds the pointer already
}

int cuModuleGetGlobal_v2(uint64_t *address, size_t *size, void *module, const char *name) {
  if (strcmp(name, "nvshmemi_device_state_d") == 0)
    return 500; // CUDA_ERROR_NOT_FOUND
  *address = (uint64_t)state;
  *size = sizeof state;
  return 0;
}

int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { return 0; }

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
  *blocks = 8;
  return 0;
}

int cuModuleLoadData(void **module, const void *image) {
  static int64_t modules;
  *module = (void *)++modules;
  return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = (char *)module + 1000;
  return 0;
}

int cuFuncGetAttribute(int *value, int attribute, void *function) {
  *value = attribute == 0 ? 1024 : 0; // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 97 ? 232448 : attribute == 16 ? 132 : 64; // shared memory of a program, multiprocessors
  return 0;
}

int cuCtxGetDevice(int *device) {
  *device = 0;
  return 0;
}

int cuCtxGetCurrent(void **context) {
  *context = state;
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

int cuGetErrorString(int error, const char **text) {
  *text = "an error of the fake driver";
  return 0;
}

int cuStreamIsCapturing(void *stream, int *status) {
  *status = 0; // CU_STREAM_CAPTURE_STATUS_NONE
  return 0;
}

int cuModuleUnload(void *module) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return cuCtxGetCurrent(context); }
int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuFuncSetCacheConfig(void *function, int config) { return 0; }
int cuCtxGetLimit(size_t *value, int limit) { return 0; }
int cuCtxSetLimit(int limit, size_t value) { return 0; }
int cuOccupancyMaxActiveClusters(int *clusters, void *function, const void *config) { return 0; }
int cuTensorMapEncodeTiled(void) { return 0; }
int cuTensorMapEncodeIm2col(void) { return 0; }
