// RUN: %triton-dist-opt %s --split-input-file --pass plan-shmem-calls | FileCheck %s
// What a module will call, with the line and the op of the first call; or why it cannot.

tt.func @two_routines(%sig: !tt.ptr<i64>, %n: i64, %pe: i32) {
  // CHECK: shmem.routines = "nvshmemx_signal_op\09{{.*}}plan_shmem_calls.mlir:[[#@LINE+1]]:{{[0-9]+}}: shmem.signal_op\0Anvshmemx_putmem_warp\09
  shmem.signal_op %sig, set %n, %pe : !tt.ptr<i64>
  shmem.signal_op %sig, add %n, %pe : !tt.ptr<i64>
  shmem.putmem warp %sig, %sig, %n, %pe : !tt.ptr<i64>, !tt.ptr<i64>
  tt.return
}

// -----

module attributes {"ttg.num-ctas" = 2 : i32} {
tt.func @cluster(%pe: i32) -> i32 {
  %me = shmem.my_pe : i32
  // CHECK: shmem.error = "{{.*}}:[[#@LINE+1]]:{{[0-9]+}}: shmem.fence in a kernel with num_ctas=2: it would act once per CTA
  shmem.fence
  tt.return %me : i32
}
}

// -----

module attributes {"ttg.num-warps" = 4 : i32, "ttg.num-ctas" = 1 : i32} {
tt.func @partition() {
  ttg.warp_specialize()
  default {
    ttg.warp_yield
  }
  partition0() num_warps(4) {
    // CHECK: shmem.error = "{{.*}}:[[#@LINE+1]]:{{[0-9]+}}: shmem.fence stands in a warp-specialised region
    shmem.fence
    ttg.warp_return
  } : () -> ()
  tt.return
}
}

// -----

// A function that is not inlined is called by a partition, by way of another one. `shmem.my_pe` needs no warps.
module attributes {"ttg.num-warps" = 4 : i32, "ttg.num-ctas" = 1 : i32} {
tt.func private @signals() attributes {noinline = true} {
  %me = shmem.my_pe : i32
  // CHECK: shmem.error = "{{.*}}:[[#@LINE+1]]:{{[0-9]+}}: shmem.quiet stands in a noinline function that a warp-specialised region calls
  shmem.quiet
  tt.return
}
tt.func private @between() attributes {noinline = true} {
  tt.call @signals() : () -> ()
  tt.return
}
tt.func public @calling_partition() {
  ttg.warp_specialize()
  default {
    ttg.warp_yield
  }
  partition0() num_warps(4) {
    tt.call @between() : () -> ()
    ttg.warp_return
  } : () -> ()
  tt.return
}
}

// -----

module attributes {"ttg.num-warps" = 4 : i32, "ttg.num-ctas" = 1 : i32} {
tt.func private @signals() attributes {noinline = true} {
  // CHECK: shmem.routines = "{{.*}}plan_shmem_calls.mlir:[[#@LINE+1]]:{{[0-9]+}}: shmem.quiet
  shmem.quiet
  tt.return
}
tt.func public @calling_outside() {
  tt.call @signals() : () -> ()
  ttg.warp_specialize()
  default {
    ttg.warp_yield
  }
  partition0() num_warps(4) {
    ttg.warp_return
  } : () -> ()
  tt.return
}
}

// -----

