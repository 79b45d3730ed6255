// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport rocshmem | FileCheck %s
// Collectives take the default context, which the ABI passes as two pointers, and the world's team. Their counts are C ints.

module attributes {"ttg.target" = "hip:gfx942", "ttg.threads-per-warp" = 64 : i32} {
llvm.mlir.global external @global_smem() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @barriers(
llvm.func @barriers() {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_barrier_allEv() : () -> ()
  shmem.barrier_all thread
  // CHECK: llvm.call @_ZN8rocshmem17rocshmem_sync_allEv() : () -> ()
  shmem.sync_all thread
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_ctx_barrierENS_12rocshmem_ctxEPm({{.*}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
  shmem.barrier thread %world
  // CHECK: llvm.call @_ZN8rocshmem17rocshmem_ctx_syncENS_12rocshmem_ctxEPm({{.*}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
  shmem.sync thread %world
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_barrier_all_waveEv() : () -> ()
  shmem.barrier_all warp
  // CHECK: llvm.call @_ZN8rocshmem22rocshmem_sync_all_waveEv() : () -> ()
  shmem.sync_all warp
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_ctx_barrier_waveENS_12rocshmem_ctxEPm({{.*}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
  shmem.barrier warp %world
  // CHECK: llvm.call @_ZN8rocshmem22rocshmem_ctx_sync_waveENS_12rocshmem_ctxEPm({{.*}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
  shmem.sync warp %world
  // CHECK: llvm.call @_ZN8rocshmem23rocshmem_barrier_all_wgEv() : () -> ()
  shmem.barrier_all block
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_sync_all_wgEv() : () -> ()
  shmem.sync_all block
  // CHECK: llvm.call @_ZN8rocshmem23rocshmem_ctx_barrier_wgENS_12rocshmem_ctxEPm({{.*}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
  shmem.barrier block %world
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_ctx_sync_wgENS_12rocshmem_ctxEPm({{.*}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
  shmem.sync block %world
  llvm.return
}

// CHECK-LABEL: llvm.func @collectives(
llvm.func @collectives(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %root: i32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK:      %[[VARIABLE:.*]] = llvm.mlir.addressof @ROCSHMEM_CTX_DEFAULT : !llvm.ptr<1>
  // CHECK-NEXT: %[[CONTEXT:.*]] = llvm.load %[[VARIABLE]] : !llvm.ptr<1> -> !llvm.struct<(ptr, ptr)>
  // CHECK-NEXT: %[[FIRST:.*]] = llvm.extractvalue %[[CONTEXT]][0]
  // CHECK-NEXT: %[[SECOND:.*]] = llvm.extractvalue %[[CONTEXT]][1]
  // CHECK-NEXT: %[[TEAM:.*]] = llvm.mlir.addressof @ROCSHMEM_TEAM_WORLD : !llvm.ptr<4>
  // CHECK-NEXT: %[[WORLD:.*]] = llvm.load %[[TEAM]] : !llvm.ptr<4> -> !llvm.ptr
  // CHECK-NEXT: %[[COUNT:.*]] = llvm.trunc %arg2 : i64 to i32
  // CHECK-NEXT: llvm.call @_ZN8rocshmem30rocshmem_ctx_char_broadcast_wgENS_12rocshmem_ctxEPmPcPKcii(%[[FIRST]], %[[SECOND]], %[[WORLD]], %{{.*}}, %{{.*}}, %[[COUNT]], %arg3)
  shmem.broadcast block %world, %dst, %src, %n, %root : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_ctx_char_fcollect_wgENS_12rocshmem_ctxEPmPcPKci(
  shmem.fcollect block %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_ctx_char_alltoall_wgENS_12rocshmem_ctxEPmPcPKci(
  shmem.alltoall block %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_short_sum_reduce_wgENS_12rocshmem_ctxEPmPsPKsi(
  shmem.reduce block sum i16 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem33rocshmem_ctx_short_prod_reduce_wgENS_12rocshmem_ctxEPmPsPKsi(
  shmem.reduce block prod i16 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_short_min_reduce_wgENS_12rocshmem_ctxEPmPsPKsi(
  shmem.reduce block min i16 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_short_max_reduce_wgENS_12rocshmem_ctxEPmPsPKsi(
  shmem.reduce block max i16 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_short_and_reduce_wgENS_12rocshmem_ctxEPmPsPKsi(
  shmem.reduce block and i16 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_ctx_short_or_reduce_wgENS_12rocshmem_ctxEPmPsPKsi(
  shmem.reduce block or i16 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_short_xor_reduce_wgENS_12rocshmem_ctxEPmPsPKsi(
  shmem.reduce block xor i16 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ctx_int_sum_reduce_wgENS_12rocshmem_ctxEPmPiPKii(
  shmem.reduce block sum i32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_ctx_int_prod_reduce_wgENS_12rocshmem_ctxEPmPiPKii(
  shmem.reduce block prod i32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ctx_int_min_reduce_wgENS_12rocshmem_ctxEPmPiPKii(
  shmem.reduce block min i32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ctx_int_max_reduce_wgENS_12rocshmem_ctxEPmPiPKii(
  shmem.reduce block max i32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ctx_int_and_reduce_wgENS_12rocshmem_ctxEPmPiPKii(
  shmem.reduce block and i32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_ctx_int_or_reduce_wgENS_12rocshmem_ctxEPmPiPKii(
  shmem.reduce block or i32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ctx_int_xor_reduce_wgENS_12rocshmem_ctxEPmPiPKii(
  shmem.reduce block xor i32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_ctx_long_sum_reduce_wgENS_12rocshmem_ctxEPmPlPKli(
  shmem.reduce block sum i64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_long_prod_reduce_wgENS_12rocshmem_ctxEPmPlPKli(
  shmem.reduce block prod i64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_ctx_long_min_reduce_wgENS_12rocshmem_ctxEPmPlPKli(
  shmem.reduce block min i64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_ctx_long_max_reduce_wgENS_12rocshmem_ctxEPmPlPKli(
  shmem.reduce block max i64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_ctx_long_and_reduce_wgENS_12rocshmem_ctxEPmPlPKli(
  shmem.reduce block and i64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ctx_long_or_reduce_wgENS_12rocshmem_ctxEPmPlPKli(
  shmem.reduce block or i64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_ctx_long_xor_reduce_wgENS_12rocshmem_ctxEPmPlPKli(
  shmem.reduce block xor i64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_float_sum_reduce_wgENS_12rocshmem_ctxEPmPfPKfi(
  shmem.reduce block sum f32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem33rocshmem_ctx_float_prod_reduce_wgENS_12rocshmem_ctxEPmPfPKfi(
  shmem.reduce block prod f32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_float_min_reduce_wgENS_12rocshmem_ctxEPmPfPKfi(
  shmem.reduce block min f32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem32rocshmem_ctx_float_max_reduce_wgENS_12rocshmem_ctxEPmPfPKfi(
  shmem.reduce block max f32 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem33rocshmem_ctx_double_sum_reduce_wgENS_12rocshmem_ctxEPmPdPKdi(
  shmem.reduce block sum f64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem34rocshmem_ctx_double_prod_reduce_wgENS_12rocshmem_ctxEPmPdPKdi(
  shmem.reduce block prod f64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem33rocshmem_ctx_double_min_reduce_wgENS_12rocshmem_ctxEPmPdPKdi(
  shmem.reduce block min f64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem33rocshmem_ctx_double_max_reduce_wgENS_12rocshmem_ctxEPmPdPKdi(
  shmem.reduce block max f64 %world, %dst, %src, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}
}
