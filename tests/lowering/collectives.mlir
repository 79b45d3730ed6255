// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport nvshmem | FileCheck %s --check-prefixes=CHECK,NVSHMEM --implicit-check-not=@triton_dist_
// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport p2p | FileCheck %s --check-prefixes=CHECK,P2P --implicit-check-not llvm.fence --implicit-check-not=nvshmem
// Every PE publishes before a collective and acquires after it; our own library does so itself. What C returns is a status,
// which is not used.

// CHECK-LABEL: llvm.func @data(
llvm.func @data(%team: i32, %d: !llvm.ptr<1>, %s: !llvm.ptr<1>, %n: i64, %root: i32) {
  // NVSHMEM: llvm.call @nvshmemx_barrier_all_block({{.*}}) : () -> ()
  // P2P:     llvm.call @triton_dist_barrier_all_block({{.*}}) : (i32) -> ()
  shmem.barrier_all block
  // NVSHMEM: llvm.call @nvshmemx_sync_all_block({{.*}}) : () -> ()
  // P2P:     llvm.call @triton_dist_sync_all_block({{.*}}) : (i32) -> ()
  shmem.sync_all block
  // NVSHMEM: llvm.fence release
  // NVSHMEM: llvm.call @nvshmemx_barrier_block({{.*}}) : (i32) -> i32
  // P2P:     llvm.call @triton_dist_barrier_block({{.*}}) : (i32, i32) -> i32
  // NVSHMEM-NEXT: llvm.fence acquire
  shmem.barrier block %team
  // NVSHMEM: llvm.fence release
  // NVSHMEM: llvm.call @nvshmemx_team_sync_block({{.*}}) : (i32) -> i32
  // P2P:     llvm.call @triton_dist_sync_block({{.*}}) : (i32, i32) -> i32
  // NVSHMEM-NEXT: llvm.fence acquire
  shmem.sync block %team
  // NVSHMEM: llvm.call @nvshmemx_broadcastmem_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  // P2P:     llvm.call @triton_dist_broadcast_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32, i32) -> i32
  shmem.broadcast block %team, %d, %s, %n, %root : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_fcollectmem_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_fcollect_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.fcollect block %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_alltoallmem_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_alltoall_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.alltoall block %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_barrier_all_warp({{.*}}) : () -> ()
  // P2P:     llvm.call @triton_dist_barrier_all_warp({{.*}}) : (i32) -> ()
  shmem.barrier_all warp
  // NVSHMEM: llvm.call @nvshmemx_sync_all_warp({{.*}}) : () -> ()
  // P2P:     llvm.call @triton_dist_sync_all_warp({{.*}}) : (i32) -> ()
  shmem.sync_all warp
  // NVSHMEM: llvm.fence release
  // NVSHMEM: llvm.call @nvshmemx_barrier_warp({{.*}}) : (i32) -> i32
  // P2P:     llvm.call @triton_dist_barrier_warp({{.*}}) : (i32, i32) -> i32
  // NVSHMEM-NEXT: llvm.fence acquire
  shmem.barrier warp %team
  // NVSHMEM: llvm.fence release
  // NVSHMEM: llvm.call @nvshmemx_team_sync_warp({{.*}}) : (i32) -> i32
  // P2P:     llvm.call @triton_dist_sync_warp({{.*}}) : (i32, i32) -> i32
  // NVSHMEM-NEXT: llvm.fence acquire
  shmem.sync warp %team
  // NVSHMEM: llvm.call @nvshmemx_broadcastmem_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  // P2P:     llvm.call @triton_dist_broadcast_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32, i32) -> i32
  shmem.broadcast warp %team, %d, %s, %n, %root : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_fcollectmem_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_fcollect_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.fcollect warp %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_alltoallmem_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_alltoall_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.alltoall warp %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_barrier_all({{.*}}) : () -> ()
  // P2P:     llvm.call @triton_dist_barrier_all({{.*}}) : (i32) -> ()
  shmem.barrier_all thread
  // NVSHMEM: llvm.call @nvshmem_sync_all({{.*}}) : () -> ()
  // P2P:     llvm.call @triton_dist_sync_all({{.*}}) : (i32) -> ()
  shmem.sync_all thread
  // NVSHMEM: llvm.fence release
  // NVSHMEM: llvm.call @nvshmem_barrier({{.*}}) : (i32) -> i32
  // P2P:     llvm.call @triton_dist_barrier({{.*}}) : (i32, i32) -> i32
  // NVSHMEM-NEXT: llvm.fence acquire
  shmem.barrier thread %team
  // NVSHMEM: llvm.fence release
  // NVSHMEM: llvm.call @nvshmem_team_sync({{.*}}) : (i32) -> i32
  // P2P:     llvm.call @triton_dist_sync({{.*}}) : (i32, i32) -> i32
  // NVSHMEM-NEXT: llvm.fence acquire
  shmem.sync thread %team
  // NVSHMEM: llvm.call @nvshmem_broadcastmem({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  // P2P:     llvm.call @triton_dist_broadcast({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32, i32) -> i32
  shmem.broadcast thread %team, %d, %s, %n, %root : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_fcollectmem({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_fcollect({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.fcollect thread %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmem_alltoallmem({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_alltoall({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.alltoall thread %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @reduce(
llvm.func @reduce(%team: i32, %d: !llvm.ptr<1>, %s: !llvm.ptr<1>, %n: i64) {
  // NVSHMEM: llvm.call @nvshmemx_int8_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_f16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum f16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_bf16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum bf16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_f32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum f32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_sum_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_f64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block sum f64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_f16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod f16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_bf16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod bf16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_f32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod f32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_prod_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_prod_f64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block prod f64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_f16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min f16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_bf16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min bf16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_f32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min f32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_min_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_min_f64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block min f64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_f16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max f16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_bf16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max bf16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_f32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max f32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_max_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_max_f64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block max f64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_and_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_and_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block and i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_and_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_and_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block and u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_and_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_and_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block and i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_and_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_and_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block and u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_and_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_and_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block and i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_and_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_and_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block and u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_and_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_and_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block and i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_and_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_and_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block and u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_or_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_or_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block or i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_or_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_or_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block or u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_or_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_or_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block or i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_or_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_or_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block or u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_or_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_or_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block or i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_or_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_or_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block or u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_or_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_or_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block or i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_or_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_or_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block or u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_xor_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_xor_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block xor i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_xor_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_xor_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block xor u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_xor_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_xor_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block xor i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_xor_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_xor_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block xor u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_xor_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_xor_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block xor i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_xor_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_xor_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block xor u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_xor_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_xor_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block xor i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_xor_reduce_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_xor_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce block xor u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_sum_reduce_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reduce_sum_i32_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reduce warp sum i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @reducescatter(
llvm.func @reducescatter(%team: i32, %d: !llvm.ptr<1>, %s: !llvm.ptr<1>, %n: i64) {
  // NVSHMEM: llvm.call @nvshmemx_int8_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_f16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum f16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_bf16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum bf16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_f32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum f32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_sum_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_f64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block sum f64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_f16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod f16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_bf16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod bf16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_f32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod f32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_prod_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_prod_f64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block prod f64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_f16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min f16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_bf16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min bf16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_f32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min f32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_min_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_min_f64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block min f64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_half_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_f16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max f16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_bfloat16_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_bf16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max bf16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_float_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_f32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max f32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_double_max_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_max_f64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block max f64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_and_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_and_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block and i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_and_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_and_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block and u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_and_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_and_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block and i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_and_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_and_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block and u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_and_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_and_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block and i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_and_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_and_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block and u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_and_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_and_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block and i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_and_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_and_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block and u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_or_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_or_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block or i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_or_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_or_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block or u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_or_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_or_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block or i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_or_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_or_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block or u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_or_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_or_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block or i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_or_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_or_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block or u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_or_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_or_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block or i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_or_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_or_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block or u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int8_xor_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_xor_i8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block xor i8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint8_xor_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_xor_u8_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block xor u8 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int16_xor_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_xor_i16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block xor i16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint16_xor_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_xor_u16_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block xor u16 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_xor_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_xor_i32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block xor i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint32_xor_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_xor_u32_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block xor u32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int64_xor_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_xor_i64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block xor i64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_uint64_xor_reducescatter_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_xor_u64_block({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter block xor u64 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  // NVSHMEM: llvm.call @nvshmemx_int32_sum_reducescatter_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64) -> i32
  // P2P:     llvm.call @triton_dist_reducescatter_sum_i32_warp({{.*}}) : (i32, !llvm.ptr, !llvm.ptr, i64, i32) -> i32
  shmem.reducescatter warp sum i32 %team, %d, %s, %n : !llvm.ptr<1>, !llvm.ptr<1>
  llvm.return
}

