//===- Streams.h - The streams that a call's work is put on -----*- C++ -*-===//
//
// The current one and, while it is forked, a side stream. What is put on them
// beside launches goes through the functions of runtime/c/Streams.cpp, which
// Python passes by address.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_STREAMS_H
#define TRITON_DIST_NATIVE_CALLS_STREAMS_H

#include "Launch.h"
#include "Object.h"

#include <vector>

namespace triton_dist {

using Stream = void *;

/// What operations on streams call, and a communicator's side stream. All is null for calls that have none.
struct StreamFunctions {
  int (*put)(const void *cuda, const void *operations, int64_t n, Stream, Address first, Address second) = nullptr;
  int (*order)(const void *cuda, Stream earlier, Stream later, void *event) = nullptr;
  const void *cuda = nullptr; // the driver's functions, for both
  Object failed;              // a function that raises the error of a status
  Stream side = nullptr;
  void *event = nullptr; // that orders the side stream
};

/// A call's streams. Its functions return false with an exception set.
class Streams {
public:
  Streams(const StreamFunctions &functions, Stream current) : functions(functions), current(current) {}
  Streams(const Streams &) = delete;
  /// Joins, if the call ends in an error.
  ~Streams();

  /// What the side stream gets from now on begins after what the current one has got before.
  bool fork();
  /// The other way round.
  bool join();
  /// `n` operations as runtime/c/Streams.cpp has them, of these addresses.
  bool put(bool onSide, const std::vector<uint64_t> &operations, int64_t n, Address first, Address second) const;

  Stream of(bool onSide) const { return onSide ? functions.side : current; }

private:
  int order(Stream earlier, Stream later) const;
  bool succeed(int status) const;

  const StreamFunctions &functions;
  Stream current;
  bool isForked = false;
};

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_STREAMS_H
