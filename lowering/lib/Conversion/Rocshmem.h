//===- Rocshmem.h - Calls of ROCSHMEM's device functions --------------------===//

#ifndef TRITON_DIST_CONVERSION_ROCSHMEM_H
#define TRITON_DIST_CONVERSION_ROCSHMEM_H

#include "Prototype.h"

#include "mlir/IR/Builders.h"

namespace triton_dist::shmem::rocshmem {

/// Why ROCSHMEM has nothing for `op`, to stand behind the op's name; empty when it has.
std::string whyUnavailable(LibraryCall op, Transport transport);

/// The function that `op` calls. Only for ops that are available.
Prototype prototypeOf(LibraryCall op, Transport transport);

/// The library's variables that the call of `op` reads. Only for ops that are available.
llvm::SmallVector<std::string> variablesOf(LibraryCall op, Transport transport);

/// Emits the call of `op`, whose arguments are in the order of its signature, as C's and with generic pointers.
/// What the function returns, or what stands for it when the op has a result and the function none.
mlir::Value call(mlir::OpBuilder &builder, LibraryCall op, Transport transport, llvm::ArrayRef<mlir::Value> arguments);

} // namespace triton_dist::shmem::rocshmem

#endif // TRITON_DIST_CONVERSION_ROCSHMEM_H
