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
