//===- ConvertShmemToLLVM.cpp - shmem ops to device library calls -----------===//
//
// Generic over the op table: who calls what, with which arguments and which
// ordering, comes from the LibraryCall interface. What is spelled here is how a
// program's threads meet, how some of them are elected, and how fences make the
// barrier count for other PEs:
//
//   every thread   call
//   block          barrier, [release fence], call, [acquire fence], barrier
//   warp           barrier, warp 0: { [release fence], call, [acquire fence] }, barrier
//   elected        barrier, thread 0: { [release fence], call, [acquire fence] }, barrier
//
// Our own library (p2p) knows which of its threads signal and which poll, and fences there.
// Fences are at system scope unless an op says less, and no stronger than needed: on
// NVIDIA's GPUs one that only acquires waits for nothing. Causality is cumulative (on AMD
// with the help of what each thread does before it meets the others: publish):
// what other threads wrote before the barrier is covered by the fence of a thread
// behind it. Every thread that takes part in a call fences, because a foreign library
// does not say which of them will write or poll a flag.
//
// All this orders accesses of the generic proxy. In a kernel that copies by TMA, every thread
// also completes its TMA stores before the first barrier, unless the op only acquires or is a
// relaxed atomic, and orders its TMA copies after the last one. Which thread issues a copy is
// not known here, so all do; behind the barrier, so that the proxy fence lies between what any
// thread wrote or acquired and the copy of any other, those of partitions that start later, too.
//
//===----------------------------------------------------------------------===//

#include "Rocshmem.h"
#include "Routines.h"
#include "Target.h"
#include "WaitSites.h"

#include "Shmem/Nvshmem.h"

#include "mlir/IR/Builders.h"

#include <set>

using namespace mlir;

namespace triton_dist::shmem {
#define GEN_PASS_DEF_CONVERTSHMEMTOLLVM
#include "Shmem/ShmemPasses.h.inc"
} // namespace triton_dist::shmem

using namespace triton_dist;
using namespace triton_dist::shmem;

/// For what links the module: it calls functions that no library of ours has (Triton's device library, printf).
static constexpr StringLiteral kCallsOthers = "shmem.calls_others";

/// What our own library asks a kernel (runtime/device/Target.h).
static constexpr StringLiteral kProgramThreads = "triton_dist_program_threads";

namespace {

//===----------------------------------------------------------------------===//
// The program's threads
//===----------------------------------------------------------------------===//

/// Emits code at one op on behalf of the whole program.
class ProgramBuilder {
public:
  /// `threads`: see Target::barrier.
  ProgramBuilder(Operation *op, const Target &target, int32_t threads)
      : builder(op), loc(op->getLoc()), target(target), threads(threads) {}

  OpBuilder &operator*() { return builder; }
  OpBuilder *operator->() { return &builder; }
  Location getLoc() const { return loc; }

  Value constant(Type type, int64_t value) { return LLVM::ConstantOp::create(builder, loc, type, value); }
  Value i32(int32_t value) { return constant(builder.getI32Type(), value); }

  void barrier() { target.barrier(builder, loc, threads); }

  void fence(LLVM::AtomicOrdering ordering, MemScope scope) {
    LLVM::FenceOp::create(builder, loc, ordering, target.syncScope(scope));
  }

  /// Runs `body` on the first `count` threads alone; the insertion point ends up behind it. Barriers are the caller's.
  void onFirstThreads(int32_t count, llvm::function_ref<void()> body) {
    Value thread = target.threadId(builder, loc);
    Value isElected = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::ult, thread, i32(count));
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

