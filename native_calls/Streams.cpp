//===- Streams.cpp - The streams that a call's work is put on -------------===//

#include "Streams.h"

using namespace triton_dist;

bool Streams::succeed(int status) const {
  if (status == 0)
    return true;
  Object number = Object::taken(PyLong_FromLong(status));
  if (number && Object::taken(PyObject_CallFunctionObjArgs(functions.failed.get(), number.get(), nullptr)))
    PyErr_SetString(PyExc_RuntimeError, "the driver refuses an operation of a stream");
  return false;
}

int Streams::order(Stream earlier, Stream later) const {
  int status;
  Py_BEGIN_ALLOW_THREADS; // the driver waits where a stream's queue is full
  status = functions.order(functions.cuda, earlier, later, functions.event);
  Py_END_ALLOW_THREADS;
  return status;
}

bool Streams::fork() {
  isForked = succeed(order(current, functions.side));
  return isForked;
}

bool Streams::join() {
  isForked = false;
  return succeed(order(functions.side, current));
}

Streams::~Streams() {
  if (!isForked)
    return;
  SetAside error;                 // of the call
  order(functions.side, current); // if this fails, too, that is still the call's error
}

bool Streams::put(bool onSide, const std::vector<uint64_t> &operations, int64_t n, Address first,
                  Address second) const {
  int status;
  Py_BEGIN_ALLOW_THREADS; // as in order
  status = functions.put(functions.cuda, operations.data(), n, of(onSide), first, second);
  Py_END_ALLOW_THREADS;
  return succeed(status);
}
