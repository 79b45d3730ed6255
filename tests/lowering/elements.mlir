// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,NVSHMEM --implicit-check-not=@triton_dist_
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not=nvshmem
// Single elements, in registers.

llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @elements(
llvm.func @elements(%ptr: !llvm.ptr<1>, %pe: i32, %b: i8, %h: i16, %i: i32, %l: i64, %f: f32, %d: f64) {
  // NVSHMEM: llvm.call @nvshmem_int8_p({{.*}}) : (!llvm.ptr, i8, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_i8({{.*}}) : (!llvm.ptr, i8, i32) -> ()
  shmem.p i8 %ptr, %b, %pe : !llvm.ptr<1>, i8
  // NVSHMEM: llvm.call @nvshmem_int8_g({{.*}}) : (!llvm.ptr, i32) -> i8
  // P2P:     llvm.call @triton_dist_g_i8({{.*}}) : (!llvm.ptr, i32) -> i8
  %gi8 = shmem.g i8 %ptr, %pe : !llvm.ptr<1>, i8
  // NVSHMEM: llvm.call @nvshmem_uint8_p({{.*}}) : (!llvm.ptr, i8, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_u8({{.*}}) : (!llvm.ptr, i8, i32) -> ()
  shmem.p u8 %ptr, %b, %pe : !llvm.ptr<1>, i8
  // NVSHMEM: llvm.call @nvshmem_uint8_g({{.*}}) : (!llvm.ptr, i32) -> i8
  // P2P:     llvm.call @triton_dist_g_u8({{.*}}) : (!llvm.ptr, i32) -> i8
  %gu8 = shmem.g u8 %ptr, %pe : !llvm.ptr<1>, i8
  // NVSHMEM: llvm.call @nvshmem_int16_p({{.*}}) : (!llvm.ptr, i16, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_i16({{.*}}) : (!llvm.ptr, i16, i32) -> ()
  shmem.p i16 %ptr, %h, %pe : !llvm.ptr<1>, i16
  // NVSHMEM: llvm.call @nvshmem_int16_g({{.*}}) : (!llvm.ptr, i32) -> i16
  // P2P:     llvm.call @triton_dist_g_i16({{.*}}) : (!llvm.ptr, i32) -> i16
  %gi16 = shmem.g i16 %ptr, %pe : !llvm.ptr<1>, i16
  // NVSHMEM: llvm.call @nvshmem_uint16_p({{.*}}) : (!llvm.ptr, i16, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_u16({{.*}}) : (!llvm.ptr, i16, i32) -> ()
  shmem.p u16 %ptr, %h, %pe : !llvm.ptr<1>, i16
  // NVSHMEM: llvm.call @nvshmem_uint16_g({{.*}}) : (!llvm.ptr, i32) -> i16
  // P2P:     llvm.call @triton_dist_g_u16({{.*}}) : (!llvm.ptr, i32) -> i16
  %gu16 = shmem.g u16 %ptr, %pe : !llvm.ptr<1>, i16
  // NVSHMEM: llvm.call @nvshmem_int32_p({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_i32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.p i32 %ptr, %i, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int32_g({{.*}}) : (!llvm.ptr, i32) -> i32
  // P2P:     llvm.call @triton_dist_g_i32({{.*}}) : (!llvm.ptr, i32) -> i32
  %gi32 = shmem.g i32 %ptr, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_p({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_u32({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.p u32 %ptr, %i, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_uint32_g({{.*}}) : (!llvm.ptr, i32) -> i32
  // P2P:     llvm.call @triton_dist_g_u32({{.*}}) : (!llvm.ptr, i32) -> i32
  %gu32 = shmem.g u32 %ptr, %pe : !llvm.ptr<1>, i32
  // NVSHMEM: llvm.call @nvshmem_int64_p({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_i64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.p i64 %ptr, %l, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_int64_g({{.*}}) : (!llvm.ptr, i32) -> i64
  // P2P:     llvm.call @triton_dist_g_i64({{.*}}) : (!llvm.ptr, i32) -> i64
  %gi64 = shmem.g i64 %ptr, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_p({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_u64({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.p u64 %ptr, %l, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_uint64_g({{.*}}) : (!llvm.ptr, i32) -> i64
  // P2P:     llvm.call @triton_dist_g_u64({{.*}}) : (!llvm.ptr, i32) -> i64
  %gu64 = shmem.g u64 %ptr, %pe : !llvm.ptr<1>, i64
  // NVSHMEM: llvm.call @nvshmem_float_p({{.*}}) : (!llvm.ptr, f32, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_f32({{.*}}) : (!llvm.ptr, f32, i32) -> ()
  shmem.p f32 %ptr, %f, %pe : !llvm.ptr<1>, f32
  // NVSHMEM: llvm.call @nvshmem_float_g({{.*}}) : (!llvm.ptr, i32) -> f32
  // P2P:     llvm.call @triton_dist_g_f32({{.*}}) : (!llvm.ptr, i32) -> f32
  %gf32 = shmem.g f32 %ptr, %pe : !llvm.ptr<1>, f32
  // NVSHMEM: llvm.call @nvshmem_double_p({{.*}}) : (!llvm.ptr, f64, i32) -> ()
  // P2P:     llvm.call @triton_dist_p_f64({{.*}}) : (!llvm.ptr, f64, i32) -> ()
  shmem.p f64 %ptr, %d, %pe : !llvm.ptr<1>, f64
  // NVSHMEM: llvm.call @nvshmem_double_g({{.*}}) : (!llvm.ptr, i32) -> f64
  // P2P:     llvm.call @triton_dist_g_f64({{.*}}) : (!llvm.ptr, i32) -> f64
  %gf64 = shmem.g f64 %ptr, %pe : !llvm.ptr<1>, f64
  // The value that one thread got is every thread's.
  // CHECK: llvm.store %{{.*}} : f64, !llvm.ptr<3>
  // CHECK: %[[VALUE:.*]] = llvm.load %{{.*}} : !llvm.ptr<3> -> f64
  // CHECK: llvm.store %[[VALUE]]
  %used = shmem.g f64 %ptr, %pe : !llvm.ptr<1>, f64
  llvm.store %used, %ptr : f64, !llvm.ptr<1>
  llvm.return
}

