//===- Launch.h - A launch whose arguments are packed -----------*- C++ -*-===//
//
// All of a launch but the stream and the addresses of a call's tensors. It
// links no CUDA: Python passes the driver's functions by address.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_LAUNCH_H
#define TRITON_DIST_NATIVE_CALLS_LAUNCH_H

#include "Object.h"

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace triton_dist {

using Address = uint64_t;

/// CUlaunchAttribute of cuda.h.
struct LaunchAttribute {
  int32_t id;
  char padding[4];
  uint32_t value[16];
};
static_assert(sizeof(LaunchAttribute) == 72, "as cuda.h has it");

/// CUlaunchConfig of cuda.h.
struct LaunchConfig {
  uint32_t grid[3], block[3];
  uint32_t sharedBytes;
  void *stream;
  const LaunchAttribute *attributes;
  uint32_t attributeCount;
};
static_assert(sizeof(LaunchConfig) == 56, "as cuda.h has it on 64-bit hosts");

/// The driver's functions, in the order in which Python passes them.
struct Driver {
  int (*launch)(const LaunchConfig *, void *function, void **parameters, void **extra);
  int (*pointerAttribute)(void *data, int attribute, Address);
  int (*currentContext)(void **);
  int (*errorText)(int status, const char **text);
};
static_assert(sizeof(Driver) == 32, "as Python passes it");

class Launch {
public:
  static constexpr size_t MapBytes = 128;   // of a CUtensorMap
  static constexpr size_t MostBytes = 4096; // of a kernel's parameters
  static constexpr size_t MostParameters = 256;
  static constexpr size_t MostMaps = 256; // of a parameter, by the addresses of its tensor
  static constexpr size_t MostTensors = 16;

  /// A parameter that is the address of a call's tensor, or a TMA descriptor of it.
  struct Patch {
    size_t offset;
    size_t tensor;
    bool isMap;
    std::map<Address, std::array<char, MapBytes>> maps; // (a hash table takes a newer C++ runtime than wheels may)
  };

  Driver driver;
  void *function;
  LaunchConfig config;
  std::vector<LaunchAttribute> attributes;
  std::vector<char> bytes;       // of all parameters, as the kernel gets them
  std::vector<uint32_t> offsets; // of each parameter
  std::vector<Patch> patches;
  size_t tensors; // how many addresses a call brings

  /// Has all descriptors of tensors at these addresses made that are not known: `encode`, a function of Python, is
  /// given the number of the patch and the address, and returns the bytes. False with an exception set.
  bool encode(const Address *addresses, const Object &encode);

  /// Launches, and asks about each address what Triton's launcher asks. Python's lock is free meanwhile: the driver
  /// waits where a stream's queue is full. False with an exception set.
  bool run(void *stream, const Address *addresses, const Object &encode);

private:
  /// The descriptor of a patch; it is kept until another is made. Null with an exception set.
  const char *mapOf(size_t patch, Address address, const Object &encode);
};

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_LAUNCH_H
