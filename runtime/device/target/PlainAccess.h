//===- PlainAccess.h - Conditional accesses where an `if` will do *- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TARGET_PLAINACCESS_H
#define TRITON_DIST_DEVICE_TARGET_PLAINACCESS_H

namespace triton_dist::device {

template <typename T> void loadIf(bool condition, T &element, const TRITON_DIST_GLOBAL T *at) {
  element = T();
  if (condition)
    element = *at;
}

template <typename T> void storeIf(bool condition, TRITON_DIST_GLOBAL T *at, T element) {
  if (condition)
    *at = element;
}

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TARGET_PLAINACCESS_H
