/* Loads and launches kernels that triton-dist-compile has compiled. C99; needs CUDA's driver and nothing else.

   Include NAME.h, which includes this file. Every function returns 0, or -1 with a message in `error`. A world is what
   the program has made: PE numbers, and symmetric memory by NVSHMEM, or by other means that map each PE's heap here. */
#ifndef TRITON_DIST_KERNEL_H
#define TRITON_DIST_KERNEL_H
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define TRITON_DIST_KERNEL_FORMAT 1

struct triton_dist_kernel { /* constants of NAME.h */
  int format;
  const char *name;
  int compute_capability; /* 90 */
  size_t file_bytes;
  uint64_t file_fnv1a;
  int num_warps, shared, is_collective, num_arguments, unused_pointers;
  const char *nvshmem_symbol, *p2p_symbol; /* null: the kernel has no such state */
  size_t state_bytes, sync_bytes, pe_offset, n_pes_offset, sync_offset, distance_offset, teams_offset;
  size_t team_bytes, team_start_offset, team_stride_offset, team_size_offset;
  int max_pes;
};
struct triton_dist_world {
  int pe, n_pes;
  const int64_t *distance;               /* p2p: n_pes times bytes from this PE's heap to that PE's, as mapped here */
  CUdeviceptr sync;                      /* p2p: sync_bytes of symmetric memory, zero on all PEs before any launch */
  int (*cumodule_init)(CUmodule module); /* nvshmem: nvshmemx_cumodule_init */
};
struct triton_dist_loaded {
  const struct triton_dist_kernel *kernel;
  CUmodule module;
  CUfunction function;
  uint64_t resident; /* programs that the GPU runs at a time, of a kernel with a collective */
};

#define TRITON_DIST_REQUIRE(condition, ...)                                                                            \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      snprintf(error, error_bytes, __VA_ARGS__);                                                                       \
      return -1;                                                                                                       \
    }                                                                                                                  \
  } while (0)
