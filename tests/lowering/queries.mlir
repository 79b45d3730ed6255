// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,NVSHMEM --implicit-check-not=@triton_dist_
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not=nvshmem
// Every thread asks; nobody waits for anybody.

// CHECK-LABEL: llvm.func @queries(
llvm.func @queries(%ptr: !llvm.ptr<1>, %pe: i32, %team: i32) {
  // NVSHMEM: llvm.call @nvshmem_my_pe({{.*}}) : () -> i32
  // P2P:     llvm.call @triton_dist_my_pe({{.*}}) : () -> i32
  %my_pe = shmem.my_pe : i32
  // NVSHMEM: llvm.call @nvshmem_n_pes({{.*}}) : () -> i32
  // P2P:     llvm.call @triton_dist_n_pes({{.*}}) : () -> i32
  %n_pes = shmem.n_pes : i32
  // NVSHMEM: llvm.call @nvshmem_team_my_pe({{.*}}) : (i32) -> i32
  // P2P:     llvm.call @triton_dist_team_my_pe({{.*}}) : (i32) -> i32
  %2 = shmem.team_my_pe %team : i32
  // NVSHMEM: llvm.call @nvshmem_team_n_pes({{.*}}) : (i32) -> i32
  // P2P:     llvm.call @triton_dist_team_n_pes({{.*}}) : (i32) -> i32
  %3 = shmem.team_n_pes %team : i32
  // NVSHMEM: llvm.call @nvshmem_team_translate_pe({{.*}}) : (i32, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_team_translate_pe({{.*}}) : (i32, i32, i32) -> i32
  %4 = shmem.team_translate_pe %team, %pe, %team : i32
  // NVSHMEM: llvm.call @nvshmem_ptr({{.*}}) : (!llvm.ptr, i32) -> !llvm.ptr
  // P2P:     llvm.call @triton_dist_ptr({{.*}}) : (!llvm.ptr, i32) -> !llvm.ptr
  %5 = shmem.symm_offset %ptr, %pe : !llvm.ptr<1>
  // NVSHMEM: %[[STATE:.*]] = llvm.mlir.addressof @nvshmemi_device_state_d : !llvm.ptr<4>
  // NVSHMEM: %[[FIELD:.*]] = llvm.getelementptr %[[STATE]]
  // NVSHMEM: %[[HEAP:.*]] = llvm.load %[[FIELD]]
  // NVSHMEM: %[[THERE:.*]] = llvm.call @nvshmem_ptr(%[[HEAP]], %arg1)
  // NVSHMEM: llvm.sub
  // P2P:     llvm.call @triton_dist_heap_distance(%arg1) : (i32) -> i64
  %6 = shmem.heap_distance %pe : i64
  // NVSHMEM: %[[REACHED:.*]] = llvm.call @nvshmem_ptr
  // NVSHMEM: llvm.icmp "ne"
  // P2P:     llvm.call @triton_dist_is_reachable(%arg1) : (i32) -> i32
  %7 = shmem.is_reachable %pe : i32
  // CHECK-NOT: barrier
  llvm.return
}

