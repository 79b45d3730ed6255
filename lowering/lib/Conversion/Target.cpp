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

/// One instruction across which the compiler moves no access.
void emitPtx(OpBuilder &builder, Location loc, StringRef instruction) {
  MLIRContext *context = builder.getContext();
  LLVM::InlineAsmOp::create(builder, loc, TypeRange(), ValueRange(), instruction, "~{memory}",
                            /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr::get(context, LLVM::AsmDialect::AD_ATT), ArrayAttr());
}

class Nvidia : public Target {
  void publish(OpBuilder &, Location) const override {} // PTX causality is cumulative
  /// Triton writes some of these instructions itself, and others by way of NVVM. (The words are those of loads and
  /// stores, reductions, gathers and scatters, of tensors or not; cp.async, without .bulk, belongs to the generic
  /// proxy.)
  bool isTmaCopy(Operation *op) const override {
    if (auto assembly = dyn_cast<LLVM::InlineAsmOp>(op))
      return assembly.getAsmString().contains("async.bulk.");
    if (auto intrinsic = dyn_cast<LLVM::CallIntrinsicOp>(op))
      return intrinsic.getIntrin().starts_with("llvm.nvvm.cp.async.bulk.");
    return op->getName().getStringRef().starts_with("nvvm.cp.async.bulk.");
  }
  /// Triton waits until shared memory has been read (.read). Without that word a thread waits until its stores are
  /// written and visible to itself, to the generic proxy, too: their completion is followed by an implicit proxy fence
  /// (PTX ISA, "cp.async.bulk.wait_group" and "Async proxy"). From there on they are ordered as its own stores.
  void completeTmaStores(OpBuilder &builder, Location loc) const override {
    emitPtx(builder, loc, "cp.async.bulk.wait_group 0;");
  }
  /// Causality between accesses through different proxies needs a proxy fence on the way, in the CTA of the one that is
  /// not generic (PTX ISA, "Causality order", proxy-preserved base causality order; Lustig et al., Mixed-Proxy
  /// Extensions for the NVIDIA PTX Memory Consistency Model, section 5.4).
  void orderTmaCopies(OpBuilder &builder, Location loc) const override {
    emitPtx(builder, loc, "fence.proxy.async.global;");
  }
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
  bool isTmaCopy(Operation *) const override { return false; }
  void completeTmaStores(OpBuilder &, Location) const override {}
  void orderTmaCopies(OpBuilder &, Location) const override {}
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
