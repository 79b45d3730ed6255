//===- OpBuilders.h - Building shmem ops from Python ------------------------===//

#ifndef TRITON_DIST_PLUGIN_OPBUILDERS_H
#define TRITON_DIST_PLUGIN_OPBUILDERS_H

#include "TritonPluginApi.h"

#include "llvm/ADT/ArrayRef.h"

namespace triton_dist::plugin {

/// One entry per op of the dialect, named `shmem_<mnemonic>`.
llvm::MutableArrayRef<OpInfo> getOpBuilders();

} // namespace triton_dist::plugin

#endif // TRITON_DIST_PLUGIN_OPBUILDERS_H
