//===- Enums.h - Numbers that routines take ---------------------*- C++ -*-===//
//
// Those of the op table's enums. The lowering passes them as they are, and verifies at compile time that they are
// equal.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_DEVICE_ENUMS_H
#define TRITON_DIST_DEVICE_ENUMS_H

#include <stdint.h>

namespace triton_dist::device {

enum Cmp : int32_t { kEq, kNe, kGt, kGe, kLt, kLe };
enum SignalUpdate : int32_t { kSet, kAdd };

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_ENUMS_H
