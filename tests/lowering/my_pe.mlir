// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// Every thread asks; nobody waits for anybody.

// CHECK: llvm.func @nvshmem_my_pe() -> i32
// CHECK-LABEL: llvm.func @my_pe(
// CHECK-NOT:  barrier
// CHECK:      %[[PE:.*]] = llvm.call @nvshmem_my_pe() : () -> i32
// CHECK-NEXT: llvm.return %[[PE]] : i32
llvm.func @my_pe() -> i32 {
  %0 = shmem.my_pe : i32
  llvm.return %0 : i32
}

// -----

llvm.func @my_pe_is_an_int() -> i64 {
  %0 = shmem.my_pe : i64
  llvm.return %0 : i64
}
// CHECK: error: 'shmem.my_pe' op result #0 must be 32-bit signless integer, but got 'i64'
