//===- Action.cpp - What a call does, one part after the other ------------===//

#include "Action.h"

#include <algorithm>
#include <cstring>

using namespace triton_dist;

void Action::find(const Given &given, Address *addresses) const {
  for (size_t i = 0; i < places.size(); ++i)
    addresses[i] = places[i].in(given);
}

bool Action::prepare(const Given &given) const {
  if (does != Does::Launch)
    return true;
  Address addresses[Launch::MostTensors];
  find(given, addresses);
  return launch->encode(addresses, encode);
}

bool Action::call(const Given &given) const {
  Object tuple = Object::taken(PyTuple_New(arguments.size()));
  if (!tuple)
    return false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument &argument = arguments[i];
    PyObject *value = argument.object ? argument.object.get() : given.tensors[argument.tensor];
    if (PyTuple_SetItem(tuple.get(), i, Py_NewRef(value ? value : Py_None)) != 0)
      return false;
  }
  return bool(Object::taken(PyObject_Call(object.get(), tuple.get(), nullptr)));
}

bool Action::run(Streams &streams, const Given &given) const {
  Address addresses[Launch::MostTensors] = {};
  switch (does) {
  case Does::Compare:
    return true;
  case Does::Launch:
    find(given, addresses);
    return launch->run(streams.of(onSide), addresses, encode);
  case Does::Put:
    find(given, addresses);
    return streams.put(onSide, operations, count, addresses[0], addresses[1]);
  case Does::Multiply:
    find(given, addresses);
    return gemm.run(streams.of(onSide), addresses[0], addresses[1], addresses[2]);
  case Does::Fork:
    return streams.fork();
  case Does::Join:
    return streams.join();
  case Does::Call:
    return call(given);
  }
  return false;
}

bool Action::fits(const std::vector<bool> &there) const {
  auto isThere = [&](const Place &place) {
    return place.of == Place::Of::Memory || (place.of == Place::Of::Tensor && there[place.tensor]);
  };
  for (const Place &place : places)
    if (place.of == Place::Of::Tensor && place.tensor >= there.size())
      return false;
  for (const Argument &argument : arguments)
    if (!argument.object && argument.tensor >= there.size())
      return false;
  if (does == Does::Put || does == Does::Multiply)
    return std::all_of(places.begin(), places.end(), isThere);
  if (does != Does::Launch)
    return true;
  return places.size() >= launch->tensors && places.size() <= Launch::MostTensors &&
         std::all_of(launch->patches.begin(), launch->patches.end(),
                     [&](const Launch::Patch &patch) { return isThere(places[patch.tensor]); });
}

static bool refuse(const char *what) {
  PyErr_SetString(PyExc_ValueError, what);
  return false;
}

static bool parsePlaces(PyObject *tuple, std::vector<Place> &into) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i) {
    PyObject *item = PyTuple_GetItem(tuple, i), *tensor;
    unsigned long long offset;
    if (item == Py_None) {
      into.push_back({Place::Of::Nothing, 0, 0});
      continue;
    }
    if (!PyArg_ParseTuple(item, "OK", &tensor, &offset))
      return false;
    if (tensor == Py_None) {
      into.push_back({Place::Of::Memory, 0, offset});
      continue;
    }
    size_t which = PyLong_AsSize_t(tensor);
    if (PyErr_Occurred())
      return false;
    into.push_back({Place::Of::Tensor, which, offset});
  }
  return true;
}

static bool parseLaunch(PyObject *tuple, Launch *(*launchOf)(PyObject *), Action &into) {
  PyObject *launch, *encode, *places, *waiting;
  const char *word;
  int onSide;
  if (!PyArg_ParseTuple(tuple, "spOOO!O", &word, &onSide, &launch, &encode, &PyTuple_Type, &places, &waiting) ||
      !(into.launch = launchOf(launch)) || !parsePlaces(places, into.places))
    return false;
  into.onSide = onSide != 0;
  into.object = Object::of(launch);
  into.encode = Object::of(encode);
  into.waiting = waiting == Py_None ? Object() : Object::of(waiting);
  return true;
}

