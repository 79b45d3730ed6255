// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// Our own routine polls, on NVSHMEM, too. One thread calls it and acquires; what it saw travels to the others through shared memory behind the kernel's own.

// CHECK: module attributes {ttg.shared = 288 : i32}
// CHECK: llvm.func @triton_dist_signal_wait_until(!llvm.ptr, i32, i64, i32) -> i64
module attributes {ttg.shared = 260 : i32} {
llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @signal_wait_until(
llvm.func @signal_wait_until(%sig: !llvm.ptr<1>, %value: i64) -> i64 {
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK-NEXT: %[[TID:.*]] = llvm.call_intrinsic "llvm.nvvm.read.ptx.sreg.tid.x"() : () -> i32
// CHECK:      %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
// CHECK-NEXT: %[[ELECTED:.*]] = llvm.icmp "ult" %[[TID]], %[[ONE]]
// CHECK-NEXT: llvm.cond_br %[[ELECTED]], ^[[THEN:.*]], ^[[JOINED:.*]]
// CHECK:      ^[[THEN]]:
// CHECK-NEXT: %[[SEEN:.*]] = llvm.call @triton_dist_signal_wait_until(%{{.*}}, %{{.*}}, %arg1, %{{.*}})
// CHECK-NEXT: llvm.fence acquire
// CHECK:      llvm.getelementptr %{{.*}}[272]
// CHECK-NEXT: llvm.store %[[SEEN]], %{{.*}} : i64, !llvm.ptr<3>
// CHECK-NEXT: llvm.br ^[[JOINED]]
// CHECK:      ^[[JOINED]]:
// CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
// CHECK:      %[[ALL:.*]] = llvm.load %{{.*}} : !llvm.ptr<3> -> i64
// CHECK:      llvm.return %[[ALL]]
  %seen = shmem.signal_wait_until %sig, ge %value : !llvm.ptr<1>
  llvm.return %seen : i64
}
}

// -----

llvm.func @signal_wait_until_unknown_comparison(%sig: !llvm.ptr<1>, %value: i64) {
  %seen = shmem.signal_wait_until %sig, almost %value : !llvm.ptr<1>
  llvm.return
}
// CHECK: error: custom op 'shmem.signal_wait_until' expected string or keyword containing one of the following enum values for attribute 'cmp' [eq, ne, gt, ge, lt, le]
