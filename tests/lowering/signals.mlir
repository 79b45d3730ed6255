// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,NVSHMEM --implicit-check-not="@triton_dist_{{signal_op|signal_fetch|putmem}}"
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not=nvshmem
// Symbolic constants become each library's own numbers.

llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @signals(
llvm.func @signals(%sig: !llvm.ptr<1>, %v: i64, %pe: i32) {
  // NVSHMEM: %[[SET:.*]] = llvm.mlir.constant(9 : i32)
  // P2P:     %[[SET:.*]] = llvm.mlir.constant(0 : i32)
  // NVSHMEM: llvm.call @nvshmemx_signal_op(%{{.*}}, %arg1, %[[SET]], %arg2) : (!llvm.ptr, i64, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_signal_op(%{{.*}}, %arg1, %[[SET]], %arg2) : (!llvm.ptr, i64, i32, i32) -> ()
  shmem.signal_op %sig, set %v, %pe : !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_signal_fetch({{.*}}) : (!llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_signal_fetch({{.*}}) : (!llvm.ptr) -> i64
  %0 = shmem.signal_fetch %sig : !llvm.ptr<1>
  // CHECK: llvm.addrspacecast %arg0
  // CHECK-NEXT: %[[CMP:.*]] = llvm.mlir.constant(0 : i32)
  // CHECK: llvm.call @triton_dist_signal_wait_until(%{{.*}}, %[[CMP]], %arg1, %{{.*}}) : (!llvm.ptr, i32, i64, i32) -> i64
  %eq = shmem.signal_wait_until %sig, eq %v : !llvm.ptr<1>
  // CHECK: llvm.addrspacecast %arg0
  // CHECK-NEXT: %[[CMP:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: llvm.call @triton_dist_signal_wait_until(%{{.*}}, %[[CMP]], %arg1, %{{.*}}) : (!llvm.ptr, i32, i64, i32) -> i64
  %ne = shmem.signal_wait_until %sig, ne %v : !llvm.ptr<1>
  // CHECK: llvm.addrspacecast %arg0
  // CHECK-NEXT: %[[CMP:.*]] = llvm.mlir.constant(2 : i32)
  // CHECK: llvm.call @triton_dist_signal_wait_until(%{{.*}}, %[[CMP]], %arg1, %{{.*}}) : (!llvm.ptr, i32, i64, i32) -> i64
  %gt = shmem.signal_wait_until %sig, gt %v : !llvm.ptr<1>
  // CHECK: llvm.addrspacecast %arg0
  // CHECK-NEXT: %[[CMP:.*]] = llvm.mlir.constant(3 : i32)
  // CHECK: llvm.call @triton_dist_signal_wait_until(%{{.*}}, %[[CMP]], %arg1, %{{.*}}) : (!llvm.ptr, i32, i64, i32) -> i64
  %ge = shmem.signal_wait_until %sig, ge %v : !llvm.ptr<1>
  // CHECK: llvm.addrspacecast %arg0
  // CHECK-NEXT: %[[CMP:.*]] = llvm.mlir.constant(4 : i32)
  // CHECK: llvm.call @triton_dist_signal_wait_until(%{{.*}}, %[[CMP]], %arg1, %{{.*}}) : (!llvm.ptr, i32, i64, i32) -> i64
  %lt = shmem.signal_wait_until %sig, lt %v : !llvm.ptr<1>
  // CHECK: llvm.addrspacecast %arg0
  // CHECK-NEXT: %[[CMP:.*]] = llvm.mlir.constant(5 : i32)
  // CHECK: llvm.call @triton_dist_signal_wait_until(%{{.*}}, %[[CMP]], %arg1, %{{.*}}) : (!llvm.ptr, i32, i64, i32) -> i64
  %le = shmem.signal_wait_until %sig, le %v : !llvm.ptr<1>
  llvm.return
}

