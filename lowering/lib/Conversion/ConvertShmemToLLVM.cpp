//===- ConvertShmemToLLVM.cpp - shmem ops to device library calls -----------===//
//
// Generic over the op table: who calls what, with which arguments and which
// ordering, comes from the LibraryCall interface. What is spelled here is how a
// program's threads meet, how one of them is elected, and how fences make the
// meeting count for other PEs:
//
//   every thread   call
//   block          barrier, [release fence], call, [acquire fence], barrier
//   elected        barrier, thread 0: { [release fence], call, [acquire fence] }, barrier
//
// Fences are at system scope. PTX causality is cumulative: what other threads
// wrote before the barrier is covered by the fence of a thread behind it. In the
// block form every thread fences, because the library does not say which of them
// will write or poll a flag.
//
//===----------------------------------------------------------------------===//

#include "Shmem/Nvshmem.h"
#include "Shmem/Shmem.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace triton_dist::shmem {
#define GEN_PASS_DEF_CONVERTSHMEMTOLLVM
#include "Shmem/ShmemPasses.h.inc"
} // namespace triton_dist::shmem

using namespace triton_dist;
using namespace triton_dist::shmem;

namespace {

//===----------------------------------------------------------------------===//
// NVSHMEM's numbers
//===----------------------------------------------------------------------===//

int64_t libraryValue(SignalUpdate update) {
  switch (update) {
  case SignalUpdate::Set:
    return nvshmem::kSignalSet;
  case SignalUpdate::Add:
    return nvshmem::kSignalAdd;
  }
  llvm_unreachable("a signal update without a number");
}

int64_t libraryValue(Cmp cmp) {
  switch (cmp) {
  case Cmp::Eq:
    return nvshmem::kCmpEq;
  case Cmp::Ne:
    return nvshmem::kCmpNe;
  case Cmp::Gt:
    return nvshmem::kCmpGt;
  case Cmp::Ge:
    return nvshmem::kCmpGe;
  case Cmp::Lt:
    return nvshmem::kCmpLt;
  case Cmp::Le:
    return nvshmem::kCmpLe;
  }
  llvm_unreachable("a comparison without a number");
}

/// The attribute called `name` of `op`, as the library's C int.
int64_t libraryValue(Operation *op, StringRef name) {
  int64_t value = cast<IntegerAttr>(op->getAttr(name)).getInt();
  return name == "cmp" ? libraryValue(static_cast<Cmp>(value)) : libraryValue(static_cast<SignalUpdate>(value));
}

//===----------------------------------------------------------------------===//
// The program's threads
//===----------------------------------------------------------------------===//

/// Emits code at one op on behalf of the whole program.
class ProgramBuilder {
public:
  ProgramBuilder(Operation *op) : builder(op), loc(op->getLoc()) {}

  OpBuilder &operator*() { return builder; }
  OpBuilder *operator->() { return &builder; }
  Location getLoc() const { return loc; }

  Value constant(Type type, int64_t value) { return LLVM::ConstantOp::create(builder, loc, type, value); }
  Value i32(int32_t value) { return constant(builder.getI32Type(), value); }

  void barrier() { intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", {}, i32(0)); }

  void systemFence(LLVM::AtomicOrdering ordering) { LLVM::FenceOp::create(builder, loc, ordering, StringRef()); }

  /// Runs `body` on thread 0 alone; the insertion point ends up behind it. The caller places the barriers.
  void onElectedThread(llvm::function_ref<void()> body) {
    Value thread = intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", builder.getI32Type(), {});
    Value isElected = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::eq, thread, i32(0));
    Block *before = builder.getInsertionBlock();
    Block *joined = before->splitBlock(builder.getInsertionPoint());
    Block *elected = builder.createBlock(joined);
    builder.setInsertionPointToEnd(before);
    LLVM::CondBrOp::create(builder, loc, isElected, elected, joined);
    builder.setInsertionPointToStart(elected);
    body();
    LLVM::BrOp::create(builder, loc, joined);
    builder.setInsertionPointToStart(joined);
  }

private:
  Value intrinsic(StringRef name, Type result, ValueRange arguments) {
    StringAttr symbol = builder.getStringAttr(name);
    if (!result)
      return LLVM::CallIntrinsicOp::create(builder, loc, symbol, arguments), Value();
    return LLVM::CallIntrinsicOp::create(builder, loc, result, symbol, arguments).getResult(0);
  }

  OpBuilder builder;
  Location loc;
};

//===----------------------------------------------------------------------===//
// Shared memory for results
//===----------------------------------------------------------------------===//

/// 16 bytes of shared memory behind those that the kernel uses, for handing an
/// elected thread's result to the others. Appended to the dynamic allocation,
/// not a global of its own: a static one would shift Triton's base, which TMA
/// and wgmma need aligned to 1024 bytes.
class ResultSlot {
public:
  explicit ResultSlot(ModuleOp module) : module(module) {}

  Value address(ProgramBuilder &b) {
    auto shared = LLVM::LLVMPointerType::get(module.getContext(), /*addressSpace=*/3);
    Value base = LLVM::AddressOfOp::create(*b, b.getLoc(), shared, kSharedMemory);
    return LLVM::GEPOp::create(*b, b.getLoc(), shared, b->getI8Type(), base, ArrayRef<LLVM::GEPArg>{offset()});
  }

private:
  static constexpr int32_t kBytes = 16;
  static constexpr StringLiteral kSharedMemory = "global_smem"; // Triton's name for the dynamic allocation

