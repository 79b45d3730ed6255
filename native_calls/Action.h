//===- Action.h - What a call does, one part after the other ----*- C++ -*-===//
//
// A comparison with the other members, a launch, operations that a stream gets,
// a GEMM by cuBLAS, the order of two streams, or a function of Python: as data,
// which triton_dist/kernels/actions.py makes.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_ACTION_H
#define TRITON_DIST_NATIVE_CALLS_ACTION_H

#include "Launch.h"
#include "Multiply.h"
#include "Object.h"
#include "Streams.h"

#include <vector>

namespace triton_dist {

/// The tensors of one call that its plan is given, in the plan's order.
struct Given {
  size_t count = 0;
  PyObject *tensors[Launch::MostTensors] = {}; // null: the call has none there
  Address addresses[Launch::MostTensors] = {};
};

/// An argument of an action.
struct Place {
  enum class Of { Nothing, Tensor, Memory };

  Of of;
  size_t tensor;  // of those that are given
  Address offset; // behind the tensor's address; or the address, of memory that never moves

  Address in(const Given &given) const { return of == Of::Tensor ? given.addresses[tensor] + offset : offset; }
};

/// What a function of Python is called with: a tensor that is given, or always the same object.
struct Argument {
  Object object; // null: the tensor
  size_t tensor;
};

struct Action {
  enum class Does { Compare, Launch, Put, Multiply, Fork, Join, Call };

  Does does;
  bool onSide = false; // on the side stream
  Object object;       // what is compared, the launch, or the function
  Object encode;       // makes descriptors that the launch does not know
  Object waiting;      // gets the user's line; null: nothing does
  Launch *launch = nullptr;
  std::vector<Place> places;        // of the launch's tensors, of the operations' addresses, or of the GEMM's matrices
  std::vector<Argument> arguments;  // of the function
  std::vector<uint64_t> operations; // of runtime/c/Streams.cpp, and how many they are
  int64_t count = 0;
  Gemm gemm = {};

  /// Whether all tensors that it needs are `there`, among those that are given.
  bool fits(const std::vector<bool> &there) const;
  /// Makes what it needs and may lack. False with an exception set.
  bool prepare(const Given &given) const;
  /// False with an exception set. Comparisons are the table's.
  bool run(Streams &streams, const Given &given) const;

private:
  void find(const Given &given, Address *addresses) const;
  bool call(const Given &given) const;
};

using Actions = std::vector<Action>;

/// Of a sequence of tuples that begin with a word:
///
///   ("compare", a tuple that is equal on all members of the group)
///   ("launch", on side, Launch, encode, places, waiting or None)
///   ("put", on side, bytes of operations, places)
///   ("multiply", bytes of a Gemm, places of a, b and c)
///   ("fork",), ("join",)
///   ("call", function, arguments)
///
/// A place is None; (number of a given tensor, offset); or (None, address). An argument is (number of a given tensor,
/// None) or (None, object). `launchOf` returns the Launch of an object,
/// or null with an exception set. False with an exception set.
bool parseActions(PyObject *sequence, Launch *(*launchOf)(PyObject *), Actions &into);

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_ACTION_H
