//===- Streams.cpp - Work of CUDA streams, a call at a time ---------------===//
//
// What the host gives to a stream beside kernels, in one call from Python: the
// operations lie in memory as triton_dist/stream_operations.py packs them.
//
// Every function returns a CUresult. After an operation that fails, the later
// ones are left out.
//
//===----------------------------------------------------------------------===//

#include "Failure.h"

#include <cstddef>
#include <cstdint>

namespace {

using Stream = void *;
using Event = void *;
using Address = uint64_t;

constexpr int Success = 0, NotFound = 500;
constexpr int MemoryOfDevice = 2; // CU_MEMORYTYPE_DEVICE
constexpr unsigned WaitUntilEqual = 1;

/// CUDA_MEMCPY2D of cuda.h.
struct CopyOfRows {
  size_t sourceX, sourceY;
  int sourceKind;
  const void *sourceHost;
  Address source;
  void *sourceArray;
  size_t sourcePitch;
  size_t toX, toY;
  int toKind;
  void *toHost;
  Address to;
  void *toArray;
  size_t toPitch;
  size_t width, height;
};
static_assert(sizeof(CopyOfRows) == 128, "as cuda.h has it on 64-bit hosts");

/// The driver's functions, of the versions that cuda.h of CUDA 12 and 13 names. Python finds them: to look them up here
/// would take glibc 2.34.
struct Driver {
  int (*waitValue)(Stream, Address, uint32_t, unsigned);
  int (*writeValue)(Stream, Address, uint32_t, unsigned);
  int (*copy)(Address, Address, size_t, Stream);
  int (*copyRows)(const CopyOfRows *, Stream);
  int (*record)(Event, Stream);
  int (*waitEvent)(Stream, Event, unsigned);
};
static_assert(sizeof(Driver) == 48, "as Python passes it");

/// Take: wait until the word at `to` is 1, and write 0 to it. Give: write 1 to that word. Copy: `width` bytes.
/// CopyRows: `height` rows of `width` bytes.
enum class Kind : int32_t { Take, Give, Copy, CopyRows };

/// One operation. `source` is relative to the call's address number `base`, or absolute where `base` is negative.
struct Operation {
  Kind kind;
  int32_t base;
  Address to, source;
  uint64_t width, height, toPitch, sourcePitch;
};
static_assert(sizeof(Operation) == 56, "as Python packs it");

int put(const Driver &cuda, const Operation &operation, Stream stream, const Address *bases) {
  Address source = operation.source + (operation.base < 0 ? 0 : bases[operation.base]);
  switch (operation.kind) {
  case Kind::Take:
    if (int status = cuda.waitValue(stream, operation.to, 1, WaitUntilEqual))
      return status;
    return cuda.writeValue(stream, operation.to, 0, 0);
  case Kind::Give:
    return cuda.writeValue(stream, operation.to, 1, 0);
  case Kind::Copy:
    return cuda.copy(operation.to, source, operation.width, stream);
  case Kind::CopyRows:
    CopyOfRows rows{};
    rows.sourceKind = rows.toKind = MemoryOfDevice;
    rows.source = source;
    rows.to = operation.to;
    rows.sourcePitch = operation.sourcePitch;
    rows.toPitch = operation.toPitch;
    rows.width = operation.width;
    rows.height = operation.height;
    return cuda.copyRows(&rows, stream);
  }
  return NotFound;
}

} // namespace

/// Gives `stream` so many operations, in order. `first` and `second` are the call's addresses 0 and 1.
TRITON_DIST_C int triton_dist_stream_put(const Driver *cuda, const Operation *operations, int64_t n, Stream stream,
                                         Address first, Address second) {
  const Address bases[] = {first, second};
  int status = Success;
  for (int64_t i = 0; i < n && status == Success; ++i)
    status = put(*cuda, operations[i], stream, bases);
  return status;
}

/// Lets what `later` gets from now on begin after what `earlier` has got before. `event` may be used again at once.
TRITON_DIST_C int triton_dist_stream_order(const Driver *cuda, Stream earlier, Stream later, Event event) {
  if (int status = cuda->record(event, earlier))
    return status;
  return cuda->waitEvent(later, event, 0);
}
