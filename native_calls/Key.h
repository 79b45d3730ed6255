//===- Key.h - Which call it is ---------------------------------*- C++ -*-===//
//
// A call as it is written: the function and its arguments, where a tensor is
// its shape, strides, dtype, device and address modulo 16; and which tensors
// share memory, as in triton_dist/kernels/overlaps.py. A tuple, as what another
// call has returned, is its type and its items.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_KEY_H
#define TRITON_DIST_NATIVE_CALLS_KEY_H

#include "DLPack.h"
#include "Launch.h"
#include "Object.h"

#include <algorithm>
#include <vector>

namespace triton_dist {

/// What PyTorch's objects are recognised by.
struct Torch {
  const dlpack::ExchangeTable *exchange;
  std::vector<Object> tensorTypes; // whose memory is what the tensor says
  Object dtypeType;
  Object isGradEnabled, isConj, isNeg;

  bool isTensor(PyObject *object) const {
    return std::any_of(tensorTypes.begin(), tensorTypes.end(),
                       [&](const Object &type) { return reinterpret_cast<PyObject *>(Py_TYPE(object)) == type.get(); });
  }
  /// False with an exception set: the tensor has no memory, or a dtype that DLPack has not.
  bool read(PyObject *tensor, dlpack::Tensor &into) const { return exchange->read(tensor, &into) == 0; }
};

inline Address addressOf(const dlpack::Tensor &tensor) {
  return reinterpret_cast<Address>(tensor.data) + tensor.byteOffset;
}

/// The arguments of one call, of which it owns none.
class Key {
public:
  static constexpr size_t MostWords = 192, MostValues = 32;

  /// False without an exception: the call is an unusual one, of which nothing is known.
  bool read(const Torch &torch, PyObject *name, PyObject *args, PyObject *kwargs, PyObject *group);

  bool operator==(const Key &other) const;
  size_t hash() const { return hashed; }
  /// What the words point to: who keeps a key keeps these alive.
  std::vector<Object> objects() const;
  /// The tensor that is this object; -1 if none is.
  int tensorOf(PyObject *object) const;

  size_t tensors = 0;
  PyObject *tensorObjects[Launch::MostTensors];
  Address addresses[Launch::MostTensors];
  bool isItem[Launch::MostTensors]; // it stands in tuples only, from which a function takes what it wants

private:
  static constexpr int MostNested = 4; // tuples

  bool value(const Torch &torch, PyObject *value, bool byIdentity, int nested = 0);
  bool items(const Torch &torch, PyObject *tuple, int nested);
  bool tensor(const Torch &torch, PyObject *tensor, bool item);
  bool sharing();
  bool add(uint64_t word);
  bool pointTo(PyObject *object);

  size_t words = 0, values = 0, pointed = 0, hashed = 0;
  Address ends[Launch::MostTensors];
  uint64_t word[MostWords];
  PyObject *valueObjects[MostValues]; // compared by what they are equal to
  PyObject *pointedObjects[MostValues * 2];
};

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_KEY_H
