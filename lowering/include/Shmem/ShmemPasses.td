//===- ShmemPasses.td - Passes over the shmem dialect -------------------===//

#ifndef SHMEM_PASSES_TD
#define SHMEM_PASSES_TD

include "mlir/Pass/PassBase.td"

// No pass declares options: they would be llvm::cl::opt, whose layout and constructors change between the LLVMs of Triton's
// versions. What a pass needs to know is an argument of its constructor (Shmem.h).

def KeepLoopBounds : Pass<"keep-loop-bounds", "::mlir::ModuleOp"> {
  let summary = "Use the bounds of a loop that a loop around it carries";
  let description = [{
    Runs before Triton's step to TTGIR, for Triton 3.7. Its passes leave out what a loop
    carries if nothing but the bounds of loops inside of it depend on that, and take
    what it begins with instead: of

    ```mlir
    scf.for %i = %zero to %n step %one iter_args(%length = %first) -> (i32) : i32 {
      scf.for %j = %zero to %length step %one : i32 {
        tt.store %places, %j : !tt.ptr<i32>
      }
      %next = tt.load %lengths : !tt.ptr<i32>
      scf.yield %next : i32
    }
    ```

    the inner loop would end at `%first` each time. So an op that has side effects uses
    `%length` in front of it. It is inline assembly without an instruction.
  }];
  let constructor = "::triton_dist::shmem::createKeepLoopBounds(\"cuda\")";
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def OrderAsyncCopies : Pass<"order-async-copies", "::mlir::ModuleOp"> {
  let summary = "Complete a program's asynchronous copies before the ops that come after them";
  let description = [{
    Runs on TTGIR, since the conversion sees the waits of Triton's pipeliner as loops and
    its partitions as branches. Two orders concern ops that release, or load or store
    data:

    - The wait for a pipelined load is at the first use of its value. An op before this
      wait could allow other programs to overwrite data that is still being read. So the
      wait moves before the op.

    ```mlir
    shmem.signal_op %free, set %n, %pe : !tt.ptr<i64>
    ttng.wait_barrier %arrived, %phase : !ttg.memdesc<1xi64, #shared, #smem, mutable>
    ```

    becomes

    ```mlir
    ttng.wait_barrier %arrived, %phase : !ttg.memdesc<1xi64, #shared, #smem, mutable>
    shmem.signal_op %free, set %n, %pe : !tt.ptr<i64>
    ```

    - A thread can wait for its own TMA stores only. So a partition of a warp-specialised
      region completes its stores at its end, since the ops are outside of it.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def PlanShmemCalls : Pass<"plan-shmem-calls", "::mlir::ModuleOp"> {
  let summary = "Find out which library routines a module will call, or why it cannot";
  let description = [{
    Runs on TTGIR, while regions still show who executes an op. It changes nothing
    but attributes: those of the module are for whoever drives the compilation,
    `shmem.aligned`, on copies of whole vectors of 16 bytes between aligned addresses,
    and `shmem.aligned_addresses`, on copies of other sizes between such addresses, are
    for the conversion, which picks a routine for them.

    - `shmem.routines`: the routines that will be called and the variables that
      the calls read, one per line, so that just these are taken from the device
      library; each with the source line and the op, for the case that the library
      lacks it;
    - `shmem.error`: the first mistake, with its source line. A failing pass would
      reach the user as "PassManager::run failed" under a dump of the module.

    - `shmem.warnings`: what looks wrong, one per line: a constant PE that a world
      of `nPes` PEs does not have. No mistake, for a branch on the number of PEs
      may stand around it.

    - `shmem.collective`: the first collective, with its source line: what launches
      with more programs than can run at a time must not have;
    - `shmem.scratch`: reductions that NVSHMEM keeps in memory of a fixed size, one
      per line: how many elements each PE contributes (a number or the name of the
      kernel's argument), the bytes of one, the source line and the op;
    - `shmem.symmetric`: arguments of the kernel that reach an op as a pointer into
      the symmetric heap, one per line, each with the source line, the op and the
      operand. Pointers that come from elsewhere, or from one of several arguments,
      are not followed.

    - `shmem.waits`: the ops that report when they wait for long, one per line, in the
      order of their numbers (`shmem.site`, an attribute of the op, for the conversion,
      which passes it to the routine): the op, the type of what it compares, and its
      source lines from the innermost function to the kernel.

    Mistakes are
    - an op that the transport has no routine for;
    - an op inside a warp-specialised region: it needs all threads of the program,
      and a partition has only some of them, so the kernel would hang;
    - an op by a block in a kernel that has such a region, but on p2p: Triton adds
      warps to run its partitions, and the libraries count them as the program's;
    - an op in a kernel with `num_ctas > 1`: it would act once per CTA of the
      cluster instead of once per program.
  }];
  let constructor = "::triton_dist::shmem::createPlanShmemCalls(\"nvshmem\", 0)";
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
      llvm.fence release
      llvm.call @nvshmemx_signal_op(%sig_generic, %one, %add, %pe)
      llvm.br ^joined
    ^joined:
      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"(%c0)
    ```

    and a result travels from the elected thread to the others through 16 bytes
    of shared memory behind those that the kernel uses (`ttg.shared` grows).
  }];
  let constructor = "::triton_dist::shmem::createConvertShmemToLLVM(\"nvshmem\")";
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // SHMEM_PASSES_TD
