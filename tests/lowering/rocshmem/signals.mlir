// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport rocshmem | FileCheck %s
// ROCSHMEM has no signal_op and no signal_wait_until: the table names an atomic and a wait on the same uint64_t instead.

module attributes {"ttg.target" = "hip:gfx942", "ttg.threads-per-warp" = 64 : i32} {
llvm.mlir.global external @global_smem() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @signals(
llvm.func @signals(%signal: !llvm.ptr<1>, %value: i64, %pe: i32) -> i64 {
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint64_atomic_setEPmmi({{.*}}, %arg1, %arg2) : (!llvm.ptr, i64, i32) -> ()
  shmem.signal_op %signal, set %value, %pe : !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint64_atomic_addEPmmi({{.*}}, %arg1, %arg2) : (!llvm.ptr, i64, i32) -> ()
  shmem.signal_op %signal, add %value, %pe : !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem21rocshmem_signal_fetchEPKm({{.*}}) : (!llvm.ptr) -> i64
  %now = shmem.signal_fetch %signal : !llvm.ptr<1>
  // The wait does not tell what it saw, so the thread looks again, before the fence that acquires.
  // CHECK:      %[[GE:.*]] = llvm.mlir.constant(3 : i32) : i32
  // CHECK:      llvm.call @_ZN8rocshmem25rocshmem_ulong_wait_untilEPmim(%[[SIGNAL:.*]], %[[GE]], %arg1)
  // CHECK-NEXT: %[[SEEN:.*]] = llvm.load %[[SIGNAL]] atomic monotonic
  // CHECK-NEXT: llvm.fence acquire
  // CHECK:      llvm.store %[[SEEN]], %{{.*}} : i64, !llvm.ptr<3>
  %seen = shmem.signal_wait_until %signal, ge %value : !llvm.ptr<1>
  %both = llvm.add %now, %seen : i64
  llvm.return %both : i64
}
}
