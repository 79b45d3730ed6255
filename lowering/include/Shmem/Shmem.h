//===- Shmem.h - The shmem dialect, its ops and its passes ----------------===//

#ifndef TRITON_DIST_SHMEM_SHMEM_H
#define TRITON_DIST_SHMEM_SHMEM_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Pass/Pass.h"

#include <array>

namespace triton_dist::shmem {

/// Which of a program's threads call the library routine of an op.
enum class Caller { EveryThread, Block, Elected };

/// Whether a type is a pointer as Triton or, after its conversion, LLVM has it.
bool isScalarPointer(mlir::Type type);

} // namespace triton_dist::shmem

#include "Shmem/ShmemDialect.h.inc"
#include "Shmem/ShmemEnums.h.inc"
#include "Shmem/ShmemInterfaces.h.inc"

#define GET_OP_CLASSES
#include "Shmem/ShmemOps.h.inc"

namespace triton_dist::shmem {

#define GEN_PASS_DECL
#include "Shmem/ShmemPasses.h.inc"

} // namespace triton_dist::shmem

#endif // TRITON_DIST_SHMEM_SHMEM_H
