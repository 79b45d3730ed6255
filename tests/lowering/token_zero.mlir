// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport p2p 2>&1 | FileCheck %s
// Zero, once nothing may be reordered by it any more.

// CHECK-LABEL: llvm.func @token_zero(
// CHECK:      %[[ZERO:.*]] = llvm.mlir.constant(0 : i32) : i32
// CHECK-NEXT: llvm.return %[[ZERO]]
llvm.func @token_zero(%token: i64) -> i32 {
  %0 = shmem.token_zero %token {tt.divisibility = dense<4096> : tensor<1xi32>} : i32
  llvm.return %0 : i32
}

// -----

llvm.func @token_is_a_word(%token: i32) -> i32 {
  %0 = shmem.token_zero %token : i32
  llvm.return %0 : i32
}
// CHECK: error: use of value '%token' expects different type than prior uses: 'i64' vs 'i32'
