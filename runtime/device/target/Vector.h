//===- Vector.h - The widest access of a thread -----------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_VECTOR_H
#define TRITON_DIST_DEVICE_TARGET_VECTOR_H

namespace triton_dist::device {

using Vector = uint32_t __attribute__((ext_vector_type(4)));

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_VECTOR_H
