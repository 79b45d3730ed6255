//===- Control.cpp - The control block of a world -------------------------===//

#include "Bindings.h"

#include "TritonDist/Runtime/ControlBlock.h"

#include <pybind11/stl.h>

namespace py = pybind11;
using namespace triton_dist;

namespace {
/// A barrier, with the block whose memory it lies in.
struct BoundBarrier {
  std::shared_ptr<ControlBlock> block;
  Barrier &barrier;
};
} // namespace

void triton_dist::registerControl(py::module_ &module) {
  using State = ControlBlock::State;
  py::enum_<State>(module, "State")
      .value("ABSENT", State::Absent)
      .value("RUNNING", State::Running)
      .value("LEFT", State::Left)
      .value("LOST", State::Lost);

  using Caller = ControlBlock::Caller;
  py::enum_<Caller>(module, "Caller").value("HOST", Caller::Host).value("KERNEL", Caller::Kernel);

  py::class_<BoundBarrier>(module, "Barrier")
      .def("arrive", [](BoundBarrier &bound) { return bound.barrier.arrive(); })
      .def(
          "passed",
          [](const BoundBarrier &bound, uint64_t ticket) { return bound.barrier.passed(ticket, bound.block->nPes()); },
          py::arg("ticket"))
      .def(
          "wait",
          [](const BoundBarrier &bound, uint64_t ticket, double seconds) {
            return bound.barrier.wait(ticket, bound.block->nPes(), std::chrono::duration<double>(seconds));
          },
          py::arg("ticket"), py::arg("seconds"), py::call_guard<py::gil_scoped_release>());

  py::class_<ControlBlock, std::shared_ptr<ControlBlock>>(module, "ControlBlock")
      .def_static("create", &ControlBlock::create, py::arg("n_pes"))
      .def_static("open", &ControlBlock::open, py::arg("fd"), py::arg("n_pes"))
      .def_property_readonly("fd", &ControlBlock::fd)
      .def("enter", &ControlBlock::enter, py::arg("pe"))
      .def("leave", &ControlBlock::leave, py::arg("pe"))
      .def("state", &ControlBlock::state, py::arg("pe"))
      .def("pid", &ControlBlock::pid, py::arg("pe"))
      .def("abort", &ControlBlock::abort, py::arg("pe"), py::arg("reason"))
      .def("aborted",
           [](const ControlBlock &block) -> std::optional<std::pair<int, std::string>> {
             if (auto abort = block.aborted())
               return std::pair{abort->pe, std::move(abort->reason)};
             return std::nullopt;
           })
      .def_property_readonly(
          "host_barrier", [](std::shared_ptr<ControlBlock> block) { return BoundBarrier{block, block->hostBarrier()}; })
      .def_property_readonly(
          "kernel_barrier",
          [](std::shared_ptr<ControlBlock> block) { return BoundBarrier{block, block->kernelBarrier()}; })
      .def("announce", &ControlBlock::announce, py::arg("caller"), py::arg("pe"), py::arg("round"), py::arg("text"))
      .def("announced", &ControlBlock::announced, py::arg("caller"), py::arg("pe"), py::arg("round"));
}
