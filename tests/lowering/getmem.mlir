// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// After a get no thread reads older data: every thread acquires, then all meet.

// CHECK: llvm.func @nvshmemx_getmem_block(!llvm.ptr, !llvm.ptr, i64, i32)
// CHECK-LABEL: llvm.func @getmem(
llvm.func @getmem(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i64, %pe: i32) {
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK-NOT:  llvm.cond_br
// CHECK-NOT:  llvm.fence
// CHECK:      llvm.call @nvshmemx_getmem_block(%{{.*}}, %{{.*}}, %arg2, %arg3) : (!llvm.ptr, !llvm.ptr, i64, i32)
// CHECK-NEXT: llvm.fence acquire
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK:      llvm.return
  shmem.getmem block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @getmem_size_of_32_bits(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i32, %pe: i32) {
  shmem.getmem block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}
// CHECK: error: use of value '%nbytes' expects different type than prior uses: 'i64' vs 'i32'
