// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// A non-blocking get acquires nothing: quiet does.

// CHECK: llvm.func @nvshmemx_getmem_nbi_block(!llvm.ptr, !llvm.ptr, i64, i32)
// CHECK-LABEL: llvm.func @getmem_nbi(
llvm.func @getmem_nbi(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i64, %pe: i32) {
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK-NOT:  llvm.cond_br
// CHECK-NOT:  llvm.fence
// CHECK:      llvm.call @nvshmemx_getmem_nbi_block(%{{.*}}, %{{.*}}, %arg2, %arg3) : (!llvm.ptr, !llvm.ptr, i64, i32)
// CHECK-NOT:  llvm.fence
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK:      llvm.return
  shmem.getmem_nbi block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @getmem_nbi_size_of_32_bits(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i32, %pe: i32) {
  shmem.getmem_nbi block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}
// CHECK: error: use of value '%nbytes' expects different type than prior uses: 'i64' vs 'i32'
