/* triton_dist_kernel.h in a library, which worker_ahead_of_time.py calls as a program of C would. */
#include "ring.h"

static struct triton_dist_loaded loaded;

int load(const char *path, int pe, int n_pes, const int64_t *distance, uint64_t sync, char *error, size_t bytes) {
  struct triton_dist_world world = {pe, n_pes, distance, sync, NULL};
  return triton_dist_load(&ring_kernel, path, &world, &loaded, error, bytes);
}

int launch(uint64_t out, uint64_t signal, int32_t n, float scale, void *stream, char *error, size_t bytes) {
  return ring_launch(&loaded, 1, 1, 1, (CUstream)stream, out, signal, n, scale, error, bytes);
}
