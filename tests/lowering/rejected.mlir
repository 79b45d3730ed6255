// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport nvshmem 2>&1 | FileCheck %s
// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm --transport p2p 2>&1 | FileCheck %s
// For each op something that it does not take: a number where an address belongs, a result of another type.

llvm.func @my_pe() {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.my_pe' op result #0 must be 32-bit signless integer, but got 'i64'
  %result = shmem.my_pe : i64
  llvm.return
}

// -----

llvm.func @n_pes() {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.n_pes' op result #0 must be 32-bit signless integer, but got 'i64'
  %result = shmem.n_pes : i64
  llvm.return
}

// -----

llvm.func @team_my_pe(%team: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.team_my_pe' op result #0 must be 32-bit signless integer, but got 'i64'
  %result = shmem.team_my_pe %team : i64
  llvm.return
}

// -----

llvm.func @team_n_pes(%team: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.team_n_pes' op result #0 must be 32-bit signless integer, but got 'i64'
  %result = shmem.team_n_pes %team : i64
  llvm.return
}

// -----

llvm.func @team_translate_pe(%team: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.team_translate_pe' op result #0 must be 32-bit signless integer, but got 'i64'
  %result = shmem.team_translate_pe %team, %pe, %team : i64
  llvm.return
}

// -----

llvm.func @symm_offset(%number: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.symm_offset' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.symm_offset %number, %pe : i64
  llvm.return
}

// -----

llvm.func @heap_distance(%pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.heap_distance' op result #0 must be 64-bit signless integer, but got 'i32'
  %result = shmem.heap_distance %pe : i32
  llvm.return
}

// -----

llvm.func @is_reachable(%pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.is_reachable' op result #0 must be 32-bit signless integer, but got 'i64'
  %result = shmem.is_reachable %pe : i64
  llvm.return
}

// -----

