// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport rocshmem 2>&1 | FileCheck %s
// What ROCSHMEM lacks is said with the name of the op and of the transport: an op, a type, a scope, a team.

llvm.func @case_0(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.iput is not available on transport rocshmem
  shmem.iput thread i32 %dst, %dst, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @case_1(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.reducescatter is not available on transport rocshmem
  shmem.reducescatter block sum f32 %world, %dst, %dst, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @case_2(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.p is not available for f16 on transport rocshmem
  shmem.p f16 %dst, %half, %pe : !llvm.ptr<1>, i16
  llvm.return
}

// -----

llvm.func @case_3(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.g is not available for bf16 on transport rocshmem
  %result = shmem.g bf16 %dst, %pe : !llvm.ptr<1>, i16
  llvm.return
}

// -----

llvm.func @case_4(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.atomic_add is not available for f32 on transport rocshmem
  shmem.atomic_add relaxed sys f32 %dst, %float, %pe : !llvm.ptr<1>, f32
  llvm.return
}

// -----

llvm.func @case_5(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.reduce is not available for u32 on transport rocshmem
  shmem.reduce block sum u32 %world, %dst, %dst, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @case_6(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.reduce is not available for i8 on transport rocshmem
  shmem.reduce block xor i8 %world, %dst, %dst, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @case_7(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.fcollect is available for scope block only on transport rocshmem
  shmem.fcollect warp %world, %dst, %dst, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @case_8(%dst: !llvm.ptr<1>, %n: i64, %pe: i32, %half: i16, %float: f32) {
  %world = llvm.mlir.constant(0 : i32) : i32
  // CHECK: error: shmem.barrier takes no team but the constant TEAM_WORLD on transport rocshmem
  shmem.barrier block %pe
  llvm.return
}
