// RUN: %triton-dist-opt %s --pass inline | FileCheck %s
// A function with an op is inlined like any other: as a function, one that takes a block could not be lowered.

// CHECK-LABEL: tt.func public @kernel(
// CHECK-NOT:   tt.call
// CHECK:       %[[PE:.*]] = shmem.my_pe : i32
// CHECK:       shmem.quiet
// CHECK-NOT:   tt.call
// CHECK:       tt.return
tt.func private @helper(%block: tensor<4xi32>) -> tensor<4xi32> {
  %pe = shmem.my_pe : i32
  %all = tt.splat %pe : i32 -> tensor<4xi32>
  %sum = arith.addi %block, %all : tensor<4xi32>
  shmem.quiet
  tt.return %sum : tensor<4xi32>
}

tt.func public @kernel(%ptrs: tensor<4x!tt.ptr<i32>>, %block: tensor<4xi32>) {
  %0 = tt.call @helper(%block) : (tensor<4xi32>) -> tensor<4xi32>
  tt.store %ptrs, %0 : tensor<4x!tt.ptr<i32>>
  tt.return
}
