// RUN: %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s
// RUN: %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport p2p | FileCheck %s
// Where a module copies by TMA, every thread completes its TMA stores before the first barrier of an op, and its later TMA
// copies come behind the last. What copies may stand in another function.

llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func internal @stores_tile(
llvm.func internal @stores_tile(%tile: !llvm.ptr<3>, %descriptor: !llvm.ptr) {
  %zero = llvm.mlir.constant(0 : i32) : i32
  %true = llvm.mlir.constant(true) : i1
  llvm.inline_asm has_side_effects "@$0 cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [$1, {$2}], [$3];",
      "b,l,r,r" %true, %descriptor, %zero, %tile : (i1, !llvm.ptr, i32, !llvm.ptr<3>) -> !llvm.void
  llvm.return
}

// CHECK-LABEL: llvm.func @releases(
llvm.func @releases(%x: !llvm.ptr<1>, %sig: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // CHECK:      llvm.inline_asm has_side_effects asm_dialect = att "cp.async.bulk.wait_group 0;", "~{memory}"
  // CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
  // CHECK:      llvm.fence release
  // CHECK:      llvm.call @{{.*}}signal_op(
  // CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
  // CHECK-NEXT: llvm.inline_asm has_side_effects asm_dialect = att "fence.proxy.async.global;", "~{memory}"
  shmem.signal_op %sig, add %n, %pe : !llvm.ptr<1>
  // CHECK:      "cp.async.bulk.wait_group 0;"
  // CHECK:      llvm.call @{{.*}}fence()
  // CHECK:      "fence.proxy.async.global;"
  shmem.fence
  // CHECK:      "cp.async.bulk.wait_group 0;"
  // CHECK:      llvm.call @{{.*}}barrier_all{{.*}}block(
  // CHECK:      "fence.proxy.async.global;"
  shmem.barrier_all block
  // CHECK:      "cp.async.bulk.wait_group 0;"
  // CHECK:      llvm.call @{{.*}}putmem_signal_block(
  // CHECK:      "fence.proxy.async.global;"
  shmem.putmem_signal block %x, %x, %n, %sig, set %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK:      llvm.return
  llvm.return
}

// What reads or writes data reads what TMA stored and writes what TMA loads, though it releases and acquires nothing.
// CHECK-LABEL: llvm.func @moves_data(
llvm.func @moves_data(%x: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // CHECK:      "cp.async.bulk.wait_group 0;"
  // CHECK:      llvm.call @{{.*}}putmem_nbi_block(
  // CHECK:      "fence.proxy.async.global;"
  shmem.putmem_nbi block %x, %x, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK:      "cp.async.bulk.wait_group 0;"
  // CHECK:      llvm.call @{{.*}}getmem{{.*}}(
  // CHECK:      "fence.proxy.async.global;"
  shmem.getmem thread %x, %x, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK:      "cp.async.bulk.wait_group 0;"
  // CHECK:      llvm.call @{{.*}}iput{{.*}}(
  // CHECK:      "fence.proxy.async.global;"
  shmem.iput warp i64 %x, %x, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK:      "cp.async.bulk.wait_group 0;"
  // CHECK:      llvm.call @{{.*}}_p{{.*}}(
  // CHECK:      "fence.proxy.async.global;"
  shmem.p i64 %x, %n, %pe : !llvm.ptr<1>, i64
  // CHECK:      llvm.return
  llvm.return
}

// A wait does not hold up the stores of the tile before.
// CHECK-LABEL: llvm.func @acquires(
llvm.func @acquires(%sig: !llvm.ptr<1>, %n: i64, %pe: i32) -> i64 {
  // CHECK-NOT:  wait_group
  // CHECK:      llvm.call @{{.*}}signal_wait_until(
  // CHECK:      llvm.fence acquire
  // CHECK:      llvm.call_intrinsic "llvm.nvvm.barrier.cta.sync.aligned.all"
  // CHECK:      "fence.proxy.async.global;"
  %seen = shmem.signal_wait_until %sig, ge %n : !llvm.ptr<1>
  // CHECK-NOT:  wait_group
  // CHECK:      llvm.call @{{.*}}atomic_fetch{{.*}}(
  // CHECK:      "fence.proxy.async.global;"
  %now = shmem.atomic_fetch acquire sys i64 %sig, %pe : !llvm.ptr<1>, i64
  // CHECK-NOT:  wait_group
  // CHECK:      llvm.return
  llvm.return %seen : i64
}

// CHECK-LABEL: llvm.func @orders_nothing(
llvm.func @orders_nothing(%sig: !llvm.ptr<1>, %n: i64, %pe: i32) -> i32 {
  // CHECK-NOT:  llvm.inline_asm
  shmem.atomic_add relaxed sys i64 %sig, %n, %pe : !llvm.ptr<1>, i64
  %me = shmem.my_pe : i32
  // CHECK:      llvm.return
  llvm.return %me : i32
}

// -----

// Triton's other ways of writing such copies: NVVM's ops and intrinsics. A kernel may load only, or reduce only.
// CHECK-LABEL: llvm.func @loads_by_nvvm(
llvm.func @loads_by_nvvm(%sig: !llvm.ptr<1>, %n: i64) {
  nvvm.cp.async.bulk.commit.group
  // CHECK: "fence.proxy.async.global;"
  %seen = shmem.signal_wait_until %sig, ge %n : !llvm.ptr<1>
  llvm.return
}

// -----

// CHECK-LABEL: llvm.func @reduces(
llvm.func @reduces(%sig: !llvm.ptr<1>, %n: i64, %pe: i32) {
  llvm.inline_asm has_side_effects "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [$0], [$0], 16;", "l" %n : (i64) -> !llvm.void
  // CHECK: "cp.async.bulk.wait_group 0;"
  shmem.signal_op %sig, set %n, %pe : !llvm.ptr<1>
  llvm.return
}

// -----

// Nothing of this where nothing copies by TMA: cp.async without .bulk is ordered as loads are.
// CHECK-LABEL: llvm.func @plain(
llvm.func @plain(%sig: !llvm.ptr<1>, %n: i64, %pe: i32) {
  llvm.inline_asm has_side_effects "cp.async.cg.shared.global [$0], [$0], 16;", "l" %n : (i64) -> !llvm.void
  // CHECK-NOT: bulk
  // CHECK-NOT: proxy
  shmem.signal_op %sig, set %n, %pe : !llvm.ptr<1>
  shmem.quiet
  llvm.return
}
