//===- ShmemPasses.td - Passes over the shmem dialect -------------------===//

#ifndef SHMEM_PASSES_TD
#define SHMEM_PASSES_TD

include "mlir/Pass/PassBase.td"

def CheckShmemPlacement : Pass<"check-shmem-placement", "::mlir::ModuleOp"> {
  let summary = "Find shmem ops that stand where the program's threads cannot meet";
  let description = [{
    Runs on TTGIR, while regions still show who executes an op. Mistakes are
    - an op inside a warp-specialised region: it needs all threads of the program,
      and a partition has only some of them, so the kernel would hang;
    - an op in a kernel with `num_ctas > 1`: it would act once per CTA of the
      cluster instead of once per program.

    The first mistake is written, with its source line, to the module's attribute
    `shmem.error`, for whoever drives the compilation to raise: a failing pass
    would reach the user as "PassManager::run failed" under a dump of the module.
  }];
}

def ConvertShmemToLLVM : Pass<"convert-shmem-to-llvm", "::mlir::ModuleOp"> {
  let summary = "Turn shmem ops into calls of the device library";
  let description = [{
    Runs after Triton's conversion from TTGIR to the LLVM dialect. The threads of a
    program meet before and after every op that has effects, so that the op acts
    once and is ordered with the accesses of all threads. An elected op

    ```mlir
    shmem.signal_op %sig, add %one, %pe : !llvm.ptr<1>
    ```

    becomes

    ```mlir
    llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"(%c0)
    llvm.cond_br %is_thread_zero, ^elected, ^joined
    ^elected:
      llvm.fence acq_rel
      llvm.call @nvshmemx_signal_op(%sig_generic, %one, %add, %pe)
      llvm.br ^joined
    ^joined:
      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"(%c0)
    ```

    and a result travels from the elected thread to the others through 16 bytes
    of shared memory behind those that the kernel uses (`ttg.shared` grows).
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // SHMEM_PASSES_TD
