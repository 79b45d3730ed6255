// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,LIBRARY,NVSHMEM --implicit-check-not=@triton_dist_
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not=nvshmem --implicit-check-not=llvm.fence
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport rocshmem | FileCheck %s --check-prefixes=CHECK,LIBRARY,ROCSHMEM
// Order and completion, for all PEs and for one. Where a library has them for all only, those stand in, and take none.

// CHECK-LABEL: llvm.func @ordering(
llvm.func @ordering() {
  // LIBRARY: llvm.fence release
  // NVSHMEM-NEXT:  llvm.call @nvshmem_fence() : () -> ()
  // P2P:           llvm.call @triton_dist_fence() : () -> ()
  // ROCSHMEM-NEXT: llvm.call @_ZN8rocshmem14rocshmem_fenceEv() : () -> ()
  shmem.fence
  // LIBRARY: llvm.fence release
  // NVSHMEM-NEXT:  llvm.call @nvshmem_quiet() : () -> ()
  // P2P:           llvm.call @triton_dist_quiet() : () -> ()
  // ROCSHMEM-NEXT: llvm.call @_ZN8rocshmem14rocshmem_quietEv() : () -> ()
  // LIBRARY-NEXT: llvm.fence acquire
  shmem.quiet
  llvm.return
}

// CHECK-LABEL: llvm.func @pe_ordering(
llvm.func @pe_ordering(%pe: i32) {
  // LIBRARY: llvm.fence release
  // NVSHMEM-NEXT:  llvm.call @nvshmem_fence() : () -> ()
  // P2P:           llvm.call @triton_dist_fence() : () -> ()
  // ROCSHMEM-NEXT: llvm.call @_ZN8rocshmem14rocshmem_fenceEi(%arg0) : (i32) -> ()
  shmem.pe_fence %pe
  // LIBRARY: llvm.fence release
  // NVSHMEM-NEXT:  llvm.call @nvshmem_quiet() : () -> ()
  // P2P:           llvm.call @triton_dist_quiet() : () -> ()
  // ROCSHMEM-NEXT: llvm.call @_ZN8rocshmem14rocshmem_quietEv() : () -> ()
  // LIBRARY-NEXT: llvm.fence acquire
  shmem.pe_quiet %pe
  llvm.return
}
