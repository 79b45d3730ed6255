// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,NVSHMEM --implicit-check-not=@triton_dist_
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not=nvshmem
// Copies by all threads, by the first warp, and by one thread.

// CHECK-LABEL: llvm.func @putmem(
llvm.func @putmem(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmemx_putmem_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem block %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[WARP:.*]] = llvm.mlir.constant(32 : i32)
  // CHECK: llvm.icmp "ult" %{{.*}}, %[[WARP]]
  // NVSHMEM: llvm.call @nvshmemx_putmem_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem warp %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: llvm.icmp "ult" %{{.*}}, %[[ONE]]
  // NVSHMEM: llvm.call @nvshmem_putmem({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem thread %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @putmem_nbi(
llvm.func @putmem_nbi(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmemx_putmem_nbi_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_nbi_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem_nbi block %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[WARP:.*]] = llvm.mlir.constant(32 : i32)
  // CHECK: llvm.icmp "ult" %{{.*}}, %[[WARP]]
  // NVSHMEM: llvm.call @nvshmemx_putmem_nbi_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_nbi_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem_nbi warp %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: llvm.icmp "ult" %{{.*}}, %[[ONE]]
  // NVSHMEM: llvm.call @nvshmem_putmem_nbi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_nbi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.putmem_nbi thread %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @getmem(
llvm.func @getmem(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmemx_getmem_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_getmem_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem block %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[WARP:.*]] = llvm.mlir.constant(32 : i32)
  // CHECK: llvm.icmp "ult" %{{.*}}, %[[WARP]]
  // NVSHMEM: llvm.call @nvshmemx_getmem_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_getmem_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem warp %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: llvm.icmp "ult" %{{.*}}, %[[ONE]]
  // NVSHMEM: llvm.call @nvshmem_getmem({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_getmem({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem thread %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @getmem_nbi(
llvm.func @getmem_nbi(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmemx_getmem_nbi_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_getmem_nbi_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem_nbi block %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[WARP:.*]] = llvm.mlir.constant(32 : i32)
  // CHECK: llvm.icmp "ult" %{{.*}}, %[[WARP]]
  // NVSHMEM: llvm.call @nvshmemx_getmem_nbi_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_getmem_nbi_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem_nbi warp %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // CHECK: %[[ONE:.*]] = llvm.mlir.constant(1 : i32)
  // CHECK: llvm.icmp "ult" %{{.*}}, %[[ONE]]
  // NVSHMEM: llvm.call @nvshmem_getmem_nbi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_getmem_nbi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i32) -> ()
  shmem.getmem_nbi thread %dst, %src, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @putmem_signal(
llvm.func @putmem_signal(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmemx_putmem_signal_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_signal_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  shmem.putmem_signal block %dst, %src, %n, %dst, add %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_putmem_signal_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_signal_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  shmem.putmem_signal warp %dst, %src, %n, %dst, add %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_putmem_signal({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_signal({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  shmem.putmem_signal thread %dst, %src, %n, %dst, add %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @putmem_signal_nbi(
llvm.func @putmem_signal_nbi(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmemx_putmem_signal_nbi_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_signal_nbi_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  shmem.putmem_signal_nbi block %dst, %src, %n, %dst, add %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_putmem_signal_nbi_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_signal_nbi_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  shmem.putmem_signal_nbi warp %dst, %src, %n, %dst, add %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_putmem_signal_nbi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  // P2P:     llvm.call @triton_dist_putmem_signal_nbi({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64, i32, i32) -> ()
  shmem.putmem_signal_nbi thread %dst, %src, %n, %dst, add %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @iput(
llvm.func @iput(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmemx_int8_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_i8_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block i8 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_u8_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block u8 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_i16_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block i16 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_u16_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block u16 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_i32_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block i32 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_u32_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block u32 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_i64_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block i64 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_u64_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block u64 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_f16_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block f16 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_bf16_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block bf16 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_f32_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block f32 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_iput_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_f64_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput block f64 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_iput_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iput_i32_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iput warp i32 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @iget(
llvm.func @iget(%dst: !llvm.ptr<1>, %src: !llvm.ptr<1>, %n: i64, %pe: i32) {
  // NVSHMEM: llvm.call @nvshmemx_int8_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_i8_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block i8 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_u8_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block u8 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_i16_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block i16 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_u16_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block u16 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_i32_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block i32 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_u32_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block u32 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_i64_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block i64 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_u64_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block u64 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_f16_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block f16 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_bf16_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block bf16 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_f32_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block f32 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_iget_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_f64_block({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget block f64 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_iget_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  // P2P:     llvm.call @triton_dist_iget_i32_warp({{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64, i64, i32) -> ()
  shmem.iget warp i32 %dst, %src, %n, %n, %n, %pe : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

