// RUN: %triton-dist-opt %s --split-input-file --pass plan-shmem-calls --transport p2p | FileCheck %s
// Copies that are known to be of whole vectors of 16 bytes between aligned addresses have a routine of their own, and
// so have those of which this is known of the addresses alone.

// What Triton knows of arguments, and what is computed from it.
// CHECK: shmem.routines = "triton_dist_putmem_aligned_block\09{{[^"]*}}\0Atriton_dist_getmem_nbi_aligned_warp\09{{[^"]*}}\0Atriton_dist_putmem_signal_aligned_block\09
// CHECK-LABEL: @known(
tt.func public @known(%dst: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %src: !tt.ptr<f16> {tt.divisibility = 16 : i32},
                      %n: i32 {tt.divisibility = 16 : i32}, %sig: !tt.ptr<i64>, %one: i64, %pe: i32) {
  %size = arith.extsi %n : i32 to i64
  // CHECK: shmem.putmem block {{.*}} {shmem.aligned}
  shmem.putmem block %dst, %src, %size, %pe : !tt.ptr<f16>, !tt.ptr<f16>

  %eight = arith.constant 8 : i32
  %row = arith.muli %pe, %eight : i32
  %there = tt.addptr %dst, %row : !tt.ptr<f16>, i32
  %hint = arith.addi %pe, %pe {tt.divisibility = dense<32> : tensor<1xi32>} : i32
  %here = tt.addptr %src, %hint : !tt.ptr<f16>, i32
  %few = arith.constant 4096 : i64
  // CHECK: shmem.getmem_nbi warp {{.*}} {shmem.aligned}
  shmem.getmem_nbi warp %there, %here, %few, %pe : !tt.ptr<f16>, !tt.ptr<f16>

  %four = arith.constant 4 : i32
  %columns = arith.muli %row, %four : i32
  %bytes = arith.extsi %columns : i32 to i64
  %whole = arith.subi %size, %bytes : i64
  // CHECK: shmem.putmem_signal block {{.*}} {shmem.aligned}
  shmem.putmem_signal block %there, %src, %whole, %sig, add %one, %pe : !tt.ptr<f16>, !tt.ptr<f16>, !tt.ptr<i64>
  tt.return
}

// -----

// Of the sizes nothing is known.
// CHECK: shmem.routines = "triton_dist_putmem_between_aligned_block\09{{[^"]*}}\0Atriton_dist_putmem_signal_nbi_between_aligned_block\09
// CHECK-LABEL: @addresses(
tt.func public @addresses(%dst: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %src: !tt.ptr<f16> {tt.divisibility = 16 : i32},
                          %n: i64, %sig: !tt.ptr<i64>, %pe: i32) {
  %whole = arith.constant 4096 : i64
  %tail = arith.constant 4104 : i64
  %cut = arith.divsi %whole, %n : i64
  // CHECK: shmem.putmem block {{.*}} {shmem.aligned_addresses}
  // CHECK: shmem.putmem block {{.*}} {shmem.aligned_addresses}
  // CHECK: shmem.putmem block {{.*}} {shmem.aligned_addresses}
  // CHECK: shmem.putmem_signal_nbi block {{.*}} {shmem.aligned_addresses}
  shmem.putmem block %dst, %src, %n, %pe : !tt.ptr<f16>, !tt.ptr<f16>
  shmem.putmem block %dst, %src, %tail, %pe : !tt.ptr<f16>, !tt.ptr<f16>
  shmem.putmem block %dst, %src, %cut, %pe : !tt.ptr<f16>, !tt.ptr<f16>
  shmem.putmem_signal_nbi block %dst, %src, %n, %sig, add %n, %pe : !tt.ptr<f16>, !tt.ptr<f16>, !tt.ptr<i64>
  tt.return
}

// -----

// One address that is not known is enough: an argument, a place half a vector further on, one of two.
// CHECK: shmem.routines = "triton_dist_putmem_block\09
// CHECK-NOT: shmem.aligned
// CHECK: tt.return
tt.func public @unknown(%dst: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %src: !tt.ptr<f16> {tt.divisibility = 16 : i32},
                        %any: !tt.ptr<f16>, %half: !tt.ptr<f16> {tt.divisibility = 8 : i32}, %which: i1, %pe: i32) {
  %whole = arith.constant 4096 : i64
  %four = arith.constant 4 : i32
  %further = tt.addptr %dst, %four : !tt.ptr<f16>, i32
  %either = arith.select %which, %dst, %half : !tt.ptr<f16>
  shmem.putmem block %dst, %any, %whole, %pe : !tt.ptr<f16>, !tt.ptr<f16>
  shmem.putmem block %any, %src, %whole, %pe : !tt.ptr<f16>, !tt.ptr<f16>
  shmem.putmem block %further, %src, %whole, %pe : !tt.ptr<f16>, !tt.ptr<f16>
  shmem.putmem block %either, %src, %whole, %pe : !tt.ptr<f16>, !tt.ptr<f16>
  tt.return
}

// -----

// What a loop carries is not followed, an address that begins at an aligned one included.
// CHECK: shmem.routines = "triton_dist_putmem_block\09
// CHECK-NOT: shmem.aligned
// CHECK: tt.return
tt.func public @carried(%dst: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %pe: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %whole = arith.constant 4096 : i64
  scf.for %i = %zero to %pe step %one iter_args(%at = %dst) -> (!tt.ptr<f16>) : i32 {
    shmem.putmem block %at, %at, %whole, %pe : !tt.ptr<f16>, !tt.ptr<f16>
    %next = tt.addptr %at, %one : !tt.ptr<f16>, i32
    scf.yield %next : !tt.ptr<f16>
  }
  tt.return
}
