//===- OrderAsyncCopies.cpp - Order of asynchronous copies and later ops ----===//

#include "Target.h"

#include "Shmem/Shmem.h"

#include "mlir/IR/Builders.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace triton_dist::shmem {
#define GEN_PASS_DEF_ORDERASYNCCOPIES
#include "Shmem/ShmemPasses.h.inc"
} // namespace triton_dist::shmem

using namespace triton_dist::shmem;

namespace {

// Triton's wheel does not contain its headers, so its ops are identified by name.

StringRef nameOf(Operation *op) { return op->getName().getStringRef(); }

/// Whether `place`, an op or a region, contains an op for which `predicate` is true.
template <typename Place> bool contains(Place &place, llvm::function_ref<bool(Operation *)> predicate) {
  return place.walk([&](Operation *op) { return predicate(op) ? WalkResult::interrupt() : WalkResult::advance(); })
      .wasInterrupted();
}

/// Whether earlier accesses must be complete before `op`, or before an op of a function that it calls.
bool comesBehindAccesses(Operation *op) {
  if (nameOf(op) == "tt.call")
    return true;
  auto call = dyn_cast<LibraryCall>(op);
  return call && (call.isRelease() || call.isRma());
}

/// Whether `op` may issue an awaited copy, or write to a barrier that a wait polls. Reads of shared memory do neither.
bool affectsWaits(Operation *op) {
  StringRef dialect = op->getName().getDialectNamespace();
  return (dialect == "ttg" || dialect == "ttng") && !isMemoryEffectFree(op) &&
         !hasSingleEffect<MemoryEffects::Read>(op);
}

bool isWaitForCopies(Operation *op) { return nameOf(op) == "ttng.wait_barrier" || nameOf(op) == "ttg.async_wait"; }

/// The earliest op that requires complete accesses and before which `wait` can move; null if there is none. The move
/// passes over no op that issues an awaited copy, so the wait still ends.
Operation *firstOpToWaitBefore(Operation *wait) {
  Operation *first = nullptr;
  for (Operation *op = wait->getPrevNode(); op && !contains(*op, affectsWaits); op = op->getPrevNode())
    if (contains(*op, comesBehindAccesses))
      first = op;
  return first;
}

/// Moves `op` and the definitions of its operands before `place`, in the same block. False if a definition cannot move.
bool moveBefore(Operation *op, Operation *place) {
  llvm::SetVector<Operation *> moved;
  moved.insert(op);
  for (size_t i = 0; i < moved.size(); ++i)
    for (Value operand : moved[i]->getOperands()) {
      Operation *definition = operand.getDefiningOp();
      if (!definition || definition->getBlock() != place->getBlock() || definition->isBeforeInBlock(place))
        continue;
      if (definition->getNumRegions() || !isMemoryEffectFree(definition))
        return false;
      moved.insert(definition);
    }
  SmallVector<Operation *> inOrder = moved.takeVector();
  llvm::sort(inOrder, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *next : inOrder)
    next->moveBefore(place);
  return true;
}

bool storesByTma(Operation *op) {
  StringRef name = nameOf(op);
  return name == "ttng.async_tma_copy_local_to_global" || name == "ttng.async_tma_reduce" ||
         name == "ttng.async_tma_scatter" || name == "tt.elementwise_inline_asm" || name == "tt.call";
}

struct OrderAsyncCopies : triton_dist::shmem::impl::OrderAsyncCopiesBase<OrderAsyncCopies> {
  using OrderAsyncCopiesBase::OrderAsyncCopiesBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!contains(module, [](Operation *op) { return isa<LibraryCall>(op) && comesBehindAccesses(op); }))
      return;
    SmallVector<Operation *> waits, partitionEnds;
    module.walk([&](Operation *op) {
      if (isWaitForCopies(op))
        waits.push_back(op);
      if (nameOf(op) == "ttg.warp_return" && contains(*op->getParentRegion(), storesByTma))
        partitionEnds.push_back(op);
    });
    for (Operation *wait : waits)
      if (Operation *place = firstOpToWaitBefore(wait))
        moveBefore(wait, place);
    const Target &target = Target::of(module);
    for (Operation *end : partitionEnds) {
      OpBuilder builder(end);
      target.completeTmaStores(builder, end->getLoc());
    }
  }
};

} // namespace
