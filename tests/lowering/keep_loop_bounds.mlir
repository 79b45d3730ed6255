// RUN: %triton-dist-opt %s --pass keep-loop-bounds | FileCheck %s --check-prefixes=CHECK,NVIDIA
// RUN: %triton-dist-opt %s --pass keep-loop-bounds --target hip:gfx942 | FileCheck %s --check-prefixes=CHECK,AMD
// Bounds of loops that depend on what a loop around them carries are used by an op that Triton does not leave out.

module {

// CHECK-LABEL: tt.func @a_bound_is_carried(
tt.func @a_bound_is_carried(%lengths: !tt.ptr<i32>, %places: !tt.ptr<i32>, %n: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %first = tt.load %lengths : !tt.ptr<i32>
  // CHECK:       iter_args(%[[LENGTH:.*]] = %{{.*}})
  // NVIDIA-NEXT: llvm.inline_asm has_side_effects {{.*}}"", "r" %[[LENGTH]]
  // AMD-NEXT:    llvm.inline_asm has_side_effects {{.*}}"", "v" %[[LENGTH]]
  // CHECK-NEXT:  scf.for %{{.*}} to %[[LENGTH]]
  scf.for %i = %zero to %n step %one iter_args(%length = %first) -> (i32) : i32 {
    scf.for %j = %zero to %length step %one : i32 {
      tt.store %places, %j : !tt.ptr<i32>
    }
    %next = tt.load %lengths : !tt.ptr<i32>
    scf.yield %next : i32
  }
  tt.return
}

// CHECK-LABEL: tt.func @bounds_are_computed_of_what_is_carried(
tt.func @bounds_are_computed_of_what_is_carried(%lengths: !tt.ptr<i64>, %places: !tt.ptr<i64>, %n: i64, %some: i1) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %first = tt.load %lengths : !tt.ptr<i64>
  scf.for %i = %zero to %n step %one iter_args(%length = %first) -> (i64) : i64 {
    %begin = scf.if %some -> i64 {
      %doubled = arith.addi %length, %length : i64
      scf.yield %doubled : i64
    } else {
      scf.yield %zero : i64
    }
    // CHECK:       %[[END:.*]] = arith.maxsi
    // NVIDIA-NEXT: llvm.inline_asm has_side_effects {{.*}}"", "l" %[[BEGIN:.*]] :
    // NVIDIA-NEXT: llvm.inline_asm has_side_effects {{.*}}"", "l" %[[END]] :
    // NVIDIA-NEXT: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
    %end = arith.maxsi %length, %one : i64
    scf.for %j = %begin to %end step %one : i64 {
      tt.store %places, %j : !tt.ptr<i64>
    }
    %next = tt.load %lengths : !tt.ptr<i64>
    scf.yield %next : i64
  }
  tt.return
}

// CHECK-LABEL: tt.func @other_bounds_are_left_alone(
// CHECK-NOT:   llvm.inline_asm
// CHECK:       tt.return
tt.func @other_bounds_are_left_alone(%lengths: !tt.ptr<i32>, %places: !tt.ptr<i32>, %n: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %carried = scf.for %i = %zero to %n step %one iter_args(%sum = %zero) -> (i32) : i32 {
    %length = tt.load %lengths : !tt.ptr<i32>
    scf.for %j = %i to %length step %one : i32 {
      tt.store %places, %j : !tt.ptr<i32>
    }
    %next = arith.addi %sum, %length : i32
    scf.yield %next : i32
  }
  scf.for %j = %zero to %carried step %one : i32 {
    tt.store %places, %j : !tt.ptr<i32>
  }
  tt.return
}

}
