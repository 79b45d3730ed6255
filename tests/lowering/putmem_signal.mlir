// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// The signal publishes what all threads wrote: barrier, a fence by every thread, then the call. 10 is NVSHMEM_SIGNAL_ADD.

// CHECK: llvm.func @nvshmemx_putmem_signal_block(!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32)
// CHECK-LABEL: llvm.func @putmem_signal(
llvm.func @putmem_signal(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i64, %sig: !llvm.ptr<1>, %signal: i64, %pe: i32) {
// CHECK:      %[[ADD:.*]] = llvm.mlir.constant(10 : i32)
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK-NOT:  llvm.cond_br
// CHECK:      llvm.fence release
// CHECK:      llvm.call @nvshmemx_putmem_signal_block(%{{.*}}, %{{.*}}, %arg2, %{{.*}}, %arg4, %[[ADD]], %arg5)
// CHECK-NOT:  llvm.fence
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK:      llvm.return
  shmem.putmem_signal block %dst, %src, %nbytes, %sig, add %signal, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @putmem_signal_unknown_update(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i64, %sig: !llvm.ptr<1>, %signal: i64, %pe: i32) {
  shmem.putmem_signal block %dst, %src, %nbytes, %sig, max %signal, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}
// CHECK: error: custom op 'shmem.putmem_signal' expected string or keyword containing one of the following enum values for attribute 'sig_op' [set, add]
