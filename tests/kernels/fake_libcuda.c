// Stands for the CUDA driver where there is no GPU: every call succeeds, unless a test says that one fails, and
// launches are counted. Work of streams beside launches is reported.

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static int64_t launches;
static char state[1 << 20]; // of every module's global

int64_t fake_launches(void) { return launches; }

// Who is told of each launch, with what the driver is given.
static void (*report_launch)(const void *config, void *function, void **params);

void fake_report_launches_to(void (*to)(const void *, void *, void **)) { report_launch = to; }

static int status_of_launches, launches_before;

// Launches fail with this status from now on.
void fake_fail_launches(int status) { status_of_launches = status; }

// That is, after so many more that do not.
void fake_launch_before(int n) { launches_before = n; }

static int wait_while_full(void);

int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra) {
  launches++;
  if ((status_of_launches != 0 && launches_before-- <= 0) || wait_while_full())
    return status_of_launches;
  if (report_launch)
    report_launch(config, function, params);
  return 0;
}

static int64_t pointer_queries;

int64_t fake_pointer_queries(void) { return pointer_queries; }

static uint64_t inaccessible;

// The GPU cannot use this address.
void fake_refuse_pointer(uint64_t address) { inaccessible = address; }

int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer) {
  pointer_queries++;
  return pointer == inaccessible && attribute == 3; // data holds the pointer already; 1 is CUDA_ERROR_INVALID_VALUE
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
  // Shared memory of a program, more than a Hopper GPU has: without the passes that are left out some kernels take more.
  *value = attribute == 97 ? 1 << 20 : attribute == 16 ? 132 : 64; // 16: multiprocessors
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

// What a stream gets: the name of the operation, and what it is given, in the order of `numbers`.
static void (*report)(void *stream, const char *operation, const uint64_t *numbers, int n);
static const char *failing = "";

void fake_report_to(void (*to)(void *, const char *, const uint64_t *, int)) { report = to; }

// The operation of this name fails from now on; none where it is empty.
void fake_fail(const char *operation) { failing = operation; }

// While it is not 0, a stream's queue is full: what the stream gets waits, for ten seconds at most.
static volatile int full;

void fake_fill(int fills) { full = fills; }

static int wait_while_full(void) {
  for (int i = 0; full; i++, usleep(1000))
    if (i == 10000)
      return 1;
  return 0;
}

static int reported(void *stream, const char *operation, const uint64_t *numbers, int n) {
  if (strcmp(operation, failing) == 0 || wait_while_full())
    return 1; // CUDA_ERROR_INVALID_VALUE
  if (report)
    report(stream, operation, numbers, n);
  return 0;
}

int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags) {
  return reported(stream, flags == 1 ? "wait" : "another wait", (uint64_t[]){address, value}, 2);
}

int cuStreamWriteValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags) {
  return reported(stream, flags == 0 ? "write" : "another write", (uint64_t[]){address, value}, 2);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t source, size_t size, void *stream) {
  return reported(stream, "copy", (uint64_t[]){to, source, size}, 3);
}

// CUDA_MEMCPY2D by its words of 8 bytes, as cuda.h has it.
int cuMemcpy2DAsync_v2(const uint64_t *rows, void *stream) {
  const int unused[] = {0, 1, 3, 5, 7, 8, 10, 12};
  for (int i = 0; i < 8; i++)
    if (rows[unused[i]] != 0)
      return 1;
  if ((int)rows[2] != 2 || (int)rows[9] != 2) // CU_MEMORYTYPE_DEVICE
    return 1;
  return reported(stream, "copy rows", (uint64_t[]){rows[11], rows[4], rows[14], rows[15], rows[13], rows[6]}, 6);
}

// An event is where the stream's handle is written that recorded it last.
int cuEventRecord(void **event, void *stream) {
  *event = stream;
  return reported(stream, "record", NULL, 0);
}

int cuStreamWaitEvent(void *stream, void **event, unsigned flags) {
  return reported(stream, "wait for", (uint64_t[]){(uint64_t)*event}, 1);
}

int cuModuleUnload(void *module) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return cuCtxGetCurrent(context); }
int cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
int cuFuncSetCacheConfig(void *function, int config) { return 0; }
int cuCtxGetLimit(size_t *value, int limit) { return 0; }
int cuCtxSetLimit(int limit, size_t value) { return 0; }
int cuOccupancyMaxActiveClusters(int *clusters, void *function, const void *config) { return 0; }

// A descriptor holds its address, the type, the rank, and what it is made of.
int cuTensorMapEncodeTiled(uint64_t *map, int type, uint32_t rank, void *address, const uint64_t *shape,
                           const uint64_t *strides, const uint32_t *block, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill) {
  memset(map, 0, 128);
  map[0] = (uint64_t)address;
  map[2] = (uint64_t)type << 32 | rank << 16 | swizzle << 8 | fill;
  for (uint32_t i = 0; i < rank; i++) {
    map[3 + i] = shape[i];
    map[8 + i] = block[i];
    map[13] = map[13] * 31 + (i + 1 < rank ? strides[i] : 0);
  }
  return 0;
}

int cuTensorMapEncodeIm2col(void) { return 0; }
