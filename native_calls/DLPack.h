//===- DLPack.h - How a tensor tells C what it is ---------------*- C++ -*-===//
//
// The part of DLPack 1.x by which C reads a Python tensor without owning it:
// type(tensor).__dlpack_c_exchange_api__ is a capsule with an ExchangeTable.
// The names are ours; the layouts are those of dlpack.h
// (https://github.com/dmlc/dlpack), which keeps them within a major version.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_DLPACK_H
#define TRITON_DIST_NATIVE_CALLS_DLPACK_H

#include <cstdint>

namespace triton_dist::dlpack {

constexpr char CapsuleName[] = "dlpack_exchange_api";
constexpr uint32_t Major = 1;

struct Tensor {
  void *data;
  int32_t deviceType, deviceIndex;
  int32_t rank;
  uint8_t dtypeCode, dtypeBits;
  uint16_t dtypeLanes;
  int64_t *shape, *strides;
  uint64_t byteOffset;
};
static_assert(sizeof(Tensor) == 48, "as dlpack.h has it on 64-bit hosts");

constexpr uint8_t ComplexCode = 5;

struct ExchangeTable {
  uint32_t major, minor;
  ExchangeTable *previous;
  void *allocate, *exportOwned, *import;
  /// 0, or -1 with a Python exception. Shape and strides are the tensor's own.
  int (*read)(void *object, Tensor *out);
  void *currentStream;
};
static_assert(sizeof(ExchangeTable) == 56, "as dlpack.h has it on 64-bit hosts");

} // namespace triton_dist::dlpack

#endif // TRITON_DIST_NATIVE_CALLS_DLPACK_H
