//===- Module.cpp - triton_dist._C._runtime -------------------------------===//

#include "Bindings.h"

PYBIND11_MODULE(_runtime, module) {
  module.doc() = "The CPU world below Python: symmetric heap, atomics, control "
                 "block. Addresses are plain integers.";
  triton_dist::registerAtomics(module);
  triton_dist::registerHeap(module);
  triton_dist::registerControl(module);
}
