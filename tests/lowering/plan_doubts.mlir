// RUN: %triton-dist-opt %s --split-input-file --pass plan-shmem-calls --n-pes 2 | FileCheck %s
// What looks wrong in a world of two PEs is a warning.

// CHECK: shmem.warnings = "{{.*}}plan_doubts.mlir:[[#@LINE+3]]:{{[0-9]+}}: shmem.signal_op: pe 2 is out of range [0, 2)
tt.func @no_such_pe(%sig: !tt.ptr<i64>, %n: i64) {
  %pe = arith.constant 2 : i32
  shmem.signal_op %sig, set %n, %pe : !tt.ptr<i64>
  tt.return
}

// -----

// A loop that does not know which PE will write a word says -1.
// CHECK: module
// CHECK-NOT: shmem.warnings
// CHECK: tt.func @not_known
tt.func @not_known(%polls: i32, %words: !tt.ptr<i32>, %n: i32) -> i32 {
  %pe = arith.constant -1 : i32
  %more = shmem.poll %polls, %words, ge %n, %pe, %n, %n, %n, %n : !tt.ptr<i32>
  tt.return %more : i32
}
