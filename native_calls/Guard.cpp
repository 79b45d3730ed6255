//===- Guard.cpp - What must hold for a call to be repeated ---------------===//

#include "Guard.h"

#include <algorithm>
#include <cstring>

using namespace triton_dist;

static Object valueOf(const Guard &guard) {
  switch (guard.reads) {
  case Guard::Reads::Attributes: {
    Object found = guard.object;
    for (const Object &name : guard.names) {
      found = Object::taken(PyObject_GetAttr(found.get(), name.get()));
      if (!found)
        return {};
    }
    return found;
  }
  case Guard::Reads::Item: {
    PyObject *found = PyDict_GetItemWithError(guard.object.get(), guard.names[0].get());
    return found || PyErr_Occurred() ? Object::of(found) : Object::of(Py_None);
  }
  case Guard::Reads::Call:
    return Object::taken(PyObject_CallNoArgs(guard.object.get()));
  }
  return {};
}

bool Guard::holds() const {
  Object value = valueOf(*this);
  int holds = -1;
  if (value) {
    switch (compares) {
    case Compares::Is:
      holds = value.get() == expected.get();
      break;
    case Compares::Empty:
      holds = PyObject_Not(value.get());
      break;
    case Compares::Equal:
      holds = PyObject_RichCompareBool(value.get(), expected.get(), Py_EQ);
      break;
    case Compares::AtLeast:
      holds = PyObject_RichCompareBool(value.get(), expected.get(), Py_GE);
      break;
    }
  }
  if (holds < 0)
    PyErr_Clear(); // the ordinary call meets it again, and says what it is
  return holds == 1;
}

bool triton_dist::hold(const Guards &guards) {
  return std::all_of(guards.begin(), guards.end(), [](const Guard &guard) { return guard.holds(); });
}

/// The place of `text` among `words`; -1 with an exception set.
template <size_t N> static int placeOf(const char *text, const char *const (&words)[N]) {
  for (size_t i = 0; i < N; ++i)
    if (std::strcmp(text, words[i]) == 0)
      return static_cast<int>(i);
  PyErr_Format(PyExc_ValueError, "a guard has no %s", text);
  return -1;
}

bool triton_dist::parseGuards(PyObject *sequence, Guards &into) {
  static constexpr const char *Reads[] = {"attributes", "item", "call"};
  static constexpr const char *Compares[] = {"is", "empty", "equal", "at least"};
  Py_ssize_t n = PySequence_Size(sequence);
  if (n < 0)
    return false;
  for (Py_ssize_t i = 0; i < n; ++i) {
    Object item = Object::taken(PySequence_GetItem(sequence, i));
    PyObject *object, *names, *expected;
    const char *readsText, *comparesText;
    if (!item ||
        !PyArg_ParseTuple(item.get(), "OsO!sO", &object, &readsText, &PyTuple_Type, &names, &comparesText, &expected))
      return false;
    int reads = placeOf(readsText, Reads), compares = placeOf(comparesText, Compares);
    if (reads < 0 || compares < 0)
      return false;
    Guard guard{Object::of(object), Guard::Reads(reads), {}, Guard::Compares(compares), Object::of(expected)};
    for (Py_ssize_t k = 0; k < PyTuple_Size(names); ++k)
      guard.names.push_back(Object::of(PyTuple_GetItem(names, k)));
    if (guard.reads == Guard::Reads::Item && (!PyDict_Check(object) || guard.names.size() != 1)) {
      PyErr_SetString(PyExc_TypeError, "an item's guard is of a dict and one key");
      return false;
    }
    into.push_back(std::move(guard));
  }
  return true;
}
