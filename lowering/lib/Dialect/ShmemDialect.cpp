//===- ShmemDialect.cpp - The shmem dialect ---------------------------------===//

#include "Shmem/Shmem.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace triton_dist::shmem;

bool triton_dist::shmem::isScalarPointer(Type type) {
  return isa<LLVM::LLVMPointerType>(type) || type.getAbstractType().getName() == "tt.ptr";
}

void ShmemDialect::initialize() {
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
