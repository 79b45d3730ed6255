// RUN: not %triton-dist-opt %s --split-input-file 2>&1 | FileCheck %s --implicit-check-not=llvm.func
// What the dialect itself verifies, on every transport and before any pass: what no routine of any library could do.

// A value is of the element type, without its sign.
llvm.func @p_value(%ptr: !llvm.ptr<1>, %value: f64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.p' op value is 'f64', and the element type u32 is 'i32' in IR
  shmem.p u32 %ptr, %value, %pe : !llvm.ptr<1>, f64
  llvm.return
}

// -----

llvm.func @p_width(%ptr: !llvm.ptr<1>, %value: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.p' op value is 'i64', and the element type i32 is 'i32' in IR
  shmem.p i32 %ptr, %value, %pe : !llvm.ptr<1>, i64
  llvm.return
}

// -----

// The 16-bit floats are passed as their bits.
llvm.func @p_half(%ptr: !llvm.ptr<1>, %value: f32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.p' op value is 'f32', and the element type f16 is 'i16' in IR
  shmem.p f16 %ptr, %value, %pe : !llvm.ptr<1>, f32
  llvm.return
}

// -----

llvm.func @g_result(%ptr: !llvm.ptr<1>, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.g' op result is 'f64', and the element type u64 is 'i64' in IR
  %result = shmem.g u64 %ptr, %pe : !llvm.ptr<1>, f64
  llvm.return
}

// -----

llvm.func @atomic_value(%ptr: !llvm.ptr<1>, %value: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_add' op value is 'i64', and the element type i32 is 'i32' in IR
  shmem.atomic_add relaxed sys i32 %ptr, %value, %pe : !llvm.ptr<1>, i64
  llvm.return
}

// -----

llvm.func @atomic_result(%ptr: !llvm.ptr<1>, %value: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch_add' op result is 'i64', and the element type u32 is 'i32' in IR
  %result = shmem.atomic_fetch_add relaxed sys u32 %ptr, %value, %pe : !llvm.ptr<1>, i32, i64
  llvm.return
}

// -----

llvm.func @compare_swap_condition(%ptr: !llvm.ptr<1>, %cond: i64, %value: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_compare_swap' op cond is 'i64', and the element type i32 is 'i32' in IR
  %result = shmem.atomic_compare_swap relaxed sys i32 %ptr, %cond, %value, %pe : !llvm.ptr<1>, i64, i32, i32
  llvm.return
}

// -----

llvm.func @wait_value(%ptr: !llvm.ptr<1>, %value: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until' op cmp_value is 'i32', and the element type i64 is 'i64' in IR
  %result = shmem.wait_until i64 %ptr, ge %value : !llvm.ptr<1>, i32, i64
  llvm.return
}

// -----

llvm.func @test_some_value(%ptr: !llvm.ptr<1>, %n: i64, %value: f32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test_some' op cmp_value is 'f32', and the element type u32 is 'i32' in IR
  %result = shmem.test_some u32 %ptr, %n, %ptr, %ptr, lt %value : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, f32, i64
  llvm.return
}

// -----

