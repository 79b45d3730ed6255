// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport rocshmem | FileCheck %s
// How a program's threads meet on AMD: what HIP's __syncthreads is. Fences between PEs are at system scope. A wave's fence
// waits for its own stores only, so before an op publishes, each thread brings its stores to where all of the GPU sees them.

module attributes {"ttg.target" = "hip:gfx942", "ttg.threads-per-warp" = 64 : i32} {
llvm.mlir.global external @global_smem() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @elected(
llvm.func @elected() {
// CHECK:      llvm.fence syncscope("agent") release
// CHECK-NEXT: llvm.fence syncscope("workgroup") release
// CHECK-NEXT: llvm.call_intrinsic "llvm.amdgcn.s.barrier"()
// CHECK-NEXT: llvm.fence syncscope("workgroup") acquire
// CHECK-NEXT: %[[THREAD:.*]] = llvm.call_intrinsic "llvm.amdgcn.workitem.id.x"()
// CHECK-NEXT: %[[ONE:.*]] = llvm.mlir.constant(1 : i32) : i32
// CHECK-NEXT: %[[ELECTED:.*]] = llvm.icmp "ult" %[[THREAD]], %[[ONE]]
// CHECK-NEXT: llvm.cond_br %[[ELECTED]]
// CHECK:      llvm.fence release
// CHECK-NEXT: llvm.call @_ZN8rocshmem14rocshmem_fenceEv() : () -> ()
// CHECK-NEXT: llvm.br
// CHECK:      llvm.fence syncscope("workgroup") release
// CHECK-NEXT: llvm.call_intrinsic "llvm.amdgcn.s.barrier"()
// CHECK-NEXT: llvm.fence syncscope("workgroup") acquire
// CHECK:      llvm.call @_ZN8rocshmem14rocshmem_quietEv() : () -> ()
  shmem.fence
  shmem.quiet
  llvm.return
}

// A wave has 64 threads.
// CHECK-LABEL: llvm.func @wave(
llvm.func @wave(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %nbytes: i64, %pe: i32) {
// CHECK:      %[[THREAD:.*]] = llvm.call_intrinsic "llvm.amdgcn.workitem.id.x"()
// CHECK-NEXT: %[[WAVE:.*]] = llvm.mlir.constant(64 : i32) : i32
// CHECK-NEXT: llvm.icmp "ult" %[[THREAD]], %[[WAVE]]
// CHECK:      llvm.call @_ZN8rocshmem20rocshmem_putmem_waveEPvPKvmi(
  shmem.putmem warp %dst, %src, %nbytes, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// A wait publishes nothing.
// CHECK-LABEL: llvm.func @wait(
llvm.func @wait(%signal: !llvm.ptr<1>, %value: i64) {
// CHECK-NOT: llvm.fence syncscope("agent")
// CHECK:     llvm.call @_ZN8rocshmem25rocshmem_ulong_wait_untilEPmim(
  %seen = shmem.signal_wait_until %signal, ge %value : !llvm.ptr<1>
  llvm.return
}

// Scopes of atomics are AMD's: an agent is a GPU.
// CHECK-LABEL: llvm.func @scopes(
llvm.func @scopes(%dst: !llvm.ptr<1>, %pe: i32, %value: i32) {
// CHECK: llvm.cond_br
// CHECK: llvm.fence syncscope("agent") release
// CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint32_atomic_setEPjji(
  shmem.atomic_set release gpu u32 %dst, %value, %pe : !llvm.ptr<1>, i32
// CHECK: llvm.fence release
// CHECK: llvm.call @_ZN8rocshmem26rocshmem_uint32_atomic_setEPjji(
  shmem.atomic_set release sys u32 %dst, %value, %pe : !llvm.ptr<1>, i32
  llvm.return
}
}
