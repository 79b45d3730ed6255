//===- PlanShmemCalls.cpp - Which routines a module calls, or why it cannot -===//

#include "Routines.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace triton_dist::shmem {
#define GEN_PASS_DEF_PLANSHMEMCALLS
#include "Shmem/ShmemPasses.h.inc"
} // namespace triton_dist::shmem

using namespace triton_dist::shmem;

namespace {

/// Triton's headers are no part of its wheel, so its ops are known by name.
bool isPartitioned(Operation *op) { return op->getName().getStringRef().starts_with("ttg.warp_specialize"); }

bool isInWarpSpecializedRegion(Operation *op) {
  for (Operation *parent = op->getParentOp(); parent; parent = parent->getParentOp())
    if (isPartitioned(parent))
      return true;
  return false;
}

/// What is wrong with `op`; empty when nothing is.
std::string findMistake(LibraryCall op, Transport transport, int64_t numCtas, bool hasPartitions) {
  StringRef name = op->getName().getStringRef();
  if (std::string why = whyUnavailable(op, transport); !why.empty())
    return llvm::formatv("{0} {1} on transport {2}", name, why, stringify(transport));
  if (op.getCaller() == Caller::EveryThread)
    return {};
  if (isInWarpSpecializedRegion(op))
    return llvm::formatv("{0} stands in a warp-specialised region: it needs every warp of the program, and a "
                         "partition has only some of them; move it out of the loop, or drop warp_specialize=True",
                         name);
  if (hasPartitions && transport != Transport::P2p && op.getCaller() == Caller::Block)
    return llvm::formatv(
        "{0} in a warp-specialised kernel: {1}'s routine would wait for the partitions' warps, too; give "
        "it scope=\"warp\" or \"thread\", or use transport p2p",
        name, stringify(transport));
  if (numCtas > 1)
    return llvm::formatv("{0} in a kernel with num_ctas={1}: it would act once per CTA instead of once per program; "
                         "use num_ctas=1",
                         name, numCtas);
  return {};
}

/// What looks wrong with `op` in a world of `nPes` PEs (0: not known); empty when nothing does.
std::string findDoubt(LibraryCall op, int32_t nPes) {
  Value pe = op.getPeOperand();
  auto constant = pe ? pe.getDefiningOp<arith::ConstantOp>() : nullptr;
  if (nPes == 0 || !constant)
    return {};
  int64_t value = cast<IntegerAttr>(constant.getValue()).getInt();
  if (value >= 0 && value < nPes)
    return {};
  return llvm::formatv("{0}: pe {1} is out of range [0, {2})", op->getName().getStringRef(), value, nPes);
}

std::string sourceLine(Location loc) {
  if (auto place = loc->findInstanceOf<FileLineColLoc>())
    return llvm::formatv("{0}:{1}:{2}", place.getFilename().strref(), place.getLine(), place.getColumn());
  return "unknown line";
}

struct PlanShmemCalls : triton_dist::shmem::impl::PlanShmemCallsBase<PlanShmemCalls> {
  using PlanShmemCallsBase::PlanShmemCallsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::optional<Transport> chosen = parseTransport(transport);
    if (!chosen)
      return signalPassFailure();
    bool hasPartitions =
        module.walk([](Operation *op) { return isPartitioned(op) ? WalkResult::interrupt() : WalkResult::advance(); })
            .wasInterrupted();
    auto numCtas = module->getAttrOfType<IntegerAttr>("ttg.num-ctas");
    llvm::MapVector<StringAttr, std::string> symbols;
    std::string error, warnings;
    module.walk([&](LibraryCall op) {
      std::string mistake = findMistake(op, *chosen, numCtas ? numCtas.getInt() : 1, hasPartitions);
      if (!mistake.empty()) {
        error = sourceLine(op->getLoc()) + ": " + mistake;
        return WalkResult::interrupt();
      }
      if (std::string doubt = findDoubt(op, nPes); !doubt.empty())
        warnings += sourceLine(op->getLoc()) + ": " + doubt + "\n";
      std::string use = sourceLine(op->getLoc()) + ": " + op->getName().getStringRef().str();
      symbols.insert({StringAttr::get(module.getContext(), routineOf(op, *chosen)), use});
      for (const std::string &variable : variablesOf(op, *chosen))
        symbols.insert({StringAttr::get(module.getContext(), variable), use});
      return WalkResult::advance();
    });

    if (!error.empty()) {
      module->setAttr("shmem.error", StringAttr::get(module.getContext(), error));
      return;
    }
    if (!warnings.empty())
      module->setAttr("shmem.warnings", StringAttr::get(module.getContext(), warnings));
    std::string lines;
    for (auto &[symbol, use] : symbols)
      lines += (symbol.getValue() + "\t" + use + "\n").str();
    module->setAttr("shmem.routines", StringAttr::get(module.getContext(), lines));
  }
};

} // namespace
