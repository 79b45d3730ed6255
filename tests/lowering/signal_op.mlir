// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// One thread signals, behind the stores of all: an ADD of 128 threads would count 128 times.

// CHECK: llvm.func @nvshmemx_signal_op(!llvm.ptr, i64, i32, i32)
// CHECK-LABEL: llvm.func @signal_op(
llvm.func @signal_op(%sig: !llvm.ptr<1>, %signal: i64, %pe: i32) {
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK-NEXT: %[[TID:.*]] = llvm.call_intrinsic "llvm.nvvm.read.ptx.sreg.tid.x"() : () -> i32
// CHECK:      %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
// CHECK-NEXT: %[[ELECTED:.*]] = llvm.icmp "ult" %[[TID]], %[[ONE]]
// CHECK-NEXT: llvm.cond_br %[[ELECTED]], ^[[THEN:.*]], ^[[JOINED:.*]]
// CHECK:      ^[[THEN]]:
// CHECK-NEXT: llvm.fence release
// CHECK-NEXT: llvm.call @nvshmemx_signal_op(%{{.*}}, %arg1, %{{.*}}, %arg2)
// CHECK-NEXT: llvm.br ^[[JOINED]]
// CHECK:      ^[[JOINED]]:
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK:      llvm.return
  shmem.signal_op %sig, set %signal, %pe : !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @signal_op_of_a_number(%sig: i64, %signal: i64, %pe: i32) {
  shmem.signal_op %sig, set %signal, %pe : i64
  llvm.return
}
// CHECK: error: 'shmem.signal_op' op operand #0 must be scalar pointer, but got 'i64'
