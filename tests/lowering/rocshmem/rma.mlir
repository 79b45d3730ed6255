// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport rocshmem | FileCheck %s
// Copies of ROCSHMEM, in every scope: its words are wave and work-group. Signals are updated with its numbers: SET 0, ADD 1.

module attributes {"ttg.target" = "hip:gfx942", "ttg.threads-per-warp" = 64 : i32} {
llvm.mlir.global external @global_smem() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @rma(
llvm.func @rma(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i64, %pe: i32, %one: i64) {
  // CHECK: llvm.call @_ZN8rocshmem15rocshmem_putmemEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem thread %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_putmem_waveEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem warp %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem18rocshmem_putmem_wgEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem15rocshmem_getmemEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem thread %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_getmem_waveEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem warp %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem18rocshmem_getmem_wgEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem19rocshmem_putmem_nbiEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem_nbi thread %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem24rocshmem_putmem_nbi_waveEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem_nbi warp %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem22rocshmem_putmem_nbi_wgEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem_nbi block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem19rocshmem_getmem_nbiEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem_nbi thread %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem24rocshmem_getmem_nbi_waveEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem_nbi warp %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem22rocshmem_getmem_nbi_wgEPvPKvmi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem_nbi block %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: ^[[BLOCK:.*]]:
  // CHECK: llvm.call @_ZN8rocshmem18rocshmem_putmem_wgEPvPKvmi({{.*}}, %arg3) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // CHECK: llvm.br ^
  shmem.ibput block bf16 %dst, %src, %nbytes, %nbytes, %nbytes, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_getmem_waveEPvPKvmi({{.*}}, %arg3) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // CHECK: llvm.br ^
  shmem.ibget warp f32 %dst, %src, %nbytes, %nbytes, %nbytes, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[UPDATE:.*]] = llvm.mlir.constant(0 : i32) : i32
  // CHECK: llvm.call @_ZN8rocshmem22rocshmem_putmem_signalEPvPKvmPmmii({{.*}}, %arg4, %[[UPDATE]], %arg3) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32)
  shmem.putmem_signal thread %dst, %src, %nbytes, %dst, set %one, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[UPDATE:.*]] = llvm.mlir.constant(1 : i32) : i32
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_putmem_signal_waveEPvPKvmPmmii({{.*}}, %arg4, %[[UPDATE]], %arg3) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32)
  shmem.putmem_signal warp %dst, %src, %nbytes, %dst, add %one, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[UPDATE:.*]] = llvm.mlir.constant(1 : i32) : i32
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_putmem_signal_wgEPvPKvmPmmii({{.*}}, %arg4, %[[UPDATE]], %arg3) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32)
  shmem.putmem_signal block %dst, %src, %nbytes, %dst, add %one, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[UPDATE:.*]] = llvm.mlir.constant(0 : i32) : i32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_putmem_signal_nbiEPvPKvmPmmii({{.*}}, %arg4, %[[UPDATE]], %arg3) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32)
  shmem.putmem_signal_nbi thread %dst, %src, %nbytes, %dst, set %one, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[UPDATE:.*]] = llvm.mlir.constant(1 : i32) : i32
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_putmem_signal_nbi_waveEPvPKvmPmmii({{.*}}, %arg4, %[[UPDATE]], %arg3) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32)
  shmem.putmem_signal_nbi warp %dst, %src, %nbytes, %dst, add %one, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[UPDATE:.*]] = llvm.mlir.constant(1 : i32) : i32
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_putmem_signal_nbi_wgEPvPKvmPmmii({{.*}}, %arg4, %[[UPDATE]], %arg3) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32)
  shmem.putmem_signal_nbi block %dst, %src, %nbytes, %dst, add %one, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}
}