llvm.func @putmem(%number: i64, %sig: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.putmem' op operand #0 must be scalar pointer, but got 'i64'
  shmem.putmem warp %number, %sig, %n, %pe : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @putmem_nbi(%number: i64, %src: !llvm.ptr<1>, %nbytes: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.putmem_nbi' op operand #0 must be scalar pointer, but got 'i64'
  shmem.putmem_nbi block %number, %src, %nbytes, %pe : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @getmem(%number: i64, %src: !llvm.ptr<1>, %nbytes: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.getmem' op operand #0 must be scalar pointer, but got 'i64'
  shmem.getmem block %number, %src, %nbytes, %pe : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @getmem_nbi(%number: i64, %src: !llvm.ptr<1>, %nbytes: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.getmem_nbi' op operand #0 must be scalar pointer, but got 'i64'
  shmem.getmem_nbi block %number, %src, %nbytes, %pe : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @iput(%number: i64, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.iput' op operand #0 must be scalar pointer, but got 'i64'
  shmem.iput block i8 %number, %src, %n, %n, %n, %pe : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @iget(%number: i64, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.iget' op operand #0 must be scalar pointer, but got 'i64'
  shmem.iget block i8 %number, %src, %n, %n, %n, %pe : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @p(%number: i64, %b: i8, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.p' op operand #0 must be scalar pointer, but got 'i64'
  shmem.p i8 %number, %b, %pe : i64, i8
  llvm.return
}

// -----

llvm.func @g(%number: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.g' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.g i8 %number, %pe : i64, i8
  llvm.return
}

// -----

llvm.func @putmem_signal(%number: i64, %src: !llvm.ptr<1>, %nbytes: i64, %sig: !llvm.ptr<1>, %signal: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.putmem_signal' op operand #0 must be scalar pointer, but got 'i64'
  shmem.putmem_signal block %number, %src, %nbytes, %sig, add %signal, %pe : i64, !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @putmem_signal_nbi(%number: i64, %src: !llvm.ptr<1>, %nbytes: i64, %sig: !llvm.ptr<1>, %signal: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.putmem_signal_nbi' op operand #0 must be scalar pointer, but got 'i64'
  shmem.putmem_signal_nbi block %number, %src, %nbytes, %sig, add %signal, %pe : i64, !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @signal_op(%number: i64, %n: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.signal_op' op operand #0 must be scalar pointer, but got 'i64'
  shmem.signal_op %number, set %n, %pe : i64
  llvm.return
}

// -----

llvm.func @signal_fetch(%number: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.signal_fetch' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.signal_fetch %number : i64
  llvm.return
}

// -----

llvm.func @signal_wait_until(%number: i64, %value: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.signal_wait_until' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.signal_wait_until %number, ge %value : i64
  llvm.return
}

// -----

llvm.func @atomic_fetch(%number: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.atomic_fetch acq_rel sys i32 %number, %pe : i64, i32
  llvm.return
}

// -----

llvm.func @atomic_set(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_set' op operand #0 must be scalar pointer, but got 'i64'
  shmem.atomic_set acq_rel sys i32 %number, %v, %pe : i64, i32
  llvm.return
}

// -----

llvm.func @atomic_inc(%number: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_inc' op operand #0 must be scalar pointer, but got 'i64'
  shmem.atomic_inc acq_rel sys i32 %number, %pe : i64
  llvm.return
}

// -----

llvm.func @atomic_fetch_inc(%number: i64, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch_inc' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.atomic_fetch_inc acq_rel sys i32 %number, %pe : i64, i32
  llvm.return
}

// -----

llvm.func @atomic_add(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_add' op operand #0 must be scalar pointer, but got 'i64'
  shmem.atomic_add acq_rel sys i32 %number, %v, %pe : i64, i32
  llvm.return
}

// -----

llvm.func @atomic_fetch_add(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch_add' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.atomic_fetch_add acq_rel sys i32 %number, %v, %pe : i64, i32, i32
  llvm.return
}

// -----

llvm.func @atomic_and(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_and' op operand #0 must be scalar pointer, but got 'i64'
  shmem.atomic_and acq_rel sys i32 %number, %v, %pe : i64, i32
  llvm.return
}

// -----

llvm.func @atomic_fetch_and(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch_and' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.atomic_fetch_and acq_rel sys i32 %number, %v, %pe : i64, i32, i32
  llvm.return
}

// -----

llvm.func @atomic_or(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_or' op operand #0 must be scalar pointer, but got 'i64'
  shmem.atomic_or acq_rel sys i32 %number, %v, %pe : i64, i32
  llvm.return
}

// -----

llvm.func @atomic_fetch_or(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch_or' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.atomic_fetch_or acq_rel sys i32 %number, %v, %pe : i64, i32, i32
  llvm.return
}

// -----

llvm.func @atomic_xor(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_xor' op operand #0 must be scalar pointer, but got 'i64'
  shmem.atomic_xor acq_rel sys i32 %number, %v, %pe : i64, i32
  llvm.return
}

// -----

llvm.func @atomic_fetch_xor(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_fetch_xor' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.atomic_fetch_xor acq_rel sys i32 %number, %v, %pe : i64, i32, i32
  llvm.return
}

// -----

llvm.func @atomic_swap(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_swap' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.atomic_swap acq_rel sys i32 %number, %v, %pe : i64, i32, i32
  llvm.return
}

// -----

llvm.func @atomic_compare_swap(%number: i64, %v: i32, %pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.atomic_compare_swap' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.atomic_compare_swap acq_rel sys i32 %number, %v, %v, %pe : i64, i32, i32, i32
  llvm.return
}

// -----

llvm.func @wait_until(%number: i64, %v: i16) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.wait_until i16 %number, ge %v : i64, i16, i64
  llvm.return
}

// -----

llvm.func @wait_until_all(%number: i64, %n: i64, %p: !llvm.ptr<1>, %v: i16) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until_all' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.wait_until_all i16 %number, %n, %p, ne %v : i64, !llvm.ptr<1>, i16, i64
  llvm.return
}

// -----

llvm.func @wait_until_any(%number: i64, %n: i64, %p: !llvm.ptr<1>, %v: i16) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until_any' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.wait_until_any i16 %number, %n, %p, ne %v : i64, !llvm.ptr<1>, i16, i64
  llvm.return
}

// -----

llvm.func @wait_until_some(%number: i64, %n: i64, %p: !llvm.ptr<1>, %v: i16) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until_some' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.wait_until_some i16 %number, %n, %p, %p, lt %v : i64, !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  llvm.return
}

// -----

llvm.func @wait_until_all_vector(%number: i64, %n: i64, %p: !llvm.ptr<1>) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until_all_vector' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.wait_until_all_vector i16 %number, %n, %p, ne %p : i64, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// -----

llvm.func @wait_until_any_vector(%number: i64, %n: i64, %p: !llvm.ptr<1>) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until_any_vector' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.wait_until_any_vector i16 %number, %n, %p, ne %p : i64, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// -----

llvm.func @wait_until_some_vector(%number: i64, %n: i64, %p: !llvm.ptr<1>) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.wait_until_some_vector' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.wait_until_some_vector i16 %number, %n, %p, %p, lt %p : i64, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// -----

llvm.func @test(%number: i64, %v: i16) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.test i16 %number, ge %v : i64, i16, i32
  llvm.return
}

// -----

llvm.func @test_all(%number: i64, %n: i64, %p: !llvm.ptr<1>, %v: i16) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test_all' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.test_all i16 %number, %n, %p, ne %v : i64, !llvm.ptr<1>, i16, i32
  llvm.return
}

// -----

llvm.func @test_any(%number: i64, %n: i64, %p: !llvm.ptr<1>, %v: i16) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test_any' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.test_any i16 %number, %n, %p, ne %v : i64, !llvm.ptr<1>, i16, i64
  llvm.return
}

// -----

llvm.func @test_some(%number: i64, %n: i64, %p: !llvm.ptr<1>, %v: i16) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test_some' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.test_some i16 %number, %n, %p, %p, lt %v : i64, !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  llvm.return
}

