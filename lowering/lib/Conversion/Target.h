//===- Target.h - What the lowering asks of a GPU ---------------------------===//

#ifndef TRITON_DIST_CONVERSION_TARGET_H
#define TRITON_DIST_CONVERSION_TARGET_H

#include "Shmem/Shmem.h"

#include "mlir/IR/Builders.h"

namespace triton_dist::shmem {

/// The intrinsics of one family of GPUs.
class Target {
public:
  virtual ~Target() = default;

  /// The GPU that `module` is compiled for (Triton's `ttg.target`); NVIDIA's where it does not say.
  static const Target &of(mlir::ModuleOp module);

  /// What a thread must do before the program's barrier, so that a fence of another thread behind it covers what
  /// this one wrote.
  virtual void publish(mlir::OpBuilder &builder, mlir::Location loc) const = 0;
  /// Whether `op`, after Triton's conversion, copies between global and shared memory by TMA. Fences do not order these
  /// accesses.
  virtual bool isTmaCopy(mlir::Operation *op) const = 0;
  /// Makes the calling thread's later fences and barriers order its earlier TMA stores.
  virtual void completeTmaStores(mlir::OpBuilder &builder, mlir::Location loc) const = 0;
  /// Orders later TMA copies of the calling thread, and of threads that synchronise with it, after the accesses that
  /// are ordered before this point.
  virtual void orderTmaCopies(mlir::OpBuilder &builder, mlir::Location loc) const = 0;
  /// All threads of the program meet, and see what the others wrote before. `threads` is how many they are, or 0 for
  /// all that were launched: a warp-specialised kernel has more, which do not come.
  virtual void barrier(mlir::OpBuilder &builder, mlir::Location loc, int32_t threads) const = 0;
  /// Number of the calling thread in the program, an i32.
  virtual mlir::Value threadId(mlir::OpBuilder &builder, mlir::Location loc) const = 0;
  /// LLVM's name of a synchronisation scope.
  virtual llvm::StringRef syncScope(MemScope scope) const = 0;
  /// How many threads a warp has where the module does not say.
  virtual int32_t warpSize() const = 0;
};

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_TARGET_H
