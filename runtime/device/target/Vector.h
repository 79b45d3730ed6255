//===- Vector.h - The widest access of a thread -----------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_VECTOR_H
#define TRITON_DIST_DEVICE_TARGET_VECTOR_H

#include <stdint.h>

namespace triton_dist::device {

using Vector = uint32_t __attribute__((ext_vector_type(4)));

/// How many loads a thread has under way. A load from a GPU's memory takes some 700 ns, so that the bytes under way
/// decide over the bandwidth of a program.
constexpr uint32_t kInFlight = 8;

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_VECTOR_H