// What a launch needs: a grid that is resident, memory for what is scattered, symmetric arguments. A pointer that may be
// one of two arguments is not followed, nor a size that is computed.
// CHECK: shmem.collective = "{{[^"]*}}plan_shmem_calls.mlir:[[#@LINE+14]]:{{[0-9]+}}: shmem.reducescatter"
// CHECK-SAME: shmem.scratch = "1000\098\09{{[^"]*}}mlir:[[#@LINE+13]]:{{[0-9]+}}: shmem.reducescatter\0Am\094\09{{[^"]*}}mlir:[[#@LINE+17]]:{{[0-9]+}}: shmem.reducescatter\0A"
// CHECK-SAME: shmem.symmetric = "box\09{{[^"]*}}mlir:[[#@LINE+8]]:{{[0-9]+}}: shmem.putmem, dst\0Aflag\09{{[^"]*}}mlir:[[#@LINE+14]]:{{[0-9]+}}: shmem.signal_op, sig_addr\0A"
tt.func public @launched(%box: !tt.ptr<f32> loc("box"), %draft: !tt.ptr<f32> loc("draft"), %flag: !tt.ptr<i64> loc("flag"),
                         %other: !tt.ptr<i64> loc("other"), %n: i64 loc("n"), %m: i32 loc("m"), %pe: i32 loc("pe")) {
  %zero = arith.constant 0 : i32
  %thousand = arith.constant 1000 : i64
  %which = arith.cmpi slt, %pe, %m : i32
  scf.for %i = %zero to %m step %pe iter_args(%at = %box) -> (!tt.ptr<f32>) : i32 {
    %next = tt.addptr %at, %pe : !tt.ptr<f32>, i32
    shmem.putmem block %next, %draft, %n, %pe : !tt.ptr<f32>, !tt.ptr<f32>
    scf.yield %next : !tt.ptr<f32>
  }
  %either = arith.select %which, %flag, %other : !tt.ptr<i64>
  shmem.reducescatter block sum f64 %zero, %either, %either, %thousand : !tt.ptr<i64>, !tt.ptr<i64>
  %element = tt.addptr %flag, %pe : !tt.ptr<i64>, i32
  shmem.signal_op %element, set %n, %pe : !tt.ptr<i64>
  %elements = arith.extsi %m : i32 to i64
  shmem.reducescatter block sum f32 %zero, %either, %either, %elements : !tt.ptr<i64>, !tt.ptr<i64>
  %twice = arith.addi %elements, %elements : i64
  shmem.reducescatter block sum f32 %zero, %either, %either, %twice : !tt.ptr<i64>, !tt.ptr<i64>
  tt.return
}

// -----

// A function that a kernel calls has arguments of its own.
tt.func private @called(%box: !tt.ptr<f32> loc("box"), %n: i64, %pe: i32) {
  // CHECK-NOT: shmem.symmetric
  shmem.putmem block %box, %box, %n, %pe : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

// -----

// NVSHMEM's routine for all threads waits for all that were launched, of which the partition's never come.
module attributes {"ttg.num-warps" = 4 : i32, "ttg.num-ctas" = 1 : i32} {
tt.func @beside_a_partition(%p: !tt.ptr<i64>, %n: i64, %pe: i32) {
  ttg.warp_specialize()
  default {
    ttg.warp_yield
  }
  partition0() num_warps(4) {
    ttg.warp_return
  } : () -> ()
  shmem.putmem warp %p, %p, %n, %pe : !tt.ptr<i64>, !tt.ptr<i64>
  // CHECK: shmem.error = "{{.*}}:[[#@LINE+1]]:{{[0-9]+}}: shmem.putmem in a warp-specialised kernel: nvshmem's routine would wait
  shmem.putmem block %p, %p, %n, %pe : !tt.ptr<i64>, !tt.ptr<i64>
  tt.return
}
}

// -----

// Places that wait are numbered, and listed for the host: op, type, lines. On NVSHMEM its own collectives cannot report,
// and the test that follows our wait is one more routine.
// CHECK: shmem.routines = "triton_dist_wait_until_u16\09{{[^"]*}}\0Anvshmem_ushort_test\09{{[^"]*}}\0Anvshmemx_barrier_all_block\09{{[^"]*}}\0Atriton_dist_signal_wait_until\09
// CHECK-SAME: shmem.waits = "wait_until\09u16\09{{[^"]*}}mlir:[[#@LINE+3]]\0Asignal_wait_until\09u64\09{{[^"]*}}mlir:[[#@LINE+6]]\0A"
tt.func @waits(%word: !tt.ptr<i16>, %value: i16, %sig: !tt.ptr<i64>, %n: i64) {
  // CHECK: shmem.wait_until {{.*}}shmem.site = 1 : i32
  %0 = shmem.wait_until u16 %word, ge %value : !tt.ptr<i16>, i16, i64
  shmem.barrier_all block
  // CHECK: shmem.signal_wait_until {{.*}}shmem.site = 2 : i32
  %1 = shmem.signal_wait_until %sig, ge %n : !tt.ptr<i64>
  tt.return
}