#define TRITON_DIST_CALL(call)                                                                                         \
  do {                                                                                                                 \
    CUresult status_ = (call);                                                                                         \
    TRITON_DIST_REQUIRE(status_ == CUDA_SUCCESS, "kernel %s: CUDA error %d of " #call, k->name, (int)status_);         \
  } while (0)

/* Fills the state of our own device library. */
static inline int triton_dist_fill_p2p(const struct triton_dist_kernel *k, CUmodule module,
                                       const struct triton_dist_world *w, char *error, size_t error_bytes) {
  unsigned char state[4096] = {0};
  int32_t team[3] = {0, 1, w->n_pes};
  const size_t team_at[3] = {k->team_start_offset, k->team_stride_offset, k->team_size_offset};
  CUdeviceptr address;
  size_t bytes;
  int i;
  TRITON_DIST_REQUIRE(w->n_pes <= k->max_pes, "kernel %s: p2p connects up to %d PEs, not %d", k->name, k->max_pes,
                      w->n_pes);
  TRITON_DIST_REQUIRE(w->distance && w->sync && w->sync % 16 == 0, "kernel %s: the world has no distances or no sync",
                      k->name);
  TRITON_DIST_REQUIRE(k->state_bytes <= sizeof state && k->distance_offset + 8 * (size_t)w->n_pes <= k->teams_offset &&
                          k->teams_offset + k->team_bytes <= k->state_bytes,
                      "kernel %s: a wrong layout of its state", k->name);
  for (i = 0; i < w->n_pes; ++i)
    TRITON_DIST_REQUIRE(w->distance[i] % 4096 == 0 && (i != w->pe || w->distance[i] == 0),
                        "kernel %s: the distance to PE %d is %lld", k->name, i, (long long)w->distance[i]);
  memcpy(state + k->pe_offset, &w->pe, 4);
  memcpy(state + k->n_pes_offset, &w->n_pes, 4);
  memcpy(state + k->sync_offset, &w->sync, 8);
  memcpy(state + k->distance_offset, w->distance, 8 * (size_t)w->n_pes);
  for (i = 0; i < 3; ++i)
    memcpy(state + k->teams_offset + team_at[i], &team[i], 4);
  TRITON_DIST_CALL(cuModuleGetGlobal(&address, &bytes, module, k->p2p_symbol));
  TRITON_DIST_REQUIRE(bytes == k->state_bytes, "kernel %s: its state has %zu bytes, not %zu", k->name, bytes,
                      k->state_bytes);
  TRITON_DIST_CALL(cuMemcpyHtoD(address, state, bytes));
  return 0;
}

/* Loads the kernel from a file into the current context, and tells it of the world. */
static inline int triton_dist_load(const struct triton_dist_kernel *k, const char *path,
                                   const struct triton_dist_world *w, struct triton_dist_loaded *loaded, char *error,
                                   size_t error_bytes) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  unsigned char *data;
  size_t bytes, i;
  FILE *file;
  CUdevice device;
  CUresult status;
  int major, minor, processors, blocks;
  memset(loaded, 0, sizeof *loaded);
  TRITON_DIST_REQUIRE(k->format == TRITON_DIST_KERNEL_FORMAT, "format %d, not %d", k->format,
                      TRITON_DIST_KERNEL_FORMAT);
  TRITON_DIST_REQUIRE(0 <= w->pe && w->pe < w->n_pes, "PE %d of %d", w->pe, w->n_pes);
  TRITON_DIST_REQUIRE(!k->nvshmem_symbol || w->cumodule_init, "kernel %s needs cumodule_init: it uses NVSHMEM",
                      k->name);
  TRITON_DIST_CALL(cuCtxGetDevice(&device));
  TRITON_DIST_CALL(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
  TRITON_DIST_CALL(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
  TRITON_DIST_CALL(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  TRITON_DIST_REQUIRE(10 * major + minor == k->compute_capability, "kernel %s is for compute capability %d, not %d",
                      k->name, k->compute_capability, 10 * major + minor);
  TRITON_DIST_REQUIRE((file = fopen(path, "rb")), "%s cannot be opened", path);
  data = malloc(k->file_bytes + 1);
  bytes = data ? fread(data, 1, k->file_bytes + 1, file) : 0;
  fclose(file);
  for (i = 0; i < bytes; ++i)
    hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
  if (bytes != k->file_bytes || hash != k->file_fnv1a) {
    free(data);
    TRITON_DIST_REQUIRE(0, "%s is not the file of kernel %s: %zu bytes, not %zu, or another content", path, k->name,
                        bytes, k->file_bytes);
  }
  status = cuModuleLoadData(&loaded->module, data);
  free(data);
  TRITON_DIST_REQUIRE(status == CUDA_SUCCESS, "%s: CUDA error %d of cuModuleLoadData", path, (int)status);
  TRITON_DIST_CALL(cuModuleGetFunction(&loaded->function, loaded->module, k->name));
  if (k->shared > 48 * 1024)
    TRITON_DIST_CALL(cuFuncSetAttribute(loaded->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k->shared));
  TRITON_DIST_CALL(
      cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, loaded->function, 32 * k->num_warps, k->shared));
  loaded->resident = (uint64_t)blocks * (uint64_t)processors;
  if (k->nvshmem_symbol)
    TRITON_DIST_REQUIRE(w->cumodule_init(loaded->module) == 0, "kernel %s: cumodule_init failed", k->name);
  if (k->p2p_symbol && triton_dist_fill_p2p(k, loaded->module, w, error, error_bytes))
    return -1;
  loaded->kernel = k;
  return 0;
}

/* Launches a loaded kernel. `arguments` are the addresses of the kernel's arguments. */
static inline int triton_dist_launch(const struct triton_dist_loaded *loaded, unsigned x, unsigned y, unsigned z,
                                     CUstream stream, void **arguments, int count, char *error, size_t error_bytes) {
  const struct triton_dist_kernel *k = loaded->kernel;
  void *all[1024 + 8], *null = NULL;
  int i;
  TRITON_DIST_REQUIRE(k, "no kernel is loaded");
  TRITON_DIST_REQUIRE(x && y && z && y < 65536 && z < 65536, "kernel %s: grid (%u, %u, %u)", k->name, x, y, z);
  TRITON_DIST_REQUIRE(!k->is_collective || (uint64_t)x * y * z <= loaded->resident,
                      "kernel %s has a collective and is launched with %llu programs, but the GPU runs %llu at a time",
                      k->name, (unsigned long long)x * y * z, (unsigned long long)loaded->resident);
  TRITON_DIST_REQUIRE(count == k->num_arguments && count <= 1024 && 0 <= k->unused_pointers && k->unused_pointers <= 8,
                      "kernel %s takes %d arguments, not %d", k->name, k->num_arguments, count);
  for (i = 0; i < count; ++i)
    all[i] = arguments[i];
  for (i = 0; i < k->unused_pointers; ++i)
    all[count + i] = &null;
  TRITON_DIST_CALL(cuLaunchKernel(loaded->function, x, y, z, 32 * k->num_warps, 1, 1, k->shared, stream, all, NULL));
  return 0;
}
#endif