  int32_t offset() {
    if (reserved < 0) {
      auto used = module->getAttrOfType<IntegerAttr>("ttg.shared");
      reserved = llvm::alignTo(used ? used.getInt() : 0, kBytes);
      module->setAttr("ttg.shared", IntegerAttr::get(IntegerType::get(module.getContext(), 32), reserved + kBytes));
    }
    return reserved;
  }

  ModuleOp module;
  int32_t reserved = -1;
};

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// `value` as the library takes it: pointers are generic, Triton's are global.
/// Triton's conversion leaves a cast from its LLVM value in front of our operand.
Value libraryArgument(ProgramBuilder &b, Value value) {
  if (!isScalarPointer(value.getType()))
    return value;
  auto generic = LLVM::LLVMPointerType::get(b->getContext());
  if (auto conversion = value.getDefiningOp<UnrealizedConversionCastOp>())
    if (conversion.getNumOperands() == 1 && isa<LLVM::LLVMPointerType>(conversion.getOperand(0).getType()))
      value = conversion.getOperand(0);
  if (value.getType() == generic)
    return value;
  return LLVM::AddrSpaceCastOp::create(*b, b.getLoc(), generic, value);
}

LLVM::LLVMFuncOp declare(ModuleOp module, StringRef name, Type result, TypeRange arguments) {
  if (auto declared = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
    return declared;
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  auto type = LLVM::LLVMFunctionType::get(result, llvm::to_vector(arguments));
  auto function = LLVM::LLVMFuncOp::create(builder, module.getLoc(), name, type);
  function.setConvergent(true); // block routines hold barriers
  return function;
}

/// The op's one library call; its result, if any, as the library returns it.
Value call(ProgramBuilder &b, LibraryCall op, ArrayRef<Value> arguments) {
  Type result = LLVM::LLVMVoidType::get(b->getContext());
  bool returnsPointer = isa<SymmOffsetOp>(op.getOperation());
  if (returnsPointer)
    result = LLVM::LLVMPointerType::get(b->getContext());
  else if (op->getNumResults())
    result = op->getResult(0).getType();
  auto callee =
      declare(op->getParentOfType<ModuleOp>(), op.getNvshmemCallee(), result, ValueRange(arguments).getTypes());
  auto called = LLVM::CallOp::create(*b, b.getLoc(), callee, arguments);
  if (returnsPointer) {
    Value there = LLVM::PtrToIntOp::create(*b, b.getLoc(), b->getI64Type(), called.getResult());
    Value here = LLVM::PtrToIntOp::create(*b, b.getLoc(), b->getI64Type(), arguments.front());
    return LLVM::SubOp::create(*b, b.getLoc(), there, here);
  }
  return op->getNumResults() ? called.getResult() : Value();
}

/// Emits the call with what surrounds it; the value that replaces the op's result.
Value lower(LibraryCall op, ResultSlot &slot) {
  ProgramBuilder b(op);

  SmallVector<Value> arguments;
  unsigned operand = 0;
  for (StringRef attribute : op.getCallSignature())
    arguments.push_back(attribute.empty() ? libraryArgument(b, op->getOperand(operand++))
                                          : b.i32(libraryValue(op, attribute)));

  auto orderedCall = [&] {
    if (op.isRelease())
      b.systemFence(LLVM::AtomicOrdering::acq_rel);
    Value result = call(b, op, arguments);
    if (op.isAcquire())
      b.systemFence(LLVM::AtomicOrdering::acq_rel);
    return result;
  };

  Value result;
  switch (op.getCaller()) {
  case Caller::EveryThread:
    return call(b, op, arguments);
  case Caller::Block:
    b.barrier();
    result = orderedCall();
    b.barrier();
    return result;
  case Caller::Elected:
    b.barrier();
    b.onElectedThread([&] {
      if (Value onOneThread = orderedCall())
        LLVM::StoreOp::create(*b, b.getLoc(), onOneThread, slot.address(b));
    });
    b.barrier();
    if (op->getNumResults())
      result = LLVM::LoadOp::create(*b, b.getLoc(), op->getResult(0).getType(), slot.address(b));
    return result;
  }
  llvm_unreachable("a caller that is not lowered");
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

struct ConvertShmemToLLVM : triton_dist::shmem::impl::ConvertShmemToLLVMBase<ConvertShmemToLLVM> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    ResultSlot slot(module);

    SmallVector<Operation *> ops;
    module.walk([&](Operation *op) {
      if (isa<ShmemDialect>(op->getDialect()))
        ops.push_back(op);
    });

    for (Operation *op : ops) {
      ProgramBuilder b(op);
      if (auto libraryCall = dyn_cast<LibraryCall>(op)) {
        if (Value result = lower(libraryCall, slot))
          op->getResult(0).replaceAllUsesWith(result);
      } else {
        // What Triton's passes must not know, LLVM may: the token is zero, the condition true.
        int64_t value = isa<AlwaysOp>(op) ? 1 : 0;
        op->getResult(0).replaceAllUsesWith(b.constant(op->getResult(0).getType(), value));
      }
      op->erase();
    }

    // Conversions to Triton's pointer type that only our operands used.
    module.walk([](UnrealizedConversionCastOp conversion) {
      if (conversion->use_empty())
        conversion->erase();
    });
  }
};

} // namespace
