//===- Plugin.cpp - What Triton finds in this library -----------------------===//
//
// Registers, and nothing else.
//
//===----------------------------------------------------------------------===//

#include "OpBuilders.h"
#include "TritonPluginApi.h"

#include "Shmem/Shmem.h"

using namespace mlir;
using namespace triton_dist;

static_assert(plugin::kApiVersion == TRITON_DIST_PLUGIN_API_VERSION,
              "this Triton has another plugin ABI: describe it in TritonPluginApi.h");

static void addConvertShmemToLLVM(PassManager *manager, const std::vector<std::string> &) {
  manager->addPass(shmem::createConvertShmemToLLVM());
}

static void addCheckShmemPlacement(PassManager *manager, const std::vector<std::string> &) {
  manager->addPass(shmem::createCheckShmemPlacement());
}

static void registerShmem(DialectRegistry *registry) { registry->insert<shmem::ShmemDialect>(); }

extern "C" __attribute__((visibility("default"))) plugin::PluginInfo *tritonGetPluginInfo() {
  static plugin::PassInfo passes[] = {
      {"shmem_to_llvm", TRITON_DIST_VERSION, addConvertShmemToLLVM, [] {}},
      {"shmem_check", TRITON_DIST_VERSION, addCheckShmemPlacement, [] {}},
  };
  static plugin::DialectInfo dialects[] = {{"shmem", TRITON_DIST_VERSION, registerShmem}};
  static plugin::PluginInfo info = {plugin::kApiVersion,
                                    "triton_dist",
                                    TRITON_DIST_VERSION,
                                    passes,
                                    std::size(passes),
                                    dialects,
                                    std::size(dialects),
                                    plugin::getOpBuilders().data(),
                                    plugin::getOpBuilders().size(),
                                    TRITON_DIST_TRITON_VERSION};
  return &info;
}
