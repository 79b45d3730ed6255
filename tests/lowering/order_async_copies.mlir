// RUN: sed %this-tritons-descriptors %s > %t.mlir
// RUN: %triton-dist-opt %t.mlir --pass order-async-copies | FileCheck %s
// Waits for pipelined loads move before an op that would say too early that they are done; a partition completes its TMA
// stores.

#barrier = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#tile = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 32}>
#smem = #ttg.shared_memory
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", "ttg.threads-per-warp" = 32 : i32} {

// CHECK-LABEL: tt.func @releases_before_its_loads_are_awaited(
tt.func @releases_before_its_loads_are_awaited(%sig: !tt.ptr<i64>, %arrived: !ttg.memdesc<1xi64, #barrier, #smem, mutable>, %i: i32, %n: i64, %pe: i32) {
  %one = arith.constant 1 : i32
  // CHECK:      %[[PHASE:.*]] = arith.andi
  // CHECK-NEXT: ttng.wait_barrier %{{.*}}, %[[PHASE]]
  // CHECK-NEXT: shmem.signal_op
  // CHECK-NEXT: tt.store
  shmem.signal_op %sig, set %n, %pe : !tt.ptr<i64>
  tt.store %sig, %n : !tt.ptr<i64>
  %phase = arith.andi %i, %one : i32
  ttng.wait_barrier %arrived, %phase : !ttg.memdesc<1xi64, #barrier, #smem, mutable>
  tt.return
}

// CHECK-LABEL: tt.func @releases_in_a_branch(
tt.func @releases_in_a_branch(%sig: !tt.ptr<i64>, %arrived: !ttg.memdesc<1xi64, #barrier, #smem, mutable>, %i: i32, %n: i64, %pe: i32, %last: i1) {
  // CHECK-NEXT: ttng.wait_barrier
  // CHECK-NEXT: ttg.async_wait
  // CHECK-NEXT: scf.if
  scf.if %last {
    shmem.putmem_signal block %sig, %sig, %n, %sig, set %n, %pe : !tt.ptr<i64>, !tt.ptr<i64>, !tt.ptr<i64>
  }
  ttng.wait_barrier %arrived, %i : !ttg.memdesc<1xi64, #barrier, #smem, mutable>
  %done = ttg.async_wait {num = 0 : i32}
  tt.return
}

// A copy that is issued in between is not awaited before it is issued, and who only waits has nothing to tell.
// CHECK-LABEL: tt.func @stays(
tt.func @stays(%sig: !tt.ptr<i64>, %arrived: !ttg.memdesc<1xi64, #barrier, #smem, mutable>, %i: i32, %n: i64, %pe: i32, %true: i1) {
  // CHECK-NEXT: shmem.signal_op
  // CHECK-NEXT: ttng.barrier_expect
  // CHECK-NEXT: shmem.signal_wait_until
  // CHECK-NEXT: ttng.wait_barrier
  shmem.signal_op %sig, set %n, %pe : !tt.ptr<i64>
  ttng.barrier_expect %arrived, 16, %true : !ttg.memdesc<1xi64, #barrier, #smem, mutable>
  %seen = shmem.signal_wait_until %sig, ge %n : !tt.ptr<i64>
  ttng.wait_barrier %arrived, %i : !ttg.memdesc<1xi64, #barrier, #smem, mutable>
  tt.return
}

// CHECK-LABEL: tt.func @partitions(
tt.func @partitions(%sig: !tt.ptr<i64>, %n: i64, %pe: i32, %to: !tt.tensordesc<tensor<16x16xf32, #tile>>, %tile: !ttg.memdesc<16x16xf32, #tile, #smem, mutable>) {
  ttg.warp_specialize(%to, %tile)
  default {
    ttg.warp_yield
  }
  partition0(%to_0: !tt.tensordesc<tensor<16x16xf32, #tile>>, %tile_0: !ttg.memdesc<16x16xf32, #tile, #smem, mutable>) num_warps(4) {
    %zero = arith.constant 0 : i32
    // CHECK:      ttng.async_tma_copy_local_to_global
    // CHECK-NEXT: llvm.inline_asm has_side_effects asm_dialect = att "cp.async.bulk.wait_group 0;", "~{memory}"
    // CHECK-NEXT: ttg.warp_return
    ttng.async_tma_copy_local_to_global %to_0[%zero, %zero] %tile_0 : !tt.tensordesc<tensor<16x16xf32, #tile>>, !ttg.memdesc<16x16xf32, #tile, #smem, mutable>
    ttg.warp_return
  }
  partition1(%to_1: !tt.tensordesc<tensor<16x16xf32, #tile>>, %tile_1: !ttg.memdesc<16x16xf32, #tile, #smem, mutable>) num_warps(4) {
    // CHECK:      num_warps(4)
    // CHECK-NEXT: ttg.warp_return
    ttg.warp_return
  } : (!tt.tensordesc<tensor<16x16xf32, #tile>>, !ttg.memdesc<16x16xf32, #tile, #smem, mutable>) -> ()
  shmem.signal_op %sig, set %n, %pe : !tt.ptr<i64>
  tt.return
}
}
