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

// Triton hands a pass its arguments as strings; the first of ours is the transport, or Triton's backend.

static void addConvertShmemToLLVM(PassManager *manager, const std::vector<std::string> &arguments) {
  manager->addPass(shmem::createConvertShmemToLLVM(arguments.at(0)));
}

static void addPlanShmemCalls(PassManager *manager, const std::vector<std::string> &arguments) {
  manager->addPass(shmem::createPlanShmemCalls(arguments.at(0), std::stoi(arguments.at(1))));
}

static void addOrderAsyncCopies(PassManager *manager, const std::vector<std::string> &) {
  manager->addPass(shmem::createOrderAsyncCopies());
}

static void addKeepLoopBounds(PassManager *manager, const std::vector<std::string> &arguments) {
  manager->addPass(shmem::createKeepLoopBounds(arguments.at(0)));
}

static void registerShmem(DialectRegistry *registry) { registry->insert<shmem::ShmemDialect>(); }

extern "C" __attribute__((visibility("default"))) plugin::PluginInfo *tritonGetPluginInfo() {
  static plugin::PassInfo passes[] = {
      {"shmem_to_llvm", TRITON_DIST_VERSION, addConvertShmemToLLVM, [] {}},
      {"shmem_keep_bounds", TRITON_DIST_VERSION, addKeepLoopBounds, [] {}},
      {"shmem_order", TRITON_DIST_VERSION, addOrderAsyncCopies, [] {}},
      {"shmem_plan", TRITON_DIST_VERSION, addPlanShmemCalls, [] {}},
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
