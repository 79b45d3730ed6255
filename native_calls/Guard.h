//===- Guard.h - What must hold for a call to be repeated -------*- C++ -*-===//
//
// A condition on the state of Python objects, as data: Python says what it is
// about, so nothing here names a class of the package, of Triton or PyTorch.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_GUARD_H
#define TRITON_DIST_NATIVE_CALLS_GUARD_H

#include "Object.h"

#include <vector>

namespace triton_dist {

/// A value is read and compared with `expected`. An error while it is read means that the condition does not hold.
struct Guard {
  /// Attributes: of `object`, one or two names one after the other. Item: of `object`, a dict, where a key that is not
  /// there has the value None. Call: of `object`, without arguments.
  enum class Reads { Attributes, Item, Call };
  enum class Compares { Is, Empty, Equal, AtLeast };

  Object object;
  Reads reads;
  std::vector<Object> names;
  Compares compares;
  Object expected;

  bool holds() const;
};

using Guards = std::vector<Guard>;

/// Of a sequence of tuples (object, reads, names, compares, expected); `names` is a tuple of strings, or the item's key
/// in one. False with an exception set.
bool parseGuards(PyObject *sequence, Guards &into);

bool hold(const Guards &guards);

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_GUARD_H
