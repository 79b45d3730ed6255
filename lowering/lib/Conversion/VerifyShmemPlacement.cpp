//===- VerifyShmemPlacement.cpp - Where shmem ops may stand -----------------===//

#include "Shmem/Shmem.h"

using namespace mlir;

namespace triton_dist::shmem {
#define GEN_PASS_DEF_VERIFYSHMEMPLACEMENT
#include "Shmem/ShmemPasses.h.inc"
} // namespace triton_dist::shmem

using namespace triton_dist::shmem;

namespace {

/// Triton's headers are no part of its wheel, so its ops are known by name.
bool isInWarpSpecializedRegion(Operation *op) {
  for (Operation *parent = op->getParentOp(); parent; parent = parent->getParentOp())
    if (parent->getName().getStringRef().starts_with("ttg.warp_specialize"))
      return true;
  return false;
}

struct VerifyShmemPlacement : triton_dist::shmem::impl::VerifyShmemPlacementBase<VerifyShmemPlacement> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto numCtas = module->getAttrOfType<IntegerAttr>("ttg.num-ctas");
    bool isCluster = numCtas && numCtas.getInt() > 1;
    bool failed = false;
    module.walk([&](LibraryCall call) {
      if (call.getCaller() == Caller::EveryThread)
        return;
      Operation *op = call.getOperation();
      if (isInWarpSpecializedRegion(op)) {
        op->emitError() << op->getName() << " stands in a warp-specialised region: it needs every warp of the "
                        << "program, and a partition has only some of them; move it out of the loop or drop "
                        << "warp_specialize=True";
        failed = true;
      } else if (isCluster) {
        op->emitError() << op->getName() << " in a kernel with num_ctas=" << numCtas.getInt()
                        << ": it would act once per CTA instead of once per program; use num_ctas=1";
        failed = true;
      }
    });
    if (failed)
      signalPassFailure();
  }
};

} // namespace
