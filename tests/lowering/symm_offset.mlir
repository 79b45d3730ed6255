// RUN: not %triton-dist-opt %s --split-input-file --pass convert-shmem-to-llvm 2>&1 | FileCheck %s
// The distance between the library's address of the peer's copy and our own.

// CHECK: llvm.func @nvshmem_ptr(!llvm.ptr, i32) -> !llvm.ptr
// CHECK-LABEL: llvm.func @symm_offset(
// CHECK-NOT:  barrier
// CHECK:      %[[PTR:.*]] = llvm.addrspacecast %arg0 : !llvm.ptr<1> to !llvm.ptr
// CHECK-NEXT: %[[PEER:.*]] = llvm.call @nvshmem_ptr(%[[PTR]], %arg1)
// CHECK-NEXT: %[[THERE:.*]] = llvm.ptrtoint %[[PEER]] : !llvm.ptr to i64
// CHECK-NEXT: %[[HERE:.*]] = llvm.ptrtoint %[[PTR]] : !llvm.ptr to i64
// CHECK-NEXT: %[[DISTANCE:.*]] = llvm.sub %[[THERE]], %[[HERE]]
// CHECK-NEXT: llvm.return %[[DISTANCE]]
llvm.func @symm_offset(%ptr: !llvm.ptr<1>, %pe: i32) -> i64 {
  %0 = shmem.symm_offset %ptr, %pe : !llvm.ptr<1>
  llvm.return %0 : i64
}

// -----

// Triton's pointers are LLVM's behind a conversion, which goes when nobody else uses it.
// CHECK-LABEL: llvm.func @tritons_pointer(
// CHECK-NOT:  unrealized_conversion_cast
// CHECK:      llvm.call @nvshmem_ptr
// CHECK-NOT:  unrealized_conversion_cast
// CHECK:      llvm.return
llvm.func @tritons_pointer(%ptr: !llvm.ptr<1>, %pe: i32) -> i64 {
  %0 = builtin.unrealized_conversion_cast %ptr : !llvm.ptr<1> to !tt.ptr<f32>
  %1 = shmem.symm_offset %0, %pe : !tt.ptr<f32>
  llvm.return %1 : i64
}

// -----

llvm.func @symm_offset_of_a_number(%address: i64, %pe: i32) -> i64 {
  %0 = shmem.symm_offset %address, %pe : i64
  llvm.return %0 : i64
}
// CHECK: error: 'shmem.symm_offset' op operand #0 must be scalar pointer, but got 'i64'
