//===- Bindings.h - One function for each domain of the runtime -*- C++ -*-===//

#ifndef TRITON_DIST_PYTHON_BINDINGS_H
#define TRITON_DIST_PYTHON_BINDINGS_H

#include <pybind11/pybind11.h>

namespace triton_dist {

void registerAtomics(pybind11::module_ &module);
void registerHeap(pybind11::module_ &module);
void registerControl(pybind11::module_ &module);

} // namespace triton_dist

#endif // TRITON_DIST_PYTHON_BINDINGS_H
