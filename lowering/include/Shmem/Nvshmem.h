//===- Nvshmem.h - NVSHMEM's numbers ------------------------------*- C++ -*-===//
//
// Taken from the library's own headers when the plugin is compiled: versions and
// libraries number these differently. The headers used here are plain C; nothing
// of CUDA is needed.
//
//===------------------------------------------------------------------------===//

#ifndef SHMEM_NVSHMEM_H
#define SHMEM_NVSHMEM_H

#include <cstddef>

#include "device_host/nvshmem_types.h"
#include "device_host_transport/nvshmem_common_transport.h"
#include "device_host_transport/nvshmem_constants.h"

namespace triton_dist::nvshmem {

inline constexpr int kSignalSet = NVSHMEM_SIGNAL_SET;
inline constexpr int kSignalAdd = NVSHMEM_SIGNAL_ADD;

inline constexpr int kCmpEq = NVSHMEM_CMP_EQ;
inline constexpr int kCmpNe = NVSHMEM_CMP_NE;
inline constexpr int kCmpGt = NVSHMEM_CMP_GT;
inline constexpr int kCmpGe = NVSHMEM_CMP_GE;
inline constexpr int kCmpLt = NVSHMEM_CMP_LT;
inline constexpr int kCmpLe = NVSHMEM_CMP_LE;

/// Where a linked kernel finds the first byte of its PE's symmetric heap.
inline constexpr const char *kDeviceState = "nvshmemi_device_state_d";
inline constexpr size_t kDeviceStateBytes = sizeof(nvshmemi_device_host_state_t);
inline constexpr size_t kHeapBaseOffset = offsetof(nvshmemi_device_host_state_t, heap_base);

} // namespace triton_dist::nvshmem

#endif // SHMEM_NVSHMEM_H
