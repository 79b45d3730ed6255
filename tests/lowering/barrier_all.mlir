// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// A world collective publishes before it and acquires after it, on every thread.

// CHECK: llvm.func @nvshmemx_barrier_all_block()
// CHECK-LABEL: llvm.func @barrier_all(
llvm.func @barrier_all() {
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK-NOT:  llvm.cond_br
// CHECK:      llvm.fence release
// CHECK:      llvm.call @nvshmemx_barrier_all_block()
// CHECK-NEXT: llvm.fence acquire
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK:      llvm.return
  shmem.barrier_all block
  llvm.return
}

// -----

llvm.func @barrier_all_has_three_scopes() {
  shmem.barrier_all grid
  llvm.return
}
// CHECK: error: custom op 'shmem.barrier_all' expected string or keyword containing one of the following enum values for attribute 'scope' [thread, warp, block]
