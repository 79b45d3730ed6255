//===- Atomics.cpp - Atomic operations on an address ----------------------===//
//
// The GIL is kept: each is one instruction. The caller has checked that the
// address is mapped and aligned.
//
//===----------------------------------------------------------------------===//

#include "Bindings.h"

#include "TritonDist/Runtime/Atomics.h"
#include "TritonDist/Runtime/Backoff.h"

#include <string>

namespace py = pybind11;
using namespace triton_dist;

template <typename T> static T *pointer(uint64_t address) { return reinterpret_cast<T *>(address); }

template <typename T> using Update = T (*)(T *address, T value, Order order);

template <typename T, Update<T> update> static void registerUpdate(py::module_ &module, const std::string &name) {
  module.def(
      name.c_str(), [](uint64_t address, T value, Order order) { return update(pointer<T>(address), value, order); },
      py::arg("address"), py::arg("value"), py::kw_only(), py::arg("order"));
}

template <typename T> static void registerWord(py::module_ &module) {
  std::string bits = std::to_string(8 * sizeof(T));
  module.def(("load" + bits).c_str(),
             [](uint64_t address, Order order) { return atomicLoad(pointer<T>(address), order); }, py::arg("address"),
             py::kw_only(), py::arg("order"));
  module.def(("store" + bits).c_str(),
             [](uint64_t address, T value, Order order) { atomicStore(pointer<T>(address), value, order); },
             py::arg("address"), py::arg("value"), py::kw_only(), py::arg("order"));
  registerUpdate<T, atomicExchange<T>>(module, "exchange" + bits);
  registerUpdate<T, atomicFetchAdd<T>>(module, "fetch_add" + bits);
  registerUpdate<T, atomicFetchAnd<T>>(module, "fetch_and" + bits);
  registerUpdate<T, atomicFetchOr<T>>(module, "fetch_or" + bits);
  registerUpdate<T, atomicFetchXor<T>>(module, "fetch_xor" + bits);
  module.def(("compare_swap" + bits).c_str(),
             [](uint64_t address, T expected, T value, Order order) {
               return atomicCompareSwap(pointer<T>(address), expected, value, order);
             },
             py::arg("address"), py::arg("expected"), py::arg("value"), py::kw_only(), py::arg("order"));
}

void triton_dist::registerAtomics(py::module_ &module) {
  py::enum_<Order>(module, "Order")
      .value("RELAXED", Order::Relaxed)
      .value("ACQUIRE", Order::Acquire)
      .value("RELEASE", Order::Release)
      .value("ACQUIRE_RELEASE", Order::AcquireRelease)
      .value("SEQUENTIALLY_CONSISTENT", Order::SequentiallyConsistent);
  registerWord<uint8_t>(module);
  registerWord<uint16_t>(module);
  registerWord<uint32_t>(module);
  registerWord<uint64_t>(module);
  module.def("fence", &atomicFence);

  py::class_<Backoff>(module, "Backoff")
      .def(py::init())
      .def("pause", &Backoff::pause, py::call_guard<py::gil_scoped_release>())
      .def("reset", &Backoff::reset);
}