// Bitwise operations are not for floats.
llvm.func @and_of_floats(%team: i32, %ptr: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.reduce' op does and, which is bitwise, and the element type f32 is a float
  shmem.reduce block and f32 %team, %ptr, %ptr, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @or_of_floats(%team: i32, %ptr: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.reduce' op does or, which is bitwise, and the element type f32 is a float
  shmem.reduce block or f32 %team, %ptr, %ptr, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @xor_of_floats(%team: i32, %ptr: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.reduce' op does xor, which is bitwise, and the element type f32 is a float
  shmem.reduce block xor f32 %team, %ptr, %ptr, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @scattered_xor_of_floats(%team: i32, %ptr: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.reducescatter' op does xor, which is bitwise, and the element type bf16 is a float
  shmem.reducescatter block xor bf16 %team, %ptr, %ptr, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @atomic_and_of_floats(%ptr: !llvm.ptr<1>, %value: f32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_and' op does not take elements of type f32, only of i32, u32, i64, u64
  shmem.atomic_and relaxed sys f32 %ptr, %value, %pe : !llvm.ptr<1>, f32
  llvm.return
}

// -----

llvm.func @atomic_fetch_xor_of_floats(%ptr: !llvm.ptr<1>, %value: f64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch_xor' op does not take elements of type f64, only of i32, u32, i64, u64
  %result = shmem.atomic_fetch_xor relaxed sys f64 %ptr, %value, %pe : !llvm.ptr<1>, f64, f64
  llvm.return
}

// -----

// Atomics are on 32 and 64 bits.
llvm.func @atomic_fetch_of_i8(%ptr: !llvm.ptr<1>, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch' op does not take elements of type i8, only of i32, u32, i64, u64, f32, f64
  %result = shmem.atomic_fetch relaxed sys i8 %ptr, %pe : !llvm.ptr<1>, f32
  llvm.return
}

// -----

llvm.func @atomic_inc_of_i16(%ptr: !llvm.ptr<1>, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_inc' op does not take elements of type u16, only of i32, u32, i64, u64
  shmem.atomic_inc relaxed sys u16 %ptr, %pe : !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @atomic_inc_of_f32(%ptr: !llvm.ptr<1>, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_inc' op does not take elements of type f32, only of i32, u32, i64, u64
  shmem.atomic_inc relaxed sys f32 %ptr, %pe : !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @atomic_set_of_f16(%ptr: !llvm.ptr<1>, %value: i16, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_set' op does not take elements of type f16, only of i32, u32, i64, u64, f32, f64
  shmem.atomic_set relaxed sys f16 %ptr, %value, %pe : !llvm.ptr<1>, i16
  llvm.return
}

// -----

// Waits and tests are on integers of 16, 32 and 64 bits.
llvm.func @wait_for_i8(%ptr: !llvm.ptr<1>, %value: i8) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until' op does not take elements of type i8, only of i16, u16, i32, u32, i64, u64
  %result = shmem.wait_until i8 %ptr, ge %value : !llvm.ptr<1>, i8, i64
  llvm.return
}

// -----

llvm.func @wait_for_f32(%ptr: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until_any_vector' op does not take elements of type f32, only of i16, u16, i32, u32, i64, u64
  %result = shmem.wait_until_any_vector f32 %ptr, %n, %ptr, ge %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// -----

llvm.func @test_of_u8(%ptr: !llvm.ptr<1>, %n: i64, %value: i8) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test_all' op does not take elements of type u8, only of i16, u16, i32, u32, i64, u64
  %result = shmem.test_all u8 %ptr, %n, %ptr, ne %value : !llvm.ptr<1>, !llvm.ptr<1>, i8, i32
  llvm.return
}

// -----

// A number is a case of its enum.
llvm.func @element_type(%ptr: !llvm.ptr<1>, %value: i8, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.p' op attribute 'type' failed to satisfy constraint: C element type of a routine (i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64)
  "shmem.p"(%ptr, %value, %pe) {type = 12 : i32} : (!llvm.ptr<1>, i8, i32) -> ()
  llvm.return
}

// -----

llvm.func @thread_scope() {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.barrier_all' op attribute 'scope' failed to satisfy constraint: which of the program's threads act (thread, warp, block)
  "shmem.barrier_all"() {scope = -1 : i32} : () -> ()
  llvm.return
}

// -----

llvm.func @comparison(%ptr: !llvm.ptr<1>, %value: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.signal_wait_until' op attribute 'cmp' failed to satisfy constraint: comparison of a wait (eq, ne, gt, ge, lt, le)
  %result = "shmem.signal_wait_until"(%ptr, %value) {cmp = 6 : i32} : (!llvm.ptr<1>, i64) -> i64
  llvm.return
}

// -----

llvm.func @signal_update(%ptr: !llvm.ptr<1>, %value: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.signal_op' op attribute 'sig_op' failed to satisfy constraint: how a signal word is updated (set, add)
  "shmem.signal_op"(%ptr, %value, %pe) {sig_op = 9 : i32} : (!llvm.ptr<1>, i64, i32) -> ()
  llvm.return
}

// -----

llvm.func @semantics(%ptr: !llvm.ptr<1>, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_inc' op attribute 'sem' failed to satisfy constraint: memory ordering of an atomic (relaxed, acquire, release, acq_rel)
  "shmem.atomic_inc"(%ptr, %pe) {type = 4 : i32, sem = 4 : i32, mem_scope = 0 : i32} : (!llvm.ptr<1>, i32) -> ()
  llvm.return
}

// -----

llvm.func @memory_scope(%ptr: !llvm.ptr<1>, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_inc' op attribute 'mem_scope' failed to satisfy constraint: who observes the ordering of an atomic (cta, gpu, sys)
  "shmem.atomic_inc"(%ptr, %pe) {type = 4 : i32, sem = 0 : i32, mem_scope = 3 : i32} : (!llvm.ptr<1>, i32) -> ()
  llvm.return
}

// -----

llvm.func @reduction(%team: i32, %ptr: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.reduce' op attribute 'op' failed to satisfy constraint: operator of a reduction (sum, prod, min, max, and, or, xor)
  "shmem.reduce"(%team, %ptr, %ptr, %n) {op = 7 : i32, type = 4 : i32, scope = 0 : i32} : (i32, !llvm.ptr<1>, !llvm.ptr<1>, i64) -> ()
  llvm.return
}

// -----

// Teams and PEs are i32, sizes and signals i64.
llvm.func @team(%team: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.sync' op operand #0 must be 32-bit signless integer, but got 'i64'
  "shmem.sync"(%team) {scope = 2 : i32} : (i64) -> ()
  llvm.return
}

// -----

llvm.func @pe(%ptr: !llvm.ptr<1>, %n: i64, %pe: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.putmem' op operand #3 must be 32-bit signless integer, but got 'i64'
  "shmem.putmem"(%ptr, %ptr, %n, %pe) {scope = 2 : i32} : (!llvm.ptr<1>, !llvm.ptr<1>, i64, i64) -> ()
  llvm.return
}

// -----

llvm.func @size(%ptr: !llvm.ptr<1>, %n: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.putmem' op operand #2 must be 64-bit signless integer, but got 'i32'
  "shmem.putmem"(%ptr, %ptr, %n, %pe) {scope = 2 : i32} : (!llvm.ptr<1>, !llvm.ptr<1>, i32, i32) -> ()
  llvm.return
}

// -----

llvm.func @signal(%ptr: !llvm.ptr<1>, %signal: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.signal_op' op operand #1 must be 64-bit signless integer, but got 'i32'
  "shmem.signal_op"(%ptr, %signal, %pe) {sig_op = 0 : i32} : (!llvm.ptr<1>, i32, i32) -> ()
  llvm.return
}

// -----

llvm.func @fetched_signal(%ptr: !llvm.ptr<1>) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.signal_fetch' op result #0 must be 64-bit signless integer, but got 'i32'
  %result = "shmem.signal_fetch"(%ptr) : (!llvm.ptr<1>) -> i32
  llvm.return
}

// -----

llvm.func @root(%team: i32, %ptr: !llvm.ptr<1>, %n: i64, %root: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.broadcast' op operand #4 must be 32-bit signless integer, but got 'i64'
  "shmem.broadcast"(%team, %ptr, %ptr, %n, %root) {scope = 2 : i32} : (i32, !llvm.ptr<1>, !llvm.ptr<1>, i64, i64) -> ()
  llvm.return
}
