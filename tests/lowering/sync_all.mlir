// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// A world collective publishes before it and acquires after it, on every thread.

// CHECK: llvm.func @nvshmemx_sync_all_block()
// CHECK-LABEL: llvm.func @sync_all(
llvm.func @sync_all() {
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK-NOT:  llvm.cond_br
// CHECK:      llvm.fence release
// CHECK:      llvm.call @nvshmemx_sync_all_block()
// CHECK-NEXT: llvm.fence acquire
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK:      llvm.return
  shmem.sync_all block
  llvm.return
}

// -----

llvm.func @sync_all_has_three_scopes() {
  shmem.sync_all grid
  llvm.return
}
// CHECK: error: custom op 'shmem.sync_all' expected string or keyword containing one of the following enum values for attribute 'scope' [thread, warp, block]
