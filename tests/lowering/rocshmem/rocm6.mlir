// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport rocshmem-6 2>&1 | FileCheck %s
// ROCSHMEM up to ROCm 6.4: copies, elements and atomics as later; the world's barriers are a work-group's and named the other
// way round; device code cannot name a team.

llvm.func @barriers(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i64, %pe: i32) {
  // CHECK: llvm.call @_ZN8rocshmem23rocshmem_wg_barrier_allEv() : () -> ()
  shmem.barrier_all block
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_wg_sync_allEv() : () -> ()
  shmem.sync_all block
  // CHECK: llvm.call @_ZN8rocshmem18rocshmem_putmem_wgEPvPKvmi(
  shmem.putmem block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @wave() {
  // CHECK: error: shmem.barrier_all is available for scope block only on transport rocshmem-6
  shmem.barrier_all warp
  llvm.return
}

// -----

llvm.func @team() {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.sync is not available: device code cannot name a team on transport rocshmem-6
  shmem.sync block %world
  llvm.return
}
