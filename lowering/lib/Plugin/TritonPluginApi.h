//===- TritonPluginApi.h - Triton's plugin ABI, version 2 -------------------===//
//
// Every fact about a Triton version's plugin ABI that C++ needs is here. Triton
// 3.7's and 3.8's wheels do not carry the header (include/triton/Tools/
// PluginUtils.h), so its layout is declared again; `apiVersion` guards it.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_PLUGIN_TRITONPLUGINAPI_H
#define TRITON_DIST_PLUGIN_TRITONPLUGINAPI_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Pass/PassManager.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// Triton's builder, of which only the head is ours to see. Not in a namespace: the layout is what counts.
class TritonOpBuilder {
public:
  mlir::OpBuilder &getBuilder() { return *builder; }
  mlir::Location getLastLoc() const { return *lastLoc; }

private:
  std::unique_ptr<mlir::OpBuilder> builder;
  std::unique_ptr<mlir::Location> lastLoc;
  bool lineInfoEnabled;
};

namespace triton_dist::plugin {

inline constexpr uint32_t kApiVersion = 2;

struct PassInfo {
  const char *name;
  const char *version;
  void (*addPass)(mlir::PassManager *manager, const std::vector<std::string> &arguments);
  void (*registerPass)();
};

struct DialectInfo {
  const char *name;
  const char *version;
  void (*registerDialect)(mlir::DialectRegistry *registry);
};

struct OpInfo {
  const char *name;
  void (*addOp)(TritonOpBuilder &builder, std::vector<mlir::Value> &arguments);
};

struct PluginInfo {
  uint32_t apiVersion;
  const char *name;
  const char *version;
  PassInfo *passes;
  size_t numPasses;
  DialectInfo *dialects;
  size_t numDialects;
  OpInfo *ops;
  size_t numOps;
  const char *tritonVersion;
};

} // namespace triton_dist::plugin

#endif // TRITON_DIST_PLUGIN_TRITONPLUGINAPI_H