  /// Runs `body` for each number from 0 up to `count`, an i64; the insertion point ends up behind it.
  void forEach(Value count, llvm::function_ref<void(Value)> body) {
    Type i64 = builder.getI64Type();
    Value zero = constant(i64, 0), one = constant(i64, 1);
    Block *before = builder.getInsertionBlock();
    Block *after = before->splitBlock(builder.getInsertionPoint());
    Block *head = builder.createBlock(after, TypeRange(i64), loc);
    Block *inside = builder.createBlock(after);
    builder.setInsertionPointToEnd(before);
    LLVM::BrOp::create(builder, loc, zero, head);
    builder.setInsertionPointToStart(head);
    Value number = head->getArgument(0);
    Value isLess = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::ult, number, count);
    LLVM::CondBrOp::create(builder, loc, isLess, inside, after);
    builder.setInsertionPointToStart(inside);
    body(number);
    Value next = LLVM::AddOp::create(builder, loc, number, one);
    LLVM::BrOp::create(builder, loc, next, head);
    builder.setInsertionPointToStart(after);
  }

private:
  OpBuilder builder;
  Location loc;
  const Target &target;
  int32_t threads;
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
    if (!module.lookupSymbol(kSharedMemory))
      declareSharedMemory();
    Value base = LLVM::AddressOfOp::create(*b, b.getLoc(), shared, kSharedMemory);
    return LLVM::GEPOp::create(*b, b.getLoc(), shared, b->getI8Type(), base, ArrayRef<LLVM::GEPArg>{offset()});
  }

private:
  static constexpr int32_t kBytes = 16;
  static constexpr StringLiteral kSharedMemory = "global_smem"; // Triton's name for the dynamic allocation

  /// As Triton declares it. Modules that Triton has not made may lack it.
  void declareSharedMemory() {
    OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
    auto bytes = LLVM::LLVMArrayType::get(builder.getI8Type(), 0);
    LLVM::GlobalOp::create(builder, module.getLoc(), bytes, /*isConstant=*/false, LLVM::Linkage::External,
                           kSharedMemory,
                           /*value=*/Attribute(), /*alignment=*/16, /*addrSpace=*/3);
  }

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
  function.setConvergent(true); // routines for more than a thread hold barriers
  return function;
}

/// Lowers the ops of one module for one transport.
class Lowering {
public:
  Lowering(ModuleOp module, Transport transport)
      : module(module), transport(transport), target(Target::of(module)), slot(module) {
    auto threads = module->getAttrOfType<IntegerAttr>("ttg.threads-per-warp");
    warpSize = threads ? threads.getInt() : target.warpSize();
    auto warps = module->getAttrOfType<IntegerAttr>("ttg.num-warps");
    auto launched = module->getAttrOfType<IntegerAttr>("ttg.total-num-warps");
    programThreads = warps ? warps.getInt() * warpSize : 0;
    module.walk([&](Operation *op) { copiesByTma |= target.isTmaCopy(op); });
    barrierThreads = warps && launched && launched.getInt() > warps.getInt() ? programThreads : 0;
  }

  void lower(Operation *op) {
    Value result;
    if (auto number = dyn_cast<OpaqueNumber>(op)) {
      ProgramBuilder b(op, target, barrierThreads);
      result = b.constant(op->getResult(0).getType(), number.getNumber());
    } else {
      result = lowerCall(cast<LibraryCall>(op));
    }
    if (result)
      op->getResult(0).replaceAllUsesWith(result);
    op->erase();
  }

  /// Tells our own library how many threads the program has: a function of the kernel's module, for LLVM to inline.
  void defineProgramThreads() {
    if (!programThreads)
      return; // no kernel of Triton's
    // Triton's AMD backend takes the first function for the kernel.
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(), {});
    auto function =
        LLVM::LLVMFuncOp::create(builder, module.getLoc(), kProgramThreads, type, LLVM::Linkage::LinkonceODR);
    builder.setInsertionPointToStart(function.addEntryBlock(builder));
    Value threads = LLVM::ConstantOp::create(builder, module.getLoc(), builder.getI32Type(), programThreads);
    LLVM::ReturnOp::create(builder, module.getLoc(), threads);
  }

  /// Whether the module also calls functions that no library of ours has.
  bool callsOthers() {
    return llvm::any_of(module.getOps<LLVM::LLVMFuncOp>(), [&](LLVM::LLVMFuncOp function) {
      return function.isExternal() && routines.count(function.getName().str()) == 0 &&
             !function.getName().starts_with("llvm.");
    });
  }

