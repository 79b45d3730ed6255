//===- Target.cpp - What the lowering asks of a GPU -------------------------===//

#include "Target.h"

using namespace mlir;
using namespace triton_dist::shmem;

namespace {

Value i32(OpBuilder &builder, Location loc, int32_t value) {
  return LLVM::ConstantOp::create(builder, loc, builder.getI32Type(), value);
}

void callVoid(OpBuilder &builder, Location loc, StringRef intrinsic, ValueRange arguments = {}) {
  LLVM::CallIntrinsicOp::create(builder, loc, builder.getStringAttr(intrinsic), arguments);
}

Value callI32(OpBuilder &builder, Location loc, StringRef intrinsic) {
  return LLVM::CallIntrinsicOp::create(builder, loc, builder.getI32Type(), builder.getStringAttr(intrinsic),
                                       ValueRange())
      .getResult(0);
}

class Nvidia : public Target {
  void publish(OpBuilder &, Location) const override {} // PTX causality is cumulative
  void barrier(OpBuilder &builder, Location loc, int32_t threads) const override {
    Value barrier = i32(builder, loc, 0); // Triton's own, too
    if (threads)
      callVoid(builder, loc, "llvm.nvvm.barrier.cta.sync.aligned.count", {barrier, i32(builder, loc, threads)});
    else
      callVoid(builder, loc, "llvm.nvvm.barrier.cta.sync.aligned.all", barrier);
  }
  Value threadId(OpBuilder &builder, Location loc) const override {
    return callI32(builder, loc, "llvm.nvvm.read.ptx.sreg.tid.x");
  }
  StringRef syncScope(MemScope scope) const override {
    switch (scope) {
    case MemScope::Cta:
      return "block";
    case MemScope::Gpu:
      return "device";
    case MemScope::Sys:
      return "";
    }
    llvm_unreachable("a memory scope without a name");
  }
  int32_t warpSize() const override { return 32; }
};

class Amd : public Target {
  /// A fence waits for the stores of its own wave, and at work-group scope for none to memory. So the threads of other
  /// waves would see these stores, but could not publish them (llvm/llvm-project#160501).
  void publish(OpBuilder &builder, Location loc) const override {
    LLVM::FenceOp::create(builder, loc, LLVM::AtomicOrdering::release, syncScope(MemScope::Gpu));
  }
  /// s_barrier makes threads meet, and the fences around it what they wrote visible, as HIP's __syncthreads does.
  void barrier(OpBuilder &builder, Location loc, int32_t) const override {
    LLVM::FenceOp::create(builder, loc, LLVM::AtomicOrdering::release, syncScope(MemScope::Cta));
    callVoid(builder, loc, "llvm.amdgcn.s.barrier");
    LLVM::FenceOp::create(builder, loc, LLVM::AtomicOrdering::acquire, syncScope(MemScope::Cta));
  }
  Value threadId(OpBuilder &builder, Location loc) const override {
    return callI32(builder, loc, "llvm.amdgcn.workitem.id.x");
  }
  StringRef syncScope(MemScope scope) const override {
    switch (scope) {
    case MemScope::Cta:
      return "workgroup";
    case MemScope::Gpu:
      return "agent";
    case MemScope::Sys:
      return "";
    }
    llvm_unreachable("a memory scope without a name");
  }
  int32_t warpSize() const override { return 64; }
};

} // namespace

const Target &Target::of(ModuleOp module) {
  static const Nvidia nvidia;
  static const Amd amd;
  auto target = module->getAttrOfType<StringAttr>("ttg.target");
  if (target && target.getValue().starts_with("hip"))
    return amd;
  return nvidia;
}
