// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport nvshmem 2>&1 | FileCheck %s --implicit-check-not=barrier --implicit-check-not=fence
// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport p2p 2>&1 | FileCheck %s --implicit-check-not=barrier --implicit-check-not=fence
// A loop of a kernel's own says that its wait goes on: each thread calls, without meeting others. The last argument is
// the number that the plan gave the place.

// CHECK-LABEL: llvm.func @poll(
llvm.func @poll(%polls: i32, %words: !llvm.ptr<1>, %expected: i32, %pe: i32, %rows: i32, %columns: i32, %row_step: i32, %column_step: i32) -> i32 {
  // CHECK-DAG: %[[GE:.*]] = llvm.mlir.constant(3 : i32)
  // CHECK-DAG: %[[SITE:.*]] = llvm.mlir.constant(7 : i32)
  // CHECK: %[[MORE:.*]] = llvm.call @triton_dist_poll(%arg0, %{{.*}}, %[[GE]], %arg2, %arg3, %arg4, %arg5, %arg6, %arg7, %[[SITE]])
  // CHECK: llvm.return %[[MORE]]
  %more = shmem.poll %polls, %words, ge %expected, %pe, %rows, %columns, %row_step, %column_step {shmem.site = 7 : i32} : !llvm.ptr<1>
  llvm.return %more : i32
}

// -----

llvm.func @poll_of_no_comparison(%polls: i32, %words: !llvm.ptr<1>, %n: i32) {
  %more = shmem.poll %polls, %words, almost %n, %n, %n, %n, %n, %n : !llvm.ptr<1>
  llvm.return
}
// CHECK: error: custom op 'shmem.poll' expected string or keyword containing one of the following enum values for attribute 'cmp' [eq, ne, gt, ge, lt, le]
