//===- ShmemDialect.cpp - The shmem dialect ---------------------------------===//

#include "Shmem/Shmem.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;
using namespace triton_dist;
using namespace triton_dist::shmem;

bool shmem::isScalarPointer(Type type) {
  return isa<LLVM::LLVMPointerType>(type) || type.getAbstractType().getName() == "tt.ptr";
}

llvm::StringRef shmem::pickRoutine(Transport transport, const Routines &routines) {
  switch (transport) {
  case Transport::Nvshmem:
    return routines.nvshmem;
  case Transport::Rocshmem:
    return routines.rocshmem;
  case Transport::Rocshmem6:
    return routines.rocshmem6;
  case Transport::P2p:
    return routines.p2p;
  }
  llvm_unreachable("a transport without routines");
}

Caller shmem::callerOf(Operation *op, Caller otherwise) {
  auto scope = op->getAttrOfType<ThreadScopeAttr>("scope");
  if (!scope)
    return otherwise;
  switch (scope.getValue()) {
  case ThreadScope::Thread:
    return Caller::Elected;
  case ThreadScope::Warp:
    return Caller::Warp;
  case ThreadScope::Block:
    return Caller::Block;
  }
  llvm_unreachable("a scope without a caller");
}

bool shmem::isRelease(Operation *op, bool otherwise) {
  auto sem = op->getAttrOfType<SemAttr>("sem");
  return sem ? sem.getValue() == Sem::Release || sem.getValue() == Sem::AcqRel : otherwise;
}

bool shmem::isAcquire(Operation *op, bool otherwise) {
  auto sem = op->getAttrOfType<SemAttr>("sem");
  return sem ? sem.getValue() == Sem::Acquire || sem.getValue() == Sem::AcqRel : otherwise;
}

Type shmem::registerType(MLIRContext *context, ElementType type) {
  switch (type) {
  case ElementType::I8:
  case ElementType::U8:
    return IntegerType::get(context, 8);
  case ElementType::I16:
  case ElementType::U16:
  case ElementType::F16:
  case ElementType::BF16:
    return IntegerType::get(context, 16);
  case ElementType::I32:
  case ElementType::U32:
    return IntegerType::get(context, 32);
  case ElementType::I64:
  case ElementType::U64:
    return IntegerType::get(context, 64);
  case ElementType::F32:
    return Float32Type::get(context);
  case ElementType::F64:
    return Float64Type::get(context);
  }
  llvm_unreachable("an element type without a register");
}

bool shmem::isFloat(ElementType type) {
  switch (type) {
  case ElementType::F16:
  case ElementType::BF16:
  case ElementType::F32:
  case ElementType::F64:
    return true;
  default:
    return false;
  }
}

static bool isBitwise(Reduction reduction) {
  return reduction == Reduction::And || reduction == Reduction::Or || reduction == Reduction::Xor;
}

/// By the attributes' names, as everything that ops of all classes share: an op without a `type` has no elements.
LogicalResult shmem::verifyElements(Operation *op) {
  auto attribute = op->getAttrOfType<ElementTypeAttr>("type");
  if (!attribute)
    return success();
  auto call = cast<LibraryCall>(op);
  ElementType element = attribute.getValue();
  StringRef name = stringifyElementType(element);

  ArrayRef<ElementType> allowed = call.getElementTypes();
  if (!llvm::is_contained(allowed, element)) {
    InFlightDiagnostic error = op->emitOpError("does not take elements of type ") << name << ", only of ";
    llvm::interleaveComma(llvm::map_range(allowed, stringifyElementType), error);
    return error;
  }
  auto reduction = op->getAttrOfType<ReductionAttr>("op");
  if (reduction && isBitwise(reduction.getValue()) && isFloat(element))
    return op->emitOpError("does ") << stringifyReduction(reduction.getValue())
                                    << ", which is bitwise, and the element type " << name << " is a float";

  Type expected = registerType(op->getContext(), element);
  auto verify = [&](StringRef what, Type type) -> LogicalResult {
    if (type == expected)
      return success();
    return op->emitOpError() << what << " is " << type << ", and the element type " << name << " is " << expected
                             << " in IR";
  };
  for (auto [operand, type] : llvm::zip_equal(call.getValueOperands(), op->getOperandTypes()))
    if (!operand.empty() && failed(verify(operand, type)))
      return failure();
  return call.returnsElement() ? verify("result", op->getResultTypes().front()) : success();
}

namespace {

/// Triton inlines every `@triton.jit` function that a kernel calls, and must: one that takes or returns a block cannot
/// be lowered as a function. An op means the same in its caller.
struct Inliner : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
};

} // namespace

void ShmemDialect::initialize() {
  addInterfaces<Inliner>();
  addOperations<
#define GET_OP_LIST
#include "Shmem/ShmemOps.cpp.inc"
      >();
}

#include "Shmem/ShmemDialect.cpp.inc"
#include "Shmem/ShmemEnums.cpp.inc"
#include "Shmem/ShmemInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "Shmem/ShmemOps.cpp.inc"
