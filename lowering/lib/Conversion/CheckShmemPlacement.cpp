//===- CheckShmemPlacement.cpp - Where shmem ops may stand ------------------===//

#include "Shmem/Shmem.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace triton_dist::shmem {
#define GEN_PASS_DEF_CHECKSHMEMPLACEMENT
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

/// What is wrong with where `op` stands; empty when nothing is.
std::string findMistake(LibraryCall op, int64_t numCtas) {
  if (op.getCaller() == Caller::EveryThread)
    return {};
  StringRef name = op->getName().getStringRef();
  if (isInWarpSpecializedRegion(op))
    return llvm::formatv("{0} stands in a warp-specialised region: it needs every warp of the program, and a "
                         "partition has only some of them; move it out of the loop, or drop warp_specialize=True",
                         name);
  if (numCtas > 1)
    return llvm::formatv("{0} in a kernel with num_ctas={1}: it would act once per CTA instead of once per program; "
                         "use num_ctas=1",
                         name, numCtas);
  return {};
}

std::string sourceLine(Location loc) {
  if (auto place = loc->findInstanceOf<FileLineColLoc>())
    return llvm::formatv("{0}:{1}:{2}", place.getFilename().strref(), place.getLine(), place.getColumn());
  return "unknown line";
}

struct CheckShmemPlacement : triton_dist::shmem::impl::CheckShmemPlacementBase<CheckShmemPlacement> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto numCtas = module->getAttrOfType<IntegerAttr>("ttg.num-ctas");
    module.walk([&](LibraryCall op) {
      std::string mistake = findMistake(op, numCtas ? numCtas.getInt() : 1);
      if (mistake.empty())
        return WalkResult::advance();
      std::string message = sourceLine(op->getLoc()) + ": " + mistake;
      module->setAttr("shmem.error", StringAttr::get(module.getContext(), message));
      return WalkResult::interrupt();
    });
  }
};

} // namespace