private:
  /// Emits the call, ordered with the accesses of all threads. Returns the replacement of the op's result.
  Value lowerCall(LibraryCall op) {
    ProgramBuilder b(op, target, barrierThreads);
    bool comesBehind = op.isRelease() || op.isRma();
    if (copiesByTma && comesBehind)
      target.completeTmaStores(*b, b.getLoc());
    Value result = lowerCallBetweenBarriers(b, op);
    if (copiesByTma && (comesBehind || op.isAcquire()))
      target.orderTmaCopies(*b, b.getLoc());
    return result;
  }

  Value lowerCallBetweenBarriers(ProgramBuilder &b, LibraryCall op) {

    SmallVector<Value> arguments;
    Returns returns = op.getReturns(transport);
    if (returns == Returns::HeapDistance || returns == Returns::HeapIsReachable)
      arguments.push_back(heapBase(b)); // NVSHMEM answers for an object only
    unsigned operand = 0;
    for (StringRef attribute : op.getCallSignature())
      arguments.push_back(attribute.empty() ? libraryArgument(b, op->getOperand(operand++))
                                            : b.i32(libraryValue(op, attribute, libraryOf(op, transport))));
    if (op.takesSite() && libraryOf(op, transport) == Transport::P2p)
      arguments.push_back(b.i32(siteOf(op)));

    auto memScope = op->getAttrOfType<MemScopeAttr>("mem_scope");
    MemScope scope = memScope ? memScope.getValue() : MemScope::Sys;
    bool fences = !op.ordersItself(transport);
    auto orderedCall = [&] {
      if (fences && op.isRelease())
        b.fence(LLVM::AtomicOrdering::release, scope);
      Value result = call(b, op, arguments);
      if (fences && op.isAcquire())
        b.fence(LLVM::AtomicOrdering::acquire, scope);
      return result;
    };

    bool onlyAcquires = op.isAcquire() && !op.isRelease();
    if (op.getCaller() != Caller::EveryThread && !onlyAcquires)
      target.publish(*b, b.getLoc());
    switch (op.getCaller()) {
    case Caller::EveryThread:
      return call(b, op, arguments);
    case Caller::Block:
      b.barrier();
      orderedCall();
      b.barrier();
      return {};
    case Caller::Warp:
      b.barrier();
      b.onFirstThreads(warpSize, [&] { orderedCall(); });
      b.barrier();
      return {};
    case Caller::Elected:
      b.barrier();
      b.onFirstThreads(1, [&] {
        Value result = orderedCall();
        if (result && !op->getResult(0).use_empty())
          LLVM::StoreOp::create(*b, b.getLoc(), result, slot.address(b));
      });
      b.barrier();
      if (op->getNumResults() == 0)
        return {};
      if (returns == Returns::Token)
        return b.constant(op->getResult(0).getType(), 0);
      if (op->getResult(0).use_empty())
        return {};
      return LLVM::LoadOp::create(*b, b.getLoc(), op->getResult(0).getType(), slot.address(b));
    }
    llvm_unreachable("a caller that is not lowered");
  }

  /// The library call, or one for each block; its result, if any, as the op has it.
  Value call(ProgramBuilder &b, LibraryCall op, ArrayRef<Value> arguments) {
    if (op.isByBlocks() && libraryOf(op, transport) != Transport::P2p) {
      callForEachBlock(b, op, arguments);
      return {};
    }
    Value returned = callRoutine(b, op, arguments);
    if (op->getNumResults() == 0)
      return {};
    switch (op.getReturns(transport)) {
    case Returns::Result:
      return returned;
    case Returns::Status:
    case Returns::Token:
      return {};
    case Returns::Distance:
    case Returns::HeapDistance: {
      Value there = LLVM::PtrToIntOp::create(*b, b.getLoc(), b->getI64Type(), returned);
      Value here = LLVM::PtrToIntOp::create(*b, b.getLoc(), b->getI64Type(), arguments.front());
      return LLVM::SubOp::create(*b, b.getLoc(), there, here);
    }
    case Returns::HeapIsReachable: {
      Value there = LLVM::PtrToIntOp::create(*b, b.getLoc(), b->getI64Type(), returned);
      Value reached =
          LLVM::ICmpOp::create(*b, b.getLoc(), LLVM::ICmpPredicate::ne, there, b.constant(b->getI64Type(), 0));
      return LLVM::ZExtOp::create(*b, b.getLoc(), b->getI32Type(), reached);
    }
    }
    llvm_unreachable("a routine that returns something else");
  }

  /// `arguments`: dst, src, the strides of both, and the size of a block in elements; the number of blocks; the PE.
  void callForEachBlock(ProgramBuilder &b, LibraryCall op, ArrayRef<Value> arguments) {
    auto type = op->getAttrOfType<ElementTypeAttr>("type").getValue();
    Value elementSize = b.constant(b->getI64Type(), elementBytes(type));
    auto inBytes = [&](Value elements) -> Value { return LLVM::MulOp::create(*b, b.getLoc(), elements, elementSize); };
    Value strides[] = {inBytes(arguments[2]), inBytes(arguments[3])}, nbytes = inBytes(arguments[4]);
    b.forEach(arguments[5], [&](Value number) {
      SmallVector<Value> passed;
      for (auto [begin, stride] : llvm::zip_equal(arguments.take_front(2), strides)) {
        Value offset = LLVM::MulOp::create(*b, b.getLoc(), number, stride);
        passed.push_back(LLVM::GEPOp::create(*b, b.getLoc(), begin.getType(), b->getI8Type(), begin,
                                             ArrayRef<LLVM::GEPArg>{offset}));
      }
      passed.append({nbytes, arguments.back()});
      callRoutine(b, op, passed);
    });
  }

  /// What the routine returned, if anything.
  Value callRoutine(ProgramBuilder &b, LibraryCall op, ArrayRef<Value> arguments) {
    std::string name = routineOf(op, transport);
    routines.insert(name);
    if (isRocshmem(libraryOf(op, transport)))
      return rocshmem::call(*b, op, transport, arguments);
    if (op.isForAllPes())
      arguments = {};
    if (takesBits(op, transport))
      return callWithBits(b, op, name, arguments);
    Value returned = callC(b, name, returnType(op), arguments);
    if (std::string test = testAfter(op, transport); !test.empty())
      callTestAfter(b, op, test, arguments);
    return returned;
  }

  /// NVSHMEM's test of the awaited elements, of one or of any. It compares with the least value, so it is always true.
  void callTestAfter(ProgramBuilder &b, LibraryCall op, StringRef name, ArrayRef<Value> arguments) {
    routines.insert(name.str());
    auto type = op->getAttrOfType<ElementTypeAttr>("type").getValue();
    unsigned bits = 8 * elementBytes(type);
    bool isSigned = stringifyElementType(type).starts_with("i");
    SmallVector<Value> passed = {arguments.front()};
    bool ofAny = op.getOperation()->getNumOperands() > 2;
    if (ofAny)
      passed.append({arguments[1], LLVM::ZeroOp::create(*b, b.getLoc(), arguments.front().getType())});
    passed.push_back(b.i32(nvshmem::kCmpGe));
    passed.push_back(b.constant(b->getIntegerType(bits), isSigned ? llvm::minIntN(bits) : 0));
    callC(b, name, ofAny ? b->getI64Type() : b->getI32Type(), passed);
  }

  /// A routine that takes and returns a float as an integer of its bits.
  Value callWithBits(ProgramBuilder &b, LibraryCall op, StringRef name, ArrayRef<Value> arguments) {
    Type real = op->getResult(0).getType();
    Type bits = b->getIntegerType(real.getIntOrFloatBitWidth());
    SmallVector<Value> passed;
    for (Value argument : arguments)
      passed.push_back(argument.getType() == real ? LLVM::BitcastOp::create(*b, b.getLoc(), bits, argument) : argument);
    return LLVM::BitcastOp::create(*b, b.getLoc(), real, callC(b, name, bits, passed));
  }

  Value callC(ProgramBuilder &b, StringRef name, Type result, ArrayRef<Value> arguments) {
    LLVM::LLVMFuncOp routine = declare(module, name, result, ValueRange(arguments).getTypes());
    auto called = LLVM::CallOp::create(*b, b.getLoc(), routine, arguments);
    return called.getNumResults() ? called.getResult() : Value();
  }

  Type returnType(LibraryCall op) {
    MLIRContext *context = module.getContext();
    switch (op.getReturns(transport)) {
    case Returns::Result:
      return op->getNumResults() ? op->getResult(0).getType() : LLVM::LLVMVoidType::get(context);
    case Returns::Status:
      return IntegerType::get(context, 32);
    case Returns::Token:
      return LLVM::LLVMVoidType::get(context);
    case Returns::Distance:
    case Returns::HeapDistance:
    case Returns::HeapIsReachable:
      return LLVM::LLVMPointerType::get(context);
    }
    llvm_unreachable("a routine that returns something else");
  }

  Value heapBase(ProgramBuilder &b) {
    auto constantMemory = LLVM::LLVMPointerType::get(module.getContext(), /*addressSpace=*/4);
    if (!module.lookupSymbol(nvshmem::kDeviceState)) {
      OpBuilder atStart = OpBuilder::atBlockBegin(module.getBody());
      auto bytes = LLVM::LLVMArrayType::get(b->getI8Type(), nvshmem::kDeviceStateBytes);
      LLVM::GlobalOp::create(atStart, module.getLoc(), bytes, /*isConstant=*/false, LLVM::Linkage::External,
                             nvshmem::kDeviceState, Attribute(), /*alignment=*/8, /*addrSpace=*/4);
    }
    Value state = LLVM::AddressOfOp::create(*b, b.getLoc(), constantMemory, nvshmem::kDeviceState);
    Value field = LLVM::GEPOp::create(*b, b.getLoc(), constantMemory, b->getI8Type(), state,
                                      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(nvshmem::kHeapBaseOffset)});
    return LLVM::LoadOp::create(*b, b.getLoc(), LLVM::LLVMPointerType::get(b->getContext()), field);
  }

  ModuleOp module;
  Transport transport;
  const Target &target;
  ResultSlot slot;
  int32_t warpSize;
  bool copiesByTma = false;       // any function of the module
  int32_t programThreads;         // 0 where the module does not say
  int32_t barrierThreads;         // see Target::barrier
  std::set<std::string> routines; // called so far; llvm::StringSet changes its layout between LLVM's versions
};

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

