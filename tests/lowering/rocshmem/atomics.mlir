// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport rocshmem | FileCheck %s
// Atomics of ROCSHMEM, by their fixed-width names: only under these does it have the bitwise ones for signed integers.

module attributes {"ttg.target" = "hip:gfx942", "ttg.threads-per-warp" = 64 : i32} {
llvm.mlir.global external @global_smem() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @atomics_i32(
llvm.func @atomics_i32(%dst: !llvm.ptr<1>, %pe: i32, %value: i32) {
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_int32_atomic_fetchEPii(
  %fetch = shmem.atomic_fetch relaxed gpu i32 %dst, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int32_atomic_setEPiii(
  shmem.atomic_set release sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_int32_atomic_swapEPiii(
  %swap = shmem.atomic_swap acq_rel sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int32_atomic_incEPii(
  shmem.atomic_inc relaxed sys i32 %dst, %pe : !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_int32_atomic_fetch_incEPii(
  %inc = shmem.atomic_fetch_inc relaxed sys i32 %dst, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int32_atomic_addEPiii(
  shmem.atomic_add relaxed sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_int32_atomic_fetch_addEPiii(
  %add = shmem.atomic_fetch_add relaxed sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int32_atomic_andEPiii(
  shmem.atomic_and relaxed sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_int32_atomic_fetch_andEPiii(
  %and = shmem.atomic_fetch_and relaxed sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem24rocshmem_int32_atomic_orEPiii(
  shmem.atomic_or relaxed sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_int32_atomic_fetch_orEPiii(
  %or = shmem.atomic_fetch_or relaxed sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int32_atomic_xorEPiii(
  shmem.atomic_xor relaxed sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_int32_atomic_fetch_xorEPiii(
  %xor = shmem.atomic_fetch_xor relaxed sys i32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem34rocshmem_int32_atomic_compare_swapEPiiii(
  %cas = shmem.atomic_compare_swap acquire sys i32 %dst, %value, %value, %pe : !llvm.ptr<1>, i32, i32, i32
  llvm.return
}

// CHECK-LABEL: llvm.func @atomics_u32(
llvm.func @atomics_u32(%dst: !llvm.ptr<1>, %pe: i32, %value: i32) {
  // CHECK: llvm.call @_ZN8rocshmem28rocshmem_uint32_atomic_fetchEPji(
  %fetch = shmem.atomic_fetch relaxed gpu u32 %dst, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint32_atomic_setEPjji(
  shmem.atomic_set release sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_uint32_atomic_swapEPjji(
  %swap = shmem.atomic_swap acq_rel sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint32_atomic_incEPji(
  shmem.atomic_inc relaxed sys u32 %dst, %pe : !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_uint32_atomic_fetch_incEPji(
  %inc = shmem.atomic_fetch_inc relaxed sys u32 %dst, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint32_atomic_addEPjji(
  shmem.atomic_add relaxed sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_uint32_atomic_fetch_addEPjji(
  %add = shmem.atomic_fetch_add relaxed sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint32_atomic_andEPjji(
  shmem.atomic_and relaxed sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_uint32_atomic_fetch_andEPjji(
  %and = shmem.atomic_fetch_and relaxed sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_uint32_atomic_orEPjji(
  shmem.atomic_or relaxed sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_uint32_atomic_fetch_orEPjji(
  %or = shmem.atomic_fetch_or relaxed sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint32_atomic_xorEPjji(
  shmem.atomic_xor relaxed sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_uint32_atomic_fetch_xorEPjji(
  %xor = shmem.atomic_fetch_xor relaxed sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem35rocshmem_uint32_atomic_compare_swapEPjjji(
  %cas = shmem.atomic_compare_swap acquire sys u32 %dst, %value, %value, %pe : !llvm.ptr<1>, i32, i32, i32
  llvm.return
}

// CHECK-LABEL: llvm.func @atomics_i64(
llvm.func @atomics_i64(%dst: !llvm.ptr<1>, %pe: i32, %value: i64) {
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_int64_atomic_fetchEPli(
  %fetch = shmem.atomic_fetch relaxed gpu i64 %dst, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int64_atomic_setEPlli(
  shmem.atomic_set release sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_int64_atomic_swapEPlli(
  %swap = shmem.atomic_swap acq_rel sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int64_atomic_incEPli(
  shmem.atomic_inc relaxed sys i64 %dst, %pe : !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_int64_atomic_fetch_incEPli(
  %inc = shmem.atomic_fetch_inc relaxed sys i64 %dst, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int64_atomic_addEPlli(
  shmem.atomic_add relaxed sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_int64_atomic_fetch_addEPlli(
  %add = shmem.atomic_fetch_add relaxed sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int64_atomic_andEPlli(
  shmem.atomic_and relaxed sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_int64_atomic_fetch_andEPlli(
  %and = shmem.atomic_fetch_and relaxed sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem24rocshmem_int64_atomic_orEPlli(
  shmem.atomic_or relaxed sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_int64_atomic_fetch_orEPlli(
  %or = shmem.atomic_fetch_or relaxed sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_int64_atomic_xorEPlli(
  shmem.atomic_xor relaxed sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_int64_atomic_fetch_xorEPlli(
  %xor = shmem.atomic_fetch_xor relaxed sys i64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem34rocshmem_int64_atomic_compare_swapEPllli(
  %cas = shmem.atomic_compare_swap acquire sys i64 %dst, %value, %value, %pe : !llvm.ptr<1>, i64, i64, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @atomics_u64(
llvm.func @atomics_u64(%dst: !llvm.ptr<1>, %pe: i32, %value: i64) {
  // CHECK: llvm.call @_ZN8rocshmem28rocshmem_uint64_atomic_fetchEPmi(
  %fetch = shmem.atomic_fetch relaxed gpu u64 %dst, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint64_atomic_setEPmmi(
  shmem.atomic_set release sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_uint64_atomic_swapEPmmi(
  %swap = shmem.atomic_swap acq_rel sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint64_atomic_incEPmi(
  shmem.atomic_inc relaxed sys u64 %dst, %pe : !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_uint64_atomic_fetch_incEPmi(
  %inc = shmem.atomic_fetch_inc relaxed sys u64 %dst, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint64_atomic_addEPmmi(
  shmem.atomic_add relaxed sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_uint64_atomic_fetch_addEPmmi(
  %add = shmem.atomic_fetch_add relaxed sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint64_atomic_andEPmmi(
  shmem.atomic_and relaxed sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_uint64_atomic_fetch_andEPmmi(
  %and = shmem.atomic_fetch_and relaxed sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_uint64_atomic_orEPmmi(
  shmem.atomic_or relaxed sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_uint64_atomic_fetch_orEPmmi(
  %or = shmem.atomic_fetch_or relaxed sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint64_atomic_xorEPmmi(
  shmem.atomic_xor relaxed sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_uint64_atomic_fetch_xorEPmmi(
  %xor = shmem.atomic_fetch_xor relaxed sys u64 %dst, %value, %pe : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem35rocshmem_uint64_atomic_compare_swapEPmmmi(
  %cas = shmem.atomic_compare_swap acquire sys u64 %dst, %value, %value, %pe : !llvm.ptr<1>, i64, i64, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @atomics_f32(
llvm.func @atomics_f32(%dst: !llvm.ptr<1>, %pe: i32, %value: f32) {
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_float_atomic_fetchEPfi(
  %fetch = shmem.atomic_fetch relaxed gpu f32 %dst, %pe : !llvm.ptr<1>, f32
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_float_atomic_setEPffi(
  shmem.atomic_set release sys f32 %dst, %value, %pe : !llvm.ptr<1>, f32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_float_atomic_swapEPffi(
  %swap = shmem.atomic_swap acq_rel sys f32 %dst, %value, %pe : !llvm.ptr<1>, f32, f32
  llvm.return
}

// CHECK-LABEL: llvm.func @atomics_f64(
llvm.func @atomics_f64(%dst: !llvm.ptr<1>, %pe: i32, %value: f64) {
  // CHECK: llvm.call @_ZN8rocshmem28rocshmem_double_atomic_fetchEPdi(
  %fetch = shmem.atomic_fetch relaxed gpu f64 %dst, %pe : !llvm.ptr<1>, f64
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_double_atomic_setEPddi(
  shmem.atomic_set release sys f64 %dst, %value, %pe : !llvm.ptr<1>, f64
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_double_atomic_swapEPddi(
  %swap = shmem.atomic_swap acq_rel sys f64 %dst, %value, %pe : !llvm.ptr<1>, f64, f64
  llvm.return
}
}
