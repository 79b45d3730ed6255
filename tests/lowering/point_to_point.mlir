// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,NVSHMEM --implicit-check-not=@triton_dist_test
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not=nvshmem
// One thread waits or tests, and acquires for all. Our own routines wait, on NVSHMEM, too; there its test follows, for
// what a network wrote.

llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @elements_i16(
llvm.func @elements_i16(%p: !llvm.ptr<1>, %n: i64, %v: i16) {
  // CHECK: llvm.call @triton_dist_wait_until_i16({{.*}}) : (!llvm.ptr, i32, i16, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_short_test({{.*}}) : (!llvm.ptr, i32, i16) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %w = shmem.wait_until i16 %p, ge %v : !llvm.ptr<1>, i16, i64
  // NVSHMEM: llvm.call @nvshmem_short_test({{.*}}) : (!llvm.ptr, i32, i16) -> i32
  // P2P:     llvm.call @triton_dist_test_i16({{.*}}) : (!llvm.ptr, i32, i16) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %t = shmem.test i16 %p, ge %v : !llvm.ptr<1>, i16, i32
  // CHECK: llvm.call @triton_dist_wait_until_all_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_short_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_all = shmem.wait_until_all i16 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @triton_dist_wait_until_all_vector_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_short_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_all_vector = shmem.wait_until_all_vector i16 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_short_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_any = shmem.wait_until_any i16 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_vector_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_short_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_any_vector = shmem.wait_until_any_vector i16 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_short_test_all({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i32
  // P2P:     llvm.call @triton_dist_test_all_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i32
  %test_all = shmem.test_all i16 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i16, i32
  // NVSHMEM: llvm.call @nvshmem_short_test_all_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  // P2P:     llvm.call @triton_dist_test_all_vector_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  %test_all_vector = shmem.test_all_vector i16 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_short_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  // P2P:     llvm.call @triton_dist_test_any_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %test_any = shmem.test_any i16 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // NVSHMEM: llvm.call @nvshmem_short_test_any_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_any_vector_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_any_vector = shmem.test_any_vector i16 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i16, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_short_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_some = shmem.wait_until_some i16 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_vector_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_short_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_some_vector = shmem.wait_until_some_vector i16 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_short_test_some({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i16) -> i64
  // P2P:     llvm.call @triton_dist_test_some_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i16) -> i64
  %test_some = shmem.test_some i16 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // NVSHMEM: llvm.call @nvshmem_short_test_some_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_some_vector_i16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_some_vector = shmem.test_some_vector i16 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_u16(
llvm.func @elements_u16(%p: !llvm.ptr<1>, %n: i64, %v: i16) {
  // CHECK: llvm.call @triton_dist_wait_until_u16({{.*}}) : (!llvm.ptr, i32, i16, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_ushort_test({{.*}}) : (!llvm.ptr, i32, i16) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %w = shmem.wait_until u16 %p, ge %v : !llvm.ptr<1>, i16, i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test({{.*}}) : (!llvm.ptr, i32, i16) -> i32
  // P2P:     llvm.call @triton_dist_test_u16({{.*}}) : (!llvm.ptr, i32, i16) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %t = shmem.test u16 %p, ge %v : !llvm.ptr<1>, i16, i32
  // CHECK: llvm.call @triton_dist_wait_until_all_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_ushort_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_all = shmem.wait_until_all u16 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @triton_dist_wait_until_all_vector_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_ushort_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_all_vector = shmem.wait_until_all_vector u16 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_any = shmem.wait_until_any u16 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_vector_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_any_vector = shmem.wait_until_any_vector u16 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test_all({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i32
  // P2P:     llvm.call @triton_dist_test_all_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i32
  %test_all = shmem.test_all u16 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i16, i32
  // NVSHMEM: llvm.call @nvshmem_ushort_test_all_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  // P2P:     llvm.call @triton_dist_test_all_vector_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  %test_all_vector = shmem.test_all_vector u16 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_ushort_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  // P2P:     llvm.call @triton_dist_test_any_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %test_any = shmem.test_any u16 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test_any_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_any_vector_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_any_vector = shmem.test_any_vector u16 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i16, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_some = shmem.wait_until_some u16 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_vector_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i16) -> i64
  %wait_until_some_vector = shmem.wait_until_some_vector u16 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test_some({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i16) -> i64
  // P2P:     llvm.call @triton_dist_test_some_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i16) -> i64
  %test_some = shmem.test_some u16 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // NVSHMEM: llvm.call @nvshmem_ushort_test_some_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_some_vector_u16({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_some_vector = shmem.test_some_vector u16 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_i32(
llvm.func @elements_i32(%p: !llvm.ptr<1>, %n: i64, %v: i32) {
  // CHECK: llvm.call @triton_dist_wait_until_i32({{.*}}) : (!llvm.ptr, i32, i32, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_int32_test({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %w = shmem.wait_until i32 %p, ge %v : !llvm.ptr<1>, i32, i64
  // NVSHMEM: llvm.call @nvshmem_int32_test({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_test_i32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %t = shmem.test i32 %p, ge %v : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @triton_dist_wait_until_all_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_int32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_all = shmem.wait_until_all i32 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @triton_dist_wait_until_all_vector_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_int32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_all_vector = shmem.wait_until_all_vector i32 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_int32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_any = shmem.wait_until_any i32 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_vector_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_int32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_any_vector = shmem.wait_until_any_vector i32 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_int32_test_all({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_test_all_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i32
  %test_all = shmem.test_all i32 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_int32_test_all_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  // P2P:     llvm.call @triton_dist_test_all_vector_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  %test_all_vector = shmem.test_all_vector i32 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  // P2P:     llvm.call @triton_dist_test_any_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %test_any = shmem.test_any i32 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // NVSHMEM: llvm.call @nvshmem_int32_test_any_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_any_vector_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_any_vector = shmem.test_any_vector i32 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i32, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_int32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_some = shmem.wait_until_some i32 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_vector_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_int32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_some_vector = shmem.wait_until_some_vector i32 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_int32_test_some({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i32) -> i64
  // P2P:     llvm.call @triton_dist_test_some_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i32) -> i64
  %test_some = shmem.test_some i32 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // NVSHMEM: llvm.call @nvshmem_int32_test_some_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_some_vector_i32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_some_vector = shmem.test_some_vector i32 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_u32(
llvm.func @elements_u32(%p: !llvm.ptr<1>, %n: i64, %v: i32) {
  // CHECK: llvm.call @triton_dist_wait_until_u32({{.*}}) : (!llvm.ptr, i32, i32, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_uint32_test({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %w = shmem.wait_until u32 %p, ge %v : !llvm.ptr<1>, i32, i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_test_u32({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %t = shmem.test u32 %p, ge %v : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @triton_dist_wait_until_all_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_uint32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_all = shmem.wait_until_all u32 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @triton_dist_wait_until_all_vector_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_uint32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_all_vector = shmem.wait_until_all_vector u32 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_any = shmem.wait_until_any u32 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_vector_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_any_vector = shmem.wait_until_any_vector u32 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test_all({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i32
  // P2P:     llvm.call @triton_dist_test_all_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i32
  %test_all = shmem.test_all u32 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i32, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_test_all_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  // P2P:     llvm.call @triton_dist_test_all_vector_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  %test_all_vector = shmem.test_all_vector u32 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  // P2P:     llvm.call @triton_dist_test_any_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %test_any = shmem.test_any u32 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test_any_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_any_vector_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_any_vector = shmem.test_any_vector u32 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i32, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_some = shmem.wait_until_some u32 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_vector_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i32) -> i64
  %wait_until_some_vector = shmem.wait_until_some_vector u32 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test_some({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i32) -> i64
  // P2P:     llvm.call @triton_dist_test_some_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i32) -> i64
  %test_some = shmem.test_some u32 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // NVSHMEM: llvm.call @nvshmem_uint32_test_some_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_some_vector_u32({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_some_vector = shmem.test_some_vector u32 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_i64(
llvm.func @elements_i64(%p: !llvm.ptr<1>, %n: i64, %v: i64) {
  // CHECK: llvm.call @triton_dist_wait_until_i64({{.*}}) : (!llvm.ptr, i32, i64, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_int64_test({{.*}}) : (!llvm.ptr, i32, i64) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %w = shmem.wait_until i64 %p, ge %v : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_int64_test({{.*}}) : (!llvm.ptr, i32, i64) -> i32
  // P2P:     llvm.call @triton_dist_test_i64({{.*}}) : (!llvm.ptr, i32, i64) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %t = shmem.test i64 %p, ge %v : !llvm.ptr<1>, i64, i32
  // CHECK: llvm.call @triton_dist_wait_until_all_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_int64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_all = shmem.wait_until_all i64 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @triton_dist_wait_until_all_vector_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_int64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_all_vector = shmem.wait_until_all_vector i64 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_int64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_any = shmem.wait_until_any i64 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_vector_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_int64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_any_vector = shmem.wait_until_any_vector i64 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_int64_test_all({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i32
  // P2P:     llvm.call @triton_dist_test_all_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i32
  %test_all = shmem.test_all i64 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i64, i32
  // NVSHMEM: llvm.call @nvshmem_int64_test_all_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  // P2P:     llvm.call @triton_dist_test_all_vector_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  %test_all_vector = shmem.test_all_vector i64 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  // P2P:     llvm.call @triton_dist_test_any_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %test_any = shmem.test_any i64 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_int64_test_any_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_any_vector_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_any_vector = shmem.test_any_vector i64 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i64, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_int64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_some = shmem.wait_until_some i64 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_vector_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_int64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_some_vector = shmem.wait_until_some_vector i64 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_int64_test_some({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i64) -> i64
  // P2P:     llvm.call @triton_dist_test_some_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i64) -> i64
  %test_some = shmem.test_some i64 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_int64_test_some_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_some_vector_i64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_some_vector = shmem.test_some_vector i64 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_u64(
llvm.func @elements_u64(%p: !llvm.ptr<1>, %n: i64, %v: i64) {
  // CHECK: llvm.call @triton_dist_wait_until_u64({{.*}}) : (!llvm.ptr, i32, i64, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_uint64_test({{.*}}) : (!llvm.ptr, i32, i64) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %w = shmem.wait_until u64 %p, ge %v : !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test({{.*}}) : (!llvm.ptr, i32, i64) -> i32
  // P2P:     llvm.call @triton_dist_test_u64({{.*}}) : (!llvm.ptr, i32, i64) -> i32
  // CHECK-NEXT: llvm.fence acquire
  %t = shmem.test u64 %p, ge %v : !llvm.ptr<1>, i64, i32
  // CHECK: llvm.call @triton_dist_wait_until_all_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_uint64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_all = shmem.wait_until_all u64 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @triton_dist_wait_until_all_vector_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> ()
  // NVSHMEM: llvm.call @nvshmem_uint64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_all_vector = shmem.wait_until_all_vector u64 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_any = shmem.wait_until_any u64 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @triton_dist_wait_until_any_vector_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_any_vector = shmem.wait_until_any_vector u64 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test_all({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i32
  // P2P:     llvm.call @triton_dist_test_all_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i32
  %test_all = shmem.test_all u64 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i64, i32
  // NVSHMEM: llvm.call @nvshmem_uint64_test_all_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  // P2P:     llvm.call @triton_dist_test_all_vector_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i32
  %test_all_vector = shmem.test_all_vector u64 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  // P2P:     llvm.call @triton_dist_test_any_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %test_any = shmem.test_any u64 %p, %n, %p, ne %v : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test_any_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_any_vector_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_any_vector = shmem.test_any_vector u64 %p, %n, %p, ne %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i64, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_some = shmem.wait_until_some u64 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @triton_dist_wait_until_some_vector_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr, i32) -> i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test_any({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, i32, i64) -> i64
  %wait_until_some_vector = shmem.wait_until_some_vector u64 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test_some({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i64) -> i64
  // P2P:     llvm.call @triton_dist_test_some_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, i64) -> i64
  %test_some = shmem.test_some u64 %p, %n, %p, %p, lt %v : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_test_some_vector({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  // P2P:     llvm.call @triton_dist_test_some_vector_u64({{.*}}) : (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr) -> i64
  %test_some_vector = shmem.test_some_vector u64 %p, %n, %p, %p, lt %p : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

