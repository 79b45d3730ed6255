//===- Failure.h - C++ exceptions as results of C functions -----*- C++ -*-===//
//
// A function of the C interface that can fail returns a Failure, and leaves
// what went wrong for triton_dist_failure() of the same thread.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_RUNTIME_C_FAILURE_H
#define TRITON_DIST_RUNTIME_C_FAILURE_H

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#define TRITON_DIST_C extern "C" __attribute__((visibility("default")))

namespace triton_dist {

/// The numbers that triton_dist/cpu/runtime/library.py makes exceptions of.
enum class Failure : int { None, Runtime, Index, Memory };

void noteFailure(const char *what);

/// Calls `action`; what it throws becomes a Failure.
template <typename Action> int failureOf(Action action) noexcept {
  try {
    action();
    return static_cast<int>(Failure::None);
  } catch (const std::out_of_range &error) {
    noteFailure(error.what());
    return static_cast<int>(Failure::Index);
  } catch (const std::bad_alloc &) {
    noteFailure("out of memory");
    return static_cast<int>(Failure::Memory);
  } catch (const std::exception &error) {
    noteFailure(error.what());
    return static_cast<int>(Failure::Runtime);
  }
}

} // namespace triton_dist

#endif // TRITON_DIST_RUNTIME_C_FAILURE_H
