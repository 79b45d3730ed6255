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

template <typename T> static void registerWord(py::module_ &module, const std::string &bits) {
  module.def(("load" + bits).c_str(),
             [](uint64_t address, Order order) { return atomicLoad(pointer<T>(address), order); }, py::arg("address"),
             py::kw_only(), py::arg("order"));
  module.def(("store" + bits).c_str(),
             [](uint64_t address, T value, Order order) { atomicStore(pointer<T>(address), value, order); },
             py::arg("address"), py::arg("value"), py::kw_only(), py::arg("order"));
  module.def(("fetch_add" + bits).c_str(),
             [](uint64_t address, T value, Order order) { return atomicFetchAdd(pointer<T>(address), value, order); },
             py::arg("address"), py::arg("value"), py::kw_only(), py::arg("order"));
  module.def(("exchange" + bits).c_str(),
             [](uint64_t address, T value, Order order) { return atomicExchange(pointer<T>(address), value, order); },
             py::arg("address"), py::arg("value"), py::kw_only(), py::arg("order"));
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
  registerWord<uint32_t>(module, "32");
  registerWord<uint64_t>(module, "64");
  module.def("fence", &atomicFence);

  py::class_<Backoff>(module, "Backoff")
      .def(py::init())
      .def("pause", &Backoff::pause, py::call_guard<py::gil_scoped_release>())
      .def("reset", &Backoff::reset);
}