// -----

llvm.func @test_all_vector(%number: i64, %n: i64, %p: !llvm.ptr<1>) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test_all_vector' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.test_all_vector i16 %number, %n, %p, ne %p : i64, !llvm.ptr<1>, !llvm.ptr<1>, i32
  llvm.return
}

// -----

llvm.func @test_any_vector(%number: i64, %n: i64, %p: !llvm.ptr<1>) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test_any_vector' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.test_any_vector i16 %number, %n, %p, ne %p : i64, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// -----

llvm.func @test_some_vector(%number: i64, %n: i64, %p: !llvm.ptr<1>) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.test_some_vector' op operand #0 must be scalar pointer, but got 'i64'
  %result = shmem.test_some_vector i16 %number, %n, %p, %p, lt %p : i64, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// -----

llvm.func @fence(%pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: expected '=' after SSA name
  shmem.fence %pe
  llvm.return
}

// -----

llvm.func @quiet(%pe: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: expected '=' after SSA name
  shmem.quiet %pe
  llvm.return
}

// -----

llvm.func @pe_fence(%number: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: use of value '%number' expects different type than prior uses: 'i32' vs 'i64'
  shmem.pe_fence %number
  llvm.return
}

// -----

llvm.func @pe_quiet(%number: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: use of value '%number' expects different type than prior uses: 'i32' vs 'i64'
  shmem.pe_quiet %number
  llvm.return
}

// -----

llvm.func @barrier_all() {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: custom op 'shmem.barrier_all' expected string or keyword containing one of the following enum values for attribute 'scope' {{.}}thread, warp, block{{.}}
  shmem.barrier_all cluster
  llvm.return
}

// -----

llvm.func @sync_all() {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: custom op 'shmem.sync_all' expected string or keyword containing one of the following enum values for attribute 'scope' {{.}}thread, warp, block{{.}}
  shmem.sync_all cluster
  llvm.return
}

// -----

llvm.func @barrier(%number: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: use of value '%number' expects different type than prior uses: 'i32' vs 'i64'
  shmem.barrier block %number
  llvm.return
}

// -----

llvm.func @sync(%number: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: use of value '%number' expects different type than prior uses: 'i32' vs 'i64'
  shmem.sync block %number
  llvm.return
}

// -----

llvm.func @broadcast(%team: i32, %number: i64, %s: !llvm.ptr<1>, %n: i64, %root: i32) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.broadcast' op operand #1 must be scalar pointer, but got 'i64'
  shmem.broadcast block %team, %number, %s, %n, %root : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @fcollect(%team: i32, %number: i64, %s: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.fcollect' op operand #1 must be scalar pointer, but got 'i64'
  shmem.fcollect block %team, %number, %s, %n : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @alltoall(%team: i32, %number: i64, %s: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.alltoall' op operand #1 must be scalar pointer, but got 'i64'
  shmem.alltoall block %team, %number, %s, %n : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @reduce(%team: i32, %number: i64, %s: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.reduce' op operand #1 must be scalar pointer, but got 'i64'
  shmem.reduce block sum i8 %team, %number, %s, %n : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @reducescatter(%team: i32, %number: i64, %s: !llvm.ptr<1>, %n: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.reducescatter' op operand #1 must be scalar pointer, but got 'i64'
  shmem.reducescatter block sum i8 %team, %number, %s, %n : i64, !llvm.ptr<1>
  llvm.return
}

// -----

llvm.func @token_zero(%token: i64) {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.token_zero' op result #0 must be 32-bit signless integer, but got 'i64'
  %result = shmem.token_zero %token : i64
  llvm.return
}

// -----

llvm.func @always() {
  // CHECK: :[[#@LINE+1]]:{{[0-9]+}}): error: 'shmem.always' op result #0 must be 1-bit signless integer, but got 'i32'
  %result = shmem.always : i32
  llvm.return
}