struct ConvertShmemToLLVM : triton_dist::shmem::impl::ConvertShmemToLLVMBase<ConvertShmemToLLVM> {
  explicit ConvertShmemToLLVM(StringRef transport) : transport(transport) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::optional<Transport> chosen = parseTransport(transport);
    if (!chosen) {
      module.emitError() << "convert-shmem-to-llvm: there is no transport " << transport;
      return signalPassFailure();
    }

    SmallVector<Operation *> ops;
    module.walk([&](Operation *op) {
      if (isa<ShmemDialect>(op->getDialect()))
        ops.push_back(op);
    });
    Lowering lowering(module, *chosen);
    for (Operation *op : ops) {
      auto libraryCall = dyn_cast<LibraryCall>(op);
      if (std::string why = libraryCall ? whyUnavailable(libraryCall, *chosen) : ""; !why.empty()) {
        op->emitError() << op->getName() << " " << why << " on transport " << transport;
        return signalPassFailure();
      }
      lowering.lower(op);
    }

    if (*chosen == Transport::P2p && !ops.empty())
      lowering.defineProgramThreads();
    if (lowering.callsOthers())
      module->setAttr(kCallsOthers, BoolAttr::get(module.getContext(), true));

    // Conversions to Triton's pointer type that only our operands used.
    module.walk([](UnrealizedConversionCastOp conversion) {
      if (conversion->use_empty())
        conversion->erase();
    });
  }

  std::string transport;
};

} // namespace

std::unique_ptr<Pass> triton_dist::shmem::createConvertShmemToLLVM(StringRef transport) {
  return std::make_unique<ConvertShmemToLLVM>(transport);
}
