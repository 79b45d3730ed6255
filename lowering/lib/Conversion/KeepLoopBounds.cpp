//===- KeepLoopBounds.cpp - Bounds of loops that other loops carry ----------===//

#include "Shmem/Shmem.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace triton_dist::shmem {
#define GEN_PASS_DEF_KEEPLOOPBOUNDS
#include "Shmem/ShmemPasses.h.inc"
} // namespace triton_dist::shmem

using namespace triton_dist::shmem;

namespace {

// Triton's ops are identified by name, and so is scf.for, whose operands are the lower bound, the upper one, the step,
// and what the loop begins to carry.
constexpr unsigned kBounds = 3;

bool isLoop(Operation *op) { return op && op->getName().getStringRef() == "scf.for"; }

/// Whether `value` depends on what a loop around `loop` carries.
bool isCarriedAround(Operation *loop, Value value) {
  llvm::SetVector<Value> found;
  found.insert(value);
  for (size_t i = 0; i < found.size(); ++i) {
    if (auto argument = dyn_cast<BlockArgument>(found[i])) {
      Operation *around = argument.getOwner()->getParentOp();
      if (isLoop(around) && argument.getArgNumber() > 0 && around->isProperAncestor(loop)) // 0: the loop's variable
        return true;
      continue;
    }
    // With the ops in its regions, of which some make what it returns.
    found[i].getDefiningOp()->walk([&](Operation *op) { found.insert(op->operand_begin(), op->operand_end()); });
  }
  return false;
}

/// An op that does nothing, has side effects, and takes `value`.
void keep(OpBuilder &builder, Location loc, Value value, bool isAmd) {
  StringRef constraint = isAmd ? "v" : value.getType().isInteger(64) ? "l" : "r";
  LLVM::InlineAsmOp::create(builder, loc, TypeRange(), value, "", constraint, /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr::get(builder.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
}

struct KeepLoopBounds : triton_dist::shmem::impl::KeepLoopBoundsBase<KeepLoopBounds> {
  explicit KeepLoopBounds(bool isAmd) : isAmd(isAmd) {}

  void runOnOperation() override {
    SmallVector<Operation *> loops;
    getOperation().walk([&](Operation *op) {
      if (isLoop(op))
        loops.push_back(op);
    });
    for (Operation *loop : loops) {
      OpBuilder builder(loop);
      llvm::SetVector<Value> bounds(loop->operand_begin(), loop->operand_begin() + kBounds);
      for (Value bound : bounds)
        if (bound.getType().isInteger(32) || bound.getType().isInteger(64))
          if (isCarriedAround(loop, bound))
            keep(builder, loop->getLoc(), bound, isAmd);
    }
  }

  bool isAmd;
};

} // namespace

std::unique_ptr<Pass> triton_dist::shmem::createKeepLoopBounds(StringRef backend) {
  return std::make_unique<KeepLoopBounds>(backend == "hip");
}
