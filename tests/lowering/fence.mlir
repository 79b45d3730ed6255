// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// The library orders the calling thread's work only: the others meet it before.

// CHECK: llvm.func @nvshmem_fence()
// CHECK-LABEL: llvm.func @fence(
llvm.func @fence() {
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK-NEXT: %[[TID:.*]] = llvm.call_intrinsic "llvm.nvvm.read.ptx.sreg.tid.x"() : () -> i32
// CHECK:      %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
// CHECK-NEXT: %[[ELECTED:.*]] = llvm.icmp "ult" %[[TID]], %[[ONE]]
// CHECK-NEXT: llvm.cond_br %[[ELECTED]], ^[[THEN:.*]], ^[[JOINED:.*]]
// CHECK:      ^[[THEN]]:
// CHECK-NEXT: llvm.fence release
// CHECK-NEXT: llvm.call @nvshmem_fence()
// CHECK-NEXT: llvm.br ^[[JOINED]]
// CHECK:      ^[[JOINED]]:
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK:      llvm.return
  shmem.fence
  llvm.return
}

// -----

llvm.func @fence_takes_nothing(%pe: i32) {
  shmem.fence %pe
  llvm.return
}
// CHECK: error: expected '=' after SSA name
