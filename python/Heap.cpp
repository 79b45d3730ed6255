//===- Heap.cpp - The symmetric heap, and its memory as a buffer ----------===//

#include "Bindings.h"

#include "TritonDist/Runtime/SymmetricHeap.h"

#include <memory>
#include <pybind11/stl.h>

namespace py = pybind11;
using namespace triton_dist;

namespace {
/// One PE's heap as a Python buffer. It shares ownership of the mapping, so a
/// tensor made over it stays valid for as long as somebody holds it, also after
/// the world has ended.
struct HeapMemory {
  std::shared_ptr<SymmetricHeap> heap;
  int pe;
};
} // namespace

void triton_dist::registerHeap(py::module_ &module) {
  py::class_<SymmetricHeap, std::shared_ptr<SymmetricHeap>>(module, "SymmetricHeap")
      .def(py::init<int, int, size_t>(), py::arg("pe"), py::arg("n_pes"), py::arg("size"))
      .def("attach", &SymmetricHeap::attach, py::arg("pe"), py::arg("fd"))
      .def_property_readonly("fd", &SymmetricHeap::fd)
      .def_property_readonly("size", &SymmetricHeap::size)
      .def(
          "base", [](const SymmetricHeap &heap, int pe) { return reinterpret_cast<uint64_t>(heap.base(pe)); },
          py::arg("pe"))
      .def(
          "memory", [](std::shared_ptr<SymmetricHeap> heap, int pe) { return HeapMemory{std::move(heap), pe}; },
          py::arg("pe"))
      .def(
          "find",
          [](const SymmetricHeap &heap, uint64_t address) -> std::optional<std::pair<int, uint64_t>> {
            if (auto place = heap.find(address))
              return std::pair{place->pe, place->offset};
            return std::nullopt;
          },
          py::arg("address"))
      .def(
          "write",
          [](const SymmetricHeap &heap, int pe, uint64_t offset, uint64_t source, size_t count) {
            heap.write({pe, offset}, reinterpret_cast<const void *>(source), count);
          },
          py::arg("pe"), py::arg("offset"), py::arg("source"), py::arg("count"),
          py::call_guard<py::gil_scoped_release>())
      .def(
          "read",
          [](const SymmetricHeap &heap, int pe, uint64_t offset, uint64_t destination, size_t count) {
            heap.read({pe, offset}, reinterpret_cast<void *>(destination), count);
          },
          py::arg("pe"), py::arg("offset"), py::arg("destination"), py::arg("count"),
          py::call_guard<py::gil_scoped_release>())
      .def(
          "write_strided",
          [](const SymmetricHeap &heap, int pe, uint64_t offset, ptrdiff_t stride, uint64_t source,
             ptrdiff_t sourceStride, size_t size, size_t count) {
            heap.writeStrided({pe, offset}, stride, reinterpret_cast<const void *>(source), sourceStride, size, count);
          },
          py::arg("pe"), py::arg("offset"), py::arg("stride"), py::arg("source"), py::arg("source_stride"),
          py::arg("size"), py::arg("count"), py::call_guard<py::gil_scoped_release>())
      .def(
          "read_strided",
          [](const SymmetricHeap &heap, int pe, uint64_t offset, ptrdiff_t stride, uint64_t destination,
             ptrdiff_t destinationStride, size_t size, size_t count) {
            heap.readStrided({pe, offset}, stride, reinterpret_cast<void *>(destination), destinationStride, size,
                             count);
          },
          py::arg("pe"), py::arg("offset"), py::arg("stride"), py::arg("destination"), py::arg("destination_stride"),
          py::arg("size"), py::arg("count"), py::call_guard<py::gil_scoped_release>());

  py::class_<HeapMemory>(module, "HeapMemory", py::buffer_protocol()).def_buffer([](HeapMemory &memory) {
    return py::buffer_info(reinterpret_cast<uint8_t *>(memory.heap->base(memory.pe)),
                           static_cast<py::ssize_t>(memory.heap->size()));
  });
}
