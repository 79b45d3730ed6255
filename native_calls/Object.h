//===- Object.h - References to Python objects ------------------*- C++ -*-===//
//
// Only the stable ABI of Python 3.10 is used, so one binary is for every later
// Python with a lock (docs/decisions/0034). All functions need that lock but
// where they say that they do not.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_OBJECT_H
#define TRITON_DIST_NATIVE_CALLS_OBJECT_H

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace triton_dist {

/// Owns a reference, or is empty.
class Object {
public:
  Object() = default;
  /// Takes over a new reference; null: an exception is set.
  static Object taken(PyObject *object) {
    Object made;
    made.object = object;
    return made;
  }
  static Object of(PyObject *borrowed) { return taken(Py_XNewRef(borrowed)); }
  Object(const Object &other) : object(Py_XNewRef(other.object)) {}
  Object(Object &&other) noexcept : object(std::exchange(other.object, nullptr)) {}
  Object &operator=(Object other) noexcept {
    std::swap(object, other.object);
    return *this;
  }
  ~Object() { Py_XDECREF(object); }

  PyObject *get() const { return object; }
  explicit operator bool() const { return object != nullptr; }
  PyObject *release() { return std::exchange(object, nullptr); }

private:
  PyObject *object = nullptr;
};

/// While it lives no error is set; then the one from before is set again, if there was one.
class SetAside {
public:
  SetAside() { PyErr_Fetch(&type, &error, &trace); }
  SetAside(const SetAside &) = delete;
  ~SetAside() { PyErr_Restore(type, error, trace); }

private:
  PyObject *type, *error, *trace;
};

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_OBJECT_H
