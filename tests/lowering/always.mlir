// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport p2p 2>&1 | FileCheck %s
// True, and Triton's own passes cannot know.

// CHECK-LABEL: llvm.func @always(
// CHECK:      %[[TRUE:.*]] = llvm.mlir.constant(true) : i1
// CHECK-NEXT: llvm.return %[[TRUE]]
llvm.func @always() -> i1 {
  %0 = shmem.always : i1
  llvm.return %0 : i1
}

// -----

llvm.func @always_is_a_bit() -> i32 {
  %0 = shmem.always : i32
  llvm.return %0 : i32
}
// CHECK: error: 'shmem.always' op result #0 must be 1-bit signless integer, but got 'i32'
