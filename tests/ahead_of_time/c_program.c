/* Loads and launches ring.cubin by triton_dist_kernel.h, with a driver that is none: what it is told is printed. */
#include "ring.h"

static size_t state_bytes = 992;
static int capability = 90, blocks = 1, status;

CUresult cuCtxGetDevice(CUdevice *device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice device) {
  *value = what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? capability / 10
           : what == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? capability % 10
                                                                  : 4 + (int)device;
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *data) {
  *module = (CUmodule)1;
  return memcmp(data, "\177ELF", 4) ? CUDA_ERROR_INVALID_IMAGE : (CUresult)status;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)module;
  return strcmp(name, "ring") ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what, int value) {
  return function && what && value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *found, CUfunction function, int threads, size_t shared) {
  *found = blocks;
  return function && threads == 128 && shared == 16 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  *address = 0x100, *bytes = state_bytes;
  return module && !strcmp(name, "triton_dist_p2p_state") ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuMemcpyHtoD(CUdeviceptr address, const void *data, size_t bytes) {
  printf("state %zu ", bytes + 0 * (size_t)address);
  for (size_t i = 0; i < bytes; ++i)
    printf("%02x", ((const unsigned char *)data)[i]);
  printf("\n");
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                        unsigned threads_z, unsigned shared, CUstream stream, void **a, void **extra) {
  if (!function || stream || extra)
    return CUDA_ERROR_INVALID_VALUE;
  printf("launch %u %u %u %u %u %u %u: %llx %llx %d %g %p %p\n", x, y, z, threads, threads_y, threads_z, shared,
         *(CUdeviceptr *)a[0], *(CUdeviceptr *)a[1], *(int32_t *)a[2], *(float *)a[3], *(void **)a[4], *(void **)a[5]);
  return CUDA_SUCCESS;
}

static int ends(int failed, const char *error) { return puts(failed ? error : "fine"), 0; }

int main(int count, char **words) {
  char error[200] = "";
  struct triton_dist_loaded loaded, collective;
  struct triton_dist_kernel other = ring_kernel;
  int64_t distances[] = {-4096, 0};
  struct triton_dist_world world = {1, 2, distances, 0x7000, NULL};
  const char *path = words[1];
  struct triton_dist_world w;
  (void)count;
#define LOAD(kernel, world) ends(triton_dist_load(kernel, path, world, &loaded, error, sizeof error), error)
  LOAD(&ring_kernel, &world);
  ends(ring_launch(&loaded, 3, 2, 1, NULL, 0xabc0, 0xdef8, -7, 0.5f, error, sizeof error), error);
  ends(ring_launch(&loaded, 0, 1, 1, NULL, 0, 0, 0, 0, error, sizeof error), error);
  ends(triton_dist_launch(&loaded, 1, 1, 1, NULL, NULL, 3, error, sizeof error), error);
  other.is_collective = 1, collective = loaded, collective.kernel = &other;
  ends(ring_launch(&collective, 5, 1, 1, NULL, 0, 0, 0, 0, error, sizeof error), error);
  w = world, w.pe = 2, LOAD(&ring_kernel, &w);
  w = world, w.sync = 0, LOAD(&ring_kernel, &w);
  distances[0] = 100, LOAD(&ring_kernel, &world), distances[0] = -4096;
  w = world, w.n_pes = 73, LOAD(&ring_kernel, &w);
  other = ring_kernel, other.format = 2, LOAD(&other, &world);
  other = ring_kernel, other.file_bytes += 1, LOAD(&other, &world);
  other = ring_kernel, other.file_fnv1a += 1, LOAD(&other, &world);
  other = ring_kernel, other.state_bytes = 100, LOAD(&other, &world);
  other = ring_kernel, other.nvshmem_symbol = "x", LOAD(&other, &world);
  state_bytes = 900, LOAD(&ring_kernel, &world), state_bytes = 992;
  capability = 80, LOAD(&ring_kernel, &world), capability = 90;
  status = CUDA_ERROR_NO_BINARY_FOR_GPU, LOAD(&ring_kernel, &world), status = 0;
  path = "nothing", LOAD(&ring_kernel, &world);
  ends(ring_launch(&loaded, 1, 1, 1, NULL, 0, 0, 0, 0, error, sizeof error), error);
  return 0;
}
