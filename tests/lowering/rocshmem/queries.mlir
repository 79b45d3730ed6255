// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport rocshmem | FileCheck %s
// Queries of ROCSHMEM: C++ functions, called by every thread. A team is a pointer, and the only one that device code can
// name is the world.

module attributes {"ttg.target" = "hip:gfx942", "ttg.threads-per-warp" = 64 : i32} {
llvm.mlir.global external @global_smem() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @queries(
llvm.func @queries(%ptr: !llvm.ptr<1>, %pe: i32) -> i32 {
  // CHECK: llvm.call @_ZN8rocshmem14rocshmem_my_peEv() : () -> i32
  %me = shmem.my_pe : i32
  // CHECK: llvm.call @_ZN8rocshmem14rocshmem_n_pesEv() : () -> i32
  %n = shmem.n_pes : i32
  // CHECK: %[[THERE:.*]] = llvm.call @_ZN8rocshmem12rocshmem_ptrEPKvi({{.*}}) : (!llvm.ptr, i32) -> !llvm.ptr
  // CHECK: llvm.ptrtoint %[[THERE]]
  %distance = shmem.symm_offset %ptr, %pe : !llvm.ptr<1>
  // CHECK: %[[VARIABLE:.*]] = llvm.mlir.addressof @ROCSHMEM_TEAM_WORLD : !llvm.ptr<4>
  // CHECK: %[[WORLD:.*]] = llvm.load %[[VARIABLE]]
  // CHECK: llvm.call @_ZN8rocshmem19rocshmem_team_my_peEPm(%[[WORLD]]) : (!llvm.ptr) -> i32
  %world = llvm.mlir.constant(0 : i32) : i32
  %rank = shmem.team_my_pe %world : i32
  // CHECK: llvm.call @_ZN8rocshmem19rocshmem_team_n_pesEPm({{.*}}) : (!llvm.ptr) -> i32
  %size = shmem.team_n_pes %world : i32
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_team_translate_peEPmiS0_({{.*}}) : (!llvm.ptr, i32, !llvm.ptr) -> i32
  %same = shmem.team_translate_pe %world, %pe, %world : i32
  llvm.return %me : i32
}
}
