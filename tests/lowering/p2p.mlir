// RUN: %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport p2p | FileCheck %s
// Our own library: it orders what its routines publish and acquire, and asks the kernel how many threads a program has.

module attributes {"ttg.num-warps" = 8 : i32, "ttg.threads-per-warp" = 32 : i32} {
  // CHECK-LABEL: llvm.func @ordered_by_the_library(
  llvm.func @ordered_by_the_library(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %sig: !llvm.ptr<1>, %pe: i32) {
    // CHECK-NOT: llvm.fence
    // CHECK: llvm.call @triton_dist_putmem_signal_block
    // CHECK-NOT: llvm.fence
    // CHECK: llvm.call @triton_dist_fence
    // CHECK-NOT: llvm.fence
    // CHECK: llvm.call @triton_dist_quiet
    // CHECK-NOT: llvm.fence
    // CHECK: llvm.return
    shmem.putmem_signal block %dst, %src, %n, %sig, add %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
    shmem.fence
    shmem.quiet
    llvm.return
  }
  // CHECK-LABEL: llvm.func @ordered_by_the_lowering(
  llvm.func @ordered_by_the_lowering(%sig: !llvm.ptr<1>, %dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
    // CHECK: llvm.fence release
    // CHECK-NEXT: llvm.call @triton_dist_signal_op
    // CHECK: llvm.call @triton_dist_getmem_block
    // CHECK-NEXT: llvm.fence acquire
    shmem.signal_op %sig, set %n, %pe : !llvm.ptr<1>
    shmem.getmem block %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
    llvm.return
  }
  // CHECK-LABEL: llvm.func @what_the_plan_says(
  llvm.func @what_the_plan_says(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %sig: !llvm.ptr<1>, %pe: i32) {
    // CHECK: llvm.call @triton_dist_putmem_nbi_aligned_warp
    // CHECK: llvm.call @triton_dist_putmem_signal_aligned_block
    // CHECK: llvm.call @triton_dist_getmem_between_aligned_block
    // CHECK: llvm.call @triton_dist_putmem_signal_block
    shmem.putmem_nbi warp %dst, %src, %n, %pe {shmem.aligned} : !llvm.ptr<1>, !llvm.ptr<1>
    shmem.putmem_signal block %dst, %src, %n, %sig, add %n, %pe {shmem.aligned} : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
    shmem.getmem block %dst, %src, %n, %pe {shmem.aligned_addresses} : !llvm.ptr<1>, !llvm.ptr<1>
    shmem.putmem_signal block %dst, %src, %n, %sig, add %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
    llvm.return
  }
  // Last, for Triton's AMD backend takes the first function for the kernel.
  // CHECK: llvm.func linkonce_odr @triton_dist_program_threads() -> i32 {
  // CHECK-NEXT: %[[THREADS:.*]] = llvm.mlir.constant(256 : i32)
  // CHECK-NEXT: llvm.return %[[THREADS]]
}

// -----

// Who links the module, learns when there are calls that the library does not answer.
// CHECK: shmem.calls_others = true
module {
  llvm.func @__nv_expf(f32) -> f32
  llvm.func @calls_others(%x: f32) -> f32 {
    shmem.fence
    %y = llvm.call @__nv_expf(%x) : (f32) -> f32
    llvm.return %y : f32
  }
}

// -----

// CHECK-NOT: shmem.calls_others
module {
  llvm.func @calls_ours() {
    shmem.fence
    llvm.return
  }
}
// CHECK: llvm.call @triton_dist_fence

// -----

// In a warp-specialised kernel the program is those threads that are no partition's: they meet without the others.
module attributes {"ttg.num-warps" = 4 : i32, "ttg.total-num-warps" = 12 : i32, "ttg.threads-per-warp" = 32 : i32} {
  // CHECK-LABEL: llvm.func @beside_partitions(
  llvm.func @beside_partitions() {
    // CHECK: %[[THREADS:.*]] = llvm.mlir.constant(128 : i32)
    // CHECK-NEXT: llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.count"(%{{.*}}, %[[THREADS]])
    // CHECK: llvm.call @triton_dist_fence
    shmem.fence
    llvm.return
  }
  // CHECK: llvm.func linkonce_odr @triton_dist_program_threads() -> i32 {
  // CHECK-NEXT: llvm.mlir.constant(128 : i32)
}
