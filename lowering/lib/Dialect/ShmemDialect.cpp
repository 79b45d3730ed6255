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

llvm::StringRef shmem::pickRoutine(Transport transport, StringRef nvshmem, StringRef rocshmem, StringRef p2p) {
  switch (transport) {
  case Transport::Nvshmem:
    return nvshmem;
  case Transport::Rocshmem:
  case Transport::Rocshmem6:
    return rocshmem;
  case Transport::P2p:
    return p2p;
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
