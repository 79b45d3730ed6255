//===- Key.cpp - Which call it is -----------------------------------------===//

#include "Key.h"

#include <algorithm>
#include <cstring>
#include <iterator>

using namespace triton_dist;

namespace {

enum Tag : uint64_t { Positional = 1, Named, Pointer, Value, Tensor, Same, Sharing, Tuple };

} // namespace

bool Key::add(uint64_t value) {
  if (words == MostWords)
    return false;
  word[words++] = value;
  hashed = (hashed ^ value) * 0x9e3779b97f4a7c15u;
  hashed ^= hashed >> 29;
  return true;
}

bool Key::pointTo(PyObject *object) {
  if (pointed == std::size(pointedObjects))
    return false;
  pointedObjects[pointed++] = object;
  return add(reinterpret_cast<uint64_t>(object));
}

/// 1 or 0, as a function of PyTorch answers about a tensor; -1 if it raises.
static int answer(const Object &function, PyObject *tensor) {
  Object found = Object::taken(PyObject_CallFunctionObjArgs(function.get(), tensor, nullptr));
  return found ? found.get() == Py_True : -1;
}

/// Behind which byte a tensor's memory ends; an empty one has none.
static Address endOf(const dlpack::Tensor &tensor) {
  int64_t last = 0;
  for (int32_t i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] == 0)
      return addressOf(tensor);
    last += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return addressOf(tensor) + (last + 1) * ((tensor.dtypeBits * tensor.dtypeLanes + 7) / 8);
}

bool Key::tensor(const Torch &torch, PyObject *object, bool item) {
  if (int before = tensorOf(object); before >= 0) {
    isItem[before] &= item;
    return add(Same) && add(before);
  }
  if (tensors == Launch::MostTensors)
    return false;
  dlpack::Tensor read;
  if (!torch.read(object, read)) {
    PyErr_Clear();
    return false;
  }
  int lazy = answer(torch.isNeg, object);
  if (lazy == 0 && read.dtypeCode == dlpack::ComplexCode)
    lazy = answer(torch.isConj, object);
  if (lazy != 0) {
    PyErr_Clear();
    return false;
  }
  Address address = addressOf(read);
  tensorObjects[tensors] = object;
  isItem[tensors] = item;
  ends[tensors] = endOf(read);
  addresses[tensors++] = address;
  uint64_t dtype = uint64_t(read.dtypeCode) << 24 | uint64_t(read.dtypeBits) << 16 | read.dtypeLanes;
  uint64_t device = uint64_t(uint32_t(read.deviceType)) << 32 | uint32_t(read.deviceIndex);
  if (!add(Tensor) || !add(dtype << 32 | (address & 15) << 8 | uint64_t(read.rank)) || !add(device) || read.rank > 64)
    return false;
  for (int32_t i = 0; i < read.rank; ++i)
    if (!add(read.shape[i]) || !add(read.strides[i]))
      return false;
  return true;
}

/// Whether objects of a type are equal to themselves only.
static bool comparesByIdentity(PyTypeObject *type) {
  return PyType_GetSlot(type, Py_tp_richcompare) == PyType_GetSlot(&PyBaseObject_Type, Py_tp_richcompare);
}

bool Key::items(const Torch &torch, PyObject *tuple, int nested) {
  Py_ssize_t count = PyTuple_Size(tuple);
  if (nested > MostNested || !add(Tuple) || !pointTo(reinterpret_cast<PyObject *>(Py_TYPE(tuple))) || !add(count))
    return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!value(torch, PyTuple_GetItem(tuple, i), false, nested))
      return false;
  return true;
}

bool Key::value(const Torch &torch, PyObject *value, bool byIdentity, int nested) {
  PyTypeObject *type = Py_TYPE(value);
  if (torch.isTensor(value))
    return tensor(torch, value, nested > 0);
  if (PyTuple_Check(value) && !byIdentity)
    return items(torch, value, nested + 1);
  // Of what a tuple of ours holds, as a communicator; an option that is such an object is refused by its function.
  byIdentity |= nested > 0 && comparesByIdentity(type);
  if (byIdentity || value == Py_None || type == &PyBool_Type ||
      reinterpret_cast<PyObject *>(type) == torch.dtypeType.get())
    return add(Pointer) && pointTo(value);
  if (type != &PyLong_Type && type != &PyFloat_Type && type != &PyUnicode_Type)
    return false;
  Py_hash_t hash = PyObject_Hash(value);
  if (values == MostValues || (hash == -1 && PyErr_Occurred())) {
    PyErr_Clear();
    return false;
  }
  valueObjects[values++] = value;
  return add(Value) && add(reinterpret_cast<uint64_t>(type)) && add(hash);
}

bool Key::sharing() {
  for (size_t j = 0; j < tensors; ++j)
    for (size_t i = 0; i < j; ++i)
      if (addresses[i] < ends[j] && addresses[j] < ends[i] &&
          !(add(Sharing) && add(i << 32 | j) && add(addresses[j] - addresses[i])))
        return false;
  return true;
}

bool Key::read(const Torch &torch, PyObject *name, PyObject *args, PyObject *kwargs, PyObject *group) {
  Py_ssize_t count = PyTuple_Size(args), position = 0;
  if (!pointTo(name) || !add(Positional) || !add(count))
    return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!value(torch, PyTuple_GetItem(args, i), false))
      return false;
  PyObject *key, *given;
  while (PyDict_Next(kwargs, &position, &key, &given)) {
    // A group is who is meant, whatever it compares equal to.
    if (!add(Named) || !pointTo(key) || !value(torch, given, key == group))
      return false;
  }
  if (!sharing())
    return false;
  Object enabled = Object::taken(PyObject_CallNoArgs(torch.isGradEnabled.get()));
  if (enabled.get() == Py_False)
    return true;
  static PyObject *const requiresGrad = PyUnicode_InternFromString("requires_grad");
  for (size_t i = 0; enabled && i < tensors; ++i) {
    Object
      requires
    = Object::taken(PyObject_GetAttr(tensorObjects[i], requiresGrad));
    if (requires.get() != Py_False) {
      PyErr_Clear();
      return false;
    }
  }
  PyErr_Clear();
  return bool(enabled);
}

bool Key::operator==(const Key &other) const {
  if (hashed != other.hashed || words != other.words || values != other.values ||
      std::memcmp(word, other.word, words * sizeof *word) != 0)
    return false;
  for (size_t i = 0; i < values; ++i) {
    if (valueObjects[i] == other.valueObjects[i])
      continue;
    int equal = PyObject_RichCompareBool(valueObjects[i], other.valueObjects[i], Py_EQ);
    if (equal < 0)
      PyErr_Clear();
    if (equal != 1)
      return false;
  }
  return true;
}

std::vector<Object> Key::objects() const {
  std::vector<Object> found;
  std::transform(pointedObjects, pointedObjects + pointed, std::back_inserter(found), Object::of);
  std::transform(valueObjects, valueObjects + values, std::back_inserter(found), Object::of);
  return found;
}

int Key::tensorOf(PyObject *object) const {
  auto end = tensorObjects + tensors, found = std::find(tensorObjects, end, object);
  return found == end ? -1 : static_cast<int>(found - tensorObjects);
}
