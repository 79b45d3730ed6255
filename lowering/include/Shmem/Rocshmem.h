//===- Rocshmem.h - ROCSHMEM's numbers ----------------------------*- C++ -*-===//
//
// Taken from the library's own header when the plugin is compiled with one
// (-DROCSHMEM_DIR=…). ROCSHMEM is rarely installed where wheels are built; without
// it these are the numbers of rocSHMEM 3.4.0 (ROCm 7.14), rocshmem_common.hpp,
// which have not changed since rocSHMEM 2.0 (ROCm 6.4).
//
//===------------------------------------------------------------------------===//

#ifndef SHMEM_ROCSHMEM_H
#define SHMEM_ROCSHMEM_H

#ifdef TRITON_DIST_HAS_ROCSHMEM

#include <array>
#include <cstddef>
#include <cstdint>

// The header marks what lies on the device, which a host compiler need not know.
#define __constant__
#define __device__
#define __host__
#include "rocshmem/rocshmem_common.hpp"
#undef __constant__
#undef __device__
#undef __host__

#else

namespace rocshmem {
enum ROCSHMEM_SIGNAL_OPS { ROCSHMEM_SIGNAL_SET, ROCSHMEM_SIGNAL_ADD };
enum rocshmem_cmps {
  ROCSHMEM_CMP_EQ,
  ROCSHMEM_CMP_NE,
  ROCSHMEM_CMP_GT,
  ROCSHMEM_CMP_GE,
  ROCSHMEM_CMP_LT,
  ROCSHMEM_CMP_LE,
};
} // namespace rocshmem

#endif

namespace triton_dist::rocshmem {

inline constexpr int kSignalSet = ::rocshmem::ROCSHMEM_SIGNAL_SET;
inline constexpr int kSignalAdd = ::rocshmem::ROCSHMEM_SIGNAL_ADD;

inline constexpr int kCmpEq = ::rocshmem::ROCSHMEM_CMP_EQ;
inline constexpr int kCmpNe = ::rocshmem::ROCSHMEM_CMP_NE;
inline constexpr int kCmpGt = ::rocshmem::ROCSHMEM_CMP_GT;
inline constexpr int kCmpGe = ::rocshmem::ROCSHMEM_CMP_GE;
inline constexpr int kCmpLt = ::rocshmem::ROCSHMEM_CMP_LT;
inline constexpr int kCmpLe = ::rocshmem::ROCSHMEM_CMP_LE;

} // namespace triton_dist::rocshmem

#endif // SHMEM_ROCSHMEM_H
