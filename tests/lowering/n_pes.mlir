// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// Every thread asks; nobody waits for anybody.

// CHECK: llvm.func @nvshmem_n_pes() -> i32
// CHECK-LABEL: llvm.func @n_pes(
// CHECK-NOT:  barrier
// CHECK:      %[[PE:.*]] = llvm.call @nvshmem_n_pes() : () -> i32
// CHECK-NEXT: llvm.return %[[PE]] : i32
llvm.func @n_pes() -> i32 {
  %0 = shmem.n_pes : i32
  llvm.return %0 : i32
}

// -----

llvm.func @n_pes_is_an_int() -> i64 {
  %0 = shmem.n_pes : i64
  llvm.return %0 : i64
}
// CHECK: error: 'shmem.n_pes' op result #0 must be 32-bit signless integer, but got 'i64'
