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

/// The device library that ops are lowered to.
enum class Transport { Nvshmem, Rocshmem, Rocshmem6, P2p };

/// Which of a program's threads call the library routine of an op.
enum class Caller { EveryThread, Block, Warp, Elected };

/// What a C routine returns: the op's result (void where it has none), a status that is ignored, or nothing although
/// the op has a result, its token. Or the address of its first argument's copy on a PE: the op's result is how far away
/// that is, or whether it is reached. For the last two the first argument is the first byte of the symmetric heap.
enum class Returns { Result, Status, Token, Distance, HeapDistance, HeapIsReachable };

/// Whether a type is a pointer as Triton or, after its conversion, LLVM has it.
bool isScalarPointer(mlir::Type type);

// What the op table's classes share (see ShmemOps.td). An op's attributes win over what its entry says.
struct Routines {
  llvm::StringRef nvshmem, rocshmem, rocshmem6, p2p;
};
llvm::StringRef pickRoutine(Transport transport, const Routines &routines);
Caller callerOf(mlir::Operation *op, Caller otherwise);
bool isRelease(mlir::Operation *op, bool otherwise);
bool isAcquire(mlir::Operation *op, bool otherwise);
/// Whether the op's element type is one that it takes, and its values are of that type.
llvm::LogicalResult verifyElements(mlir::Operation *op);

} // namespace triton_dist::shmem

#include "Shmem/ShmemDialect.h.inc"
#include "Shmem/ShmemEnums.h.inc"

namespace triton_dist::shmem {

/// The name of an element type in a library's routines.
struct TypeName {
  ElementType type;
  llvm::StringRef name;
};

} // namespace triton_dist::shmem

#include "Shmem/ShmemInterfaces.h.inc"

namespace triton_dist::shmem {

/// Whether elements of a type are floats.
bool isFloat(ElementType type);

/// In which type an element's value is passed: integers without a sign, the 16-bit floats as their bits.
mlir::Type registerType(mlir::MLIRContext *context, ElementType type);

} // namespace triton_dist::shmem

#define GET_OP_CLASSES
#include "Shmem/ShmemOps.h.inc"

namespace triton_dist::shmem {

#define GEN_PASS_DECL
#include "Shmem/ShmemPasses.h.inc"

// `transport` is nvshmem, rocshmem, rocshmem-6 or p2p; `nPes` is how many PEs there are, 0 if that is not known.
std::unique_ptr<mlir::Pass> createPlanShmemCalls(llvm::StringRef transport, int32_t nPes);
std::unique_ptr<mlir::Pass> createConvertShmemToLLVM(llvm::StringRef transport);
// `backend` is Triton's, cuda or hip.
std::unique_ptr<mlir::Pass> createKeepLoopBounds(llvm::StringRef backend);

} // namespace triton_dist::shmem

#endif // TRITON_DIST_SHMEM_SHMEM_H