static bool parsePut(PyObject *tuple, Action &into) {
  constexpr size_t Words = 7; // of an operation
  PyObject *places;
  const char *word, *bytes;
  Py_ssize_t size;
  int onSide;
  if (!PyArg_ParseTuple(tuple, "spy#O!", &word, &onSide, &bytes, &size, &PyTuple_Type, &places) ||
      !parsePlaces(places, into.places))
    return false;
  if (size % (Words * sizeof(uint64_t)) != 0 || into.places.size() > 2)
    return refuse("operations of a stream have another size, or more than two addresses");
  into.onSide = onSide != 0;
  into.operations.resize(size / sizeof(uint64_t));
  into.count = into.operations.size() / Words;
  if (size > 0)
    std::memcpy(into.operations.data(), bytes, size);
  return true;
}

static bool parseMultiply(PyObject *tuple, Action &into) {
  PyObject *places;
  const char *word, *bytes;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(tuple, "sy#O!", &word, &bytes, &size, &PyTuple_Type, &places) ||
      !parsePlaces(places, into.places))
    return false;
  if (size != sizeof(Gemm) || into.places.size() != 3)
    return refuse("a GEMM has another size, or not three matrices");
  std::memcpy(&into.gemm, bytes, sizeof(Gemm));
  return true;
}

static bool parseCompare(PyObject *tuple, Action &into) {
  PyObject *compared;
  const char *word;
  if (!PyArg_ParseTuple(tuple, "sO!", &word, &PyTuple_Type, &compared))
    return false;
  into.object = Object::of(compared);
  return true;
}

static bool parseCall(PyObject *tuple, Action &into) {
  PyObject *function, *arguments;
  const char *word;
  if (!PyArg_ParseTuple(tuple, "sOO!", &word, &function, &PyTuple_Type, &arguments))
    return false;
  for (Py_ssize_t i = 0; i < PyTuple_Size(arguments); ++i) {
    PyObject *number, *object;
    if (!PyArg_ParseTuple(PyTuple_GetItem(arguments, i), "OO", &number, &object))
      return false;
    size_t which = number == Py_None ? 0 : PyLong_AsSize_t(number);
    if (PyErr_Occurred())
      return false;
    into.arguments.push_back({number == Py_None ? Object::of(object) : Object(), which});
  }
  into.object = Object::of(function);
  return true;
}

bool triton_dist::parseActions(PyObject *sequence, Launch *(*launchOf)(PyObject *), Actions &into) {
  Py_ssize_t n = PySequence_Size(sequence);
  if (n < 0)
    return false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    Object item = Object::taken(PySequence_GetItem(sequence, i));
    PyObject *word =
        item && PyTuple_Check(item.get()) && PyTuple_Size(item.get()) > 0 ? PyTuple_GetItem(item.get(), 0) : nullptr;
    auto is = [&](const char *text) {
      return word && PyUnicode_Check(word) && PyUnicode_CompareWithASCIIString(word, text) == 0;
    };
    Action action{};
    bool parsed = true;
    if (is("compare")) {
      action.does = Action::Does::Compare;
      parsed = parseCompare(item.get(), action);
    } else if (is("launch")) {
      action.does = Action::Does::Launch;
      parsed = parseLaunch(item.get(), launchOf, action);
    } else if (is("put")) {
      action.does = Action::Does::Put;
      parsed = parsePut(item.get(), action);
    } else if (is("multiply")) {
      action.does = Action::Does::Multiply;
      parsed = parseMultiply(item.get(), action);
    } else if (is("call")) {
      action.does = Action::Does::Call;
      parsed = parseCall(item.get(), action);
    } else if (is("fork") || is("join")) {
      action.does = is("fork") ? Action::Does::Fork : Action::Does::Join;
    } else {
      parsed = PyErr_Occurred() ? false : refuse("there is no such action");
    }
    if (!parsed)
      return false;
    into.push_back(std::move(action));
  }
  return true;
}
