// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not=nvshmem
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,NVSHMEM --implicit-check-not=@triton_dist_
// Blocks at a stride: one call of our own library; of another, one for each block, with sizes in bytes.

// CHECK-LABEL: llvm.func @ibput(
llvm.func @ibput(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %there: i64, %here: i64, %bsize: i64, %nblocks: i64, %pe: i32) {
  // CHECK: llvm.addrspacecast %arg0
  // CHECK: llvm.addrspacecast %arg1
  // P2P:   llvm.call @triton_dist_ibput_bf16_block({{.*}}, %arg2, %arg3, %arg4, %arg5, %arg6) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i32) -> ()
  // NVSHMEM:       llvm.call_intrinsic "llvm.nvvm.barrier
  // NVSHMEM:       %[[SIZE:.*]] = llvm.mlir.constant(2 : i64)
  // NVSHMEM-NEXT:  %[[THERE:.*]] = llvm.mul %arg2, %[[SIZE]]
  // NVSHMEM-NEXT:  %[[HERE:.*]] = llvm.mul %arg3, %[[SIZE]]
  // NVSHMEM-NEXT:  %[[NBYTES:.*]] = llvm.mul %arg4, %[[SIZE]]
  // NVSHMEM:       llvm.br ^[[HEAD:.*]](%{{.*}} : i64)
  // NVSHMEM:     ^[[HEAD]](%[[I:.*]]: i64):
  // NVSHMEM-NEXT:  %[[MORE:.*]] = llvm.icmp "ult" %[[I]], %arg5
  // NVSHMEM-NEXT:  llvm.cond_br %[[MORE]], ^[[INSIDE:.*]], ^[[AFTER:.*]]
  // NVSHMEM:     ^[[INSIDE]]:
  // NVSHMEM-NEXT:  %[[TO:.*]] = llvm.mul %[[I]], %[[THERE]]
  // NVSHMEM-NEXT:  %[[DST:.*]] = llvm.getelementptr %{{.*}}[%[[TO]]]
  // NVSHMEM-NEXT:  %[[FROM:.*]] = llvm.mul %[[I]], %[[HERE]]
  // NVSHMEM-NEXT:  %[[SRC:.*]] = llvm.getelementptr %{{.*}}[%[[FROM]]]
  // NVSHMEM-NEXT:  llvm.call @nvshmemx_putmem_block(%[[DST]], %[[SRC]], %[[NBYTES]], %arg6) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // NVSHMEM:       llvm.br ^[[HEAD]](
  // NVSHMEM:     ^[[AFTER]]:
  // NVSHMEM:       llvm.call_intrinsic "llvm.nvvm.barrier
  shmem.ibput block bf16 %dst, %src, %there, %here, %bsize, %nblocks, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @ibget(
llvm.func @ibget(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // P2P:     llvm.call @triton_dist_ibget_f64_warp(
  // NVSHMEM: llvm.mlir.constant(8 : i64)
  // NVSHMEM: llvm.call @nvshmemx_getmem_warp(
  // CHECK:   llvm.fence acquire
  shmem.ibget warp f64 %dst, %src, %n, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // P2P:     llvm.call @triton_dist_ibget_u8(
  // NVSHMEM: llvm.call @nvshmem_getmem(
  shmem.ibget thread u8 %dst, %src, %n, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}
