// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,NVSHMEM --implicit-check-not=@triton_dist_
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not=nvshmem
// `sem` and `mem_scope` place the fences around the call.

llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @atomics_i32(
llvm.func @atomics_i32(%p: !llvm.ptr<1>, %v: i32, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_fetch({{.*}}) : (!llvm.ptr, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_i32({{.*}}) : (!llvm.ptr, i32) -> i32
  %fetch = shmem.atomic_fetch acq_rel sys i32 %p, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_fetch_inc({{.*}}) : (!llvm.ptr, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_inc_i32({{.*}}) : (!llvm.ptr, i32) -> i32
  %fetch_inc = shmem.atomic_fetch_inc acq_rel sys i32 %p, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_inc({{.*}}) : (!llvm.ptr, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_inc_i32({{.*}}) : (!llvm.ptr, i32) -> ()
  shmem.atomic_inc acq_rel sys i32 %p, %pe : !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_set({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_set_i32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_set acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_add({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_add_i32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_add acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_and({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_and_i32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_and acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_or({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_or_i32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_or acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_xor({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_xor_i32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_xor acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_fetch_add({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_add_i32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %fetch_add = shmem.atomic_fetch_add acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_fetch_and({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_and_i32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %fetch_and = shmem.atomic_fetch_and acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_fetch_or({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_or_i32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %fetch_or = shmem.atomic_fetch_or acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_fetch_xor({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_xor_i32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %fetch_xor = shmem.atomic_fetch_xor acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_swap({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_swap_i32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %swap = shmem.atomic_swap acq_rel sys i32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_int32_atomic_compare_swap({{.*}}) : (!llvm.ptr, i32, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_compare_swap_i32({{.*}}) : (!llvm.ptr, i32, i32, i32) -> i32
  %cas = shmem.atomic_compare_swap acq_rel sys i32 %p, %v, %v, %pe : !llvm.ptr<1>, i32, i32, i32
  llvm.return
}

// CHECK-LABEL: llvm.func @atomics_u32(
llvm.func @atomics_u32(%p: !llvm.ptr<1>, %v: i32, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_fetch({{.*}}) : (!llvm.ptr, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_u32({{.*}}) : (!llvm.ptr, i32) -> i32
  %fetch = shmem.atomic_fetch acq_rel sys u32 %p, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_fetch_inc({{.*}}) : (!llvm.ptr, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_inc_u32({{.*}}) : (!llvm.ptr, i32) -> i32
  %fetch_inc = shmem.atomic_fetch_inc acq_rel sys u32 %p, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_inc({{.*}}) : (!llvm.ptr, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_inc_u32({{.*}}) : (!llvm.ptr, i32) -> ()
  shmem.atomic_inc acq_rel sys u32 %p, %pe : !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_set({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_set_u32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_set acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_add({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_add_u32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_add acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_and({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_and_u32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_and acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_or({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_or_u32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_or acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_xor({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_xor_u32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.atomic_xor acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_fetch_add({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_add_u32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %fetch_add = shmem.atomic_fetch_add acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_fetch_and({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_and_u32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %fetch_and = shmem.atomic_fetch_and acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_fetch_or({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_or_u32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %fetch_or = shmem.atomic_fetch_or acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_fetch_xor({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_fetch_xor_u32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %fetch_xor = shmem.atomic_fetch_xor acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_swap({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_swap_u32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %swap = shmem.atomic_swap acq_rel sys u32 %p, %v, %pe : !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_atomic_compare_swap({{.*}}) : (!llvm.ptr, i32, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_atomic_compare_swap_u32({{.*}}) : (!llvm.ptr, i32, i32, i32) -> i32
  %cas = shmem.atomic_compare_swap acq_rel sys u32 %p, %v, %v, %pe : !llvm.ptr<1>, i32, i32, i32
  llvm.return
}

// CHECK-LABEL: llvm.func @atomics_i64(
llvm.func @atomics_i64(%p: !llvm.ptr<1>, %v: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_fetch({{.*}}) : (!llvm.ptr, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_i64({{.*}}) : (!llvm.ptr, i32) -> i64
  %fetch = shmem.atomic_fetch acq_rel sys i64 %p, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_long_atomic_fetch_inc({{.*}}) : (!llvm.ptr, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_inc_i64({{.*}}) : (!llvm.ptr, i32) -> i64
  %fetch_inc = shmem.atomic_fetch_inc acq_rel sys i64 %p, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_long_atomic_inc({{.*}}) : (!llvm.ptr, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_inc_i64({{.*}}) : (!llvm.ptr, i32) -> ()
  shmem.atomic_inc acq_rel sys i64 %p, %pe : !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_set({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_set_i64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_set acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_long_atomic_add({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_add_i64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_add acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_and({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_and_i64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_and acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_or({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_or_i64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_or acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_xor({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_xor_i64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_xor acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_long_atomic_fetch_add({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_add_i64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %fetch_add = shmem.atomic_fetch_add acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_fetch_and({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_and_i64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %fetch_and = shmem.atomic_fetch_and acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_fetch_or({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_or_i64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %fetch_or = shmem.atomic_fetch_or acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_fetch_xor({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_xor_i64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %fetch_xor = shmem.atomic_fetch_xor acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_swap({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_swap_i64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %swap = shmem.atomic_swap acq_rel sys i64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_int64_atomic_compare_swap({{.*}}) : (!llvm.ptr, i64, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_compare_swap_i64({{.*}}) : (!llvm.ptr, i64, i64, i32) -> i64
  %cas = shmem.atomic_compare_swap acq_rel sys i64 %p, %v, %v, %pe : !llvm.ptr<1>, i64, i64, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @atomics_u64(
llvm.func @atomics_u64(%p: !llvm.ptr<1>, %v: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_fetch({{.*}}) : (!llvm.ptr, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_u64({{.*}}) : (!llvm.ptr, i32) -> i64
  %fetch = shmem.atomic_fetch acq_rel sys u64 %p, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_fetch_inc({{.*}}) : (!llvm.ptr, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_inc_u64({{.*}}) : (!llvm.ptr, i32) -> i64
  %fetch_inc = shmem.atomic_fetch_inc acq_rel sys u64 %p, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_inc({{.*}}) : (!llvm.ptr, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_inc_u64({{.*}}) : (!llvm.ptr, i32) -> ()
  shmem.atomic_inc acq_rel sys u64 %p, %pe : !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_set({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_set_u64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_set acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_add({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_add_u64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_add acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_and({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_and_u64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_and acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_or({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_or_u64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_or acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_xor({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_xor_u64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.atomic_xor acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_fetch_add({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_add_u64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %fetch_add = shmem.atomic_fetch_add acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_fetch_and({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_and_u64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %fetch_and = shmem.atomic_fetch_and acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_fetch_or({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_or_u64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %fetch_or = shmem.atomic_fetch_or acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_fetch_xor({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_fetch_xor_u64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %fetch_xor = shmem.atomic_fetch_xor acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_swap({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_swap_u64({{.*}}) : (!llvm.ptr, i64, i32) -> i64
  %swap = shmem.atomic_swap acq_rel sys u64 %p, %v, %pe : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_atomic_compare_swap({{.*}}) : (!llvm.ptr, i64, i64, i32) -> i64
  // P2P:     llvm.call @triton_dist_atomic_compare_swap_u64({{.*}}) : (!llvm.ptr, i64, i64, i32) -> i64
  %cas = shmem.atomic_compare_swap acq_rel sys u64 %p, %v, %v, %pe : !llvm.ptr<1>, i64, i64, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @relaxed_sys(
llvm.func @relaxed_sys(%p: !llvm.ptr<1>, %v: i32, %pe: i32) {
  // CHECK-NOT: llvm.fence
  // CHECK:     llvm.call @
  // CHECK-NOT: llvm.fence
  shmem.atomic_add relaxed sys i32 %p, %v, %pe : !llvm.ptr<1>, i32
  llvm.return
}

// CHECK-LABEL: llvm.func @acquire_sys(
llvm.func @acquire_sys(%p: !llvm.ptr<1>, %v: i32, %pe: i32) {
  // CHECK-NOT: llvm.fence
  // CHECK:     llvm.call @
  // CHECK-NEXT: llvm.fence acquire
  shmem.atomic_add acquire sys i32 %p, %v, %pe : !llvm.ptr<1>, i32
  llvm.return
}

// CHECK-LABEL: llvm.func @release_gpu(
llvm.func @release_gpu(%p: !llvm.ptr<1>, %v: i32, %pe: i32) {
  // CHECK:     llvm.fence syncscope("device") release
  // CHECK:     llvm.call @
  // CHECK-NOT: llvm.fence
  shmem.atomic_add release gpu i32 %p, %v, %pe : !llvm.ptr<1>, i32
  llvm.return
}

// CHECK-LABEL: llvm.func @acq_rel_cta(
llvm.func @acq_rel_cta(%p: !llvm.ptr<1>, %v: i32, %pe: i32) {
  // CHECK:     llvm.fence syncscope("block") release
  // CHECK:     llvm.call @
  // CHECK-NEXT: llvm.fence syncscope("block") acquire
  shmem.atomic_add acq_rel cta i32 %p, %v, %pe : !llvm.ptr<1>, i32
  llvm.return
}


// Floats. NVSHMEM's swap of a double converts the bits that it finds as if they were a number: the bits travel as such.
// CHECK-LABEL: llvm.func @atomics_on_floats(
llvm.func @atomics_on_floats(%p: !llvm.ptr<1>, %v: f32, %w: f64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmem_float_atomic_fetch({{.*}}) : (!llvm.ptr, i32) -> f32
  // P2P:     llvm.call @triton_dist_atomic_fetch_f32({{.*}}) : (!llvm.ptr, i32) -> f32
  %fetch = shmem.atomic_fetch acq_rel sys f32 %p, %pe : !llvm.ptr<1>, f32
  // NVSHMEM: llvm.call @nvshmem_float_atomic_set({{.*}}) : (!llvm.ptr, f32, i32) -> ()
  // P2P:     llvm.call @triton_dist_atomic_set_f32({{.*}}) : (!llvm.ptr, f32, i32) -> ()
  shmem.atomic_set acq_rel sys f32 %p, %v, %pe : !llvm.ptr<1>, f32
  // NVSHMEM: llvm.call @nvshmem_float_atomic_swap({{.*}}) : (!llvm.ptr, f32, i32) -> f32
  // P2P:     llvm.call @triton_dist_atomic_swap_f32({{.*}}) : (!llvm.ptr, f32, i32) -> f32
  %swap = shmem.atomic_swap acq_rel sys f32 %p, %v, %pe : !llvm.ptr<1>, f32, f32
  // NVSHMEM-NOT: nvshmem_double_atomic_swap
  // NVSHMEM: %[[BITS:.*]] = llvm.bitcast %arg2 : f64 to i64
  // NVSHMEM: %[[FOUND:.*]] = llvm.call @nvshmem_uint64_atomic_swap(%{{.*}}, %[[BITS]], %arg3) : (!llvm.ptr, i64, i32) -> i64
  // NVSHMEM: llvm.bitcast %[[FOUND]] : i64 to f64
  // P2P:     llvm.call @triton_dist_atomic_swap_f64(%{{.*}}, %arg2, %arg3) : (!llvm.ptr, f64, i32) -> f64
  %swap64 = shmem.atomic_swap acq_rel sys f64 %p, %w, %pe : !llvm.ptr<1>, f64, f64
  // NVSHMEM: llvm.call @nvshmem_double_atomic_fetch({{.*}}) : (!llvm.ptr, i32) -> f64
  // P2P:     llvm.call @triton_dist_atomic_fetch_f64({{.*}}) : (!llvm.ptr, i32) -> f64
  %fetch64 = shmem.atomic_fetch acq_rel sys f64 %p, %pe : !llvm.ptr<1>, f64
  llvm.return
}
