//===- Types.h - The element types of routines ------------------*- C++ -*-===//

#ifndef TRITON_DIST_DEVICE_TYPES_H
#define TRITON_DIST_DEVICE_TYPES_H

#include <stdint.h>

// Each expands DEFINE(type, its name in routines, further arguments…) for a set of types.

/// What machines have atomics for.
#define TRITON_DIST_FOR_WIDE_INTEGERS(DEFINE, ...)                                                                     \
  DEFINE(int32_t, i32, ##__VA_ARGS__)                                                                                  \
  DEFINE(uint32_t, u32, ##__VA_ARGS__)                                                                                 \
  DEFINE(int64_t, i64, ##__VA_ARGS__)                                                                                  \
  DEFINE(uint64_t, u64, ##__VA_ARGS__)

#define TRITON_DIST_FOR_WIDE_FLOATS(DEFINE, ...)                                                                       \
  DEFINE(float, f32, ##__VA_ARGS__)                                                                                    \
  DEFINE(double, f64, ##__VA_ARGS__)

/// What OpenSHMEM waits for.
#define TRITON_DIST_FOR_WORDS(DEFINE, ...)                                                                             \
  DEFINE(int16_t, i16, ##__VA_ARGS__)                                                                                  \
  DEFINE(uint16_t, u16, ##__VA_ARGS__)                                                                                 \
  TRITON_DIST_FOR_WIDE_INTEGERS(DEFINE, ##__VA_ARGS__)

#define TRITON_DIST_FOR_INTEGERS(DEFINE, ...)                                                                          \
  DEFINE(int8_t, i8, ##__VA_ARGS__)                                                                                    \
  DEFINE(uint8_t, u8, ##__VA_ARGS__)                                                                                   \
  TRITON_DIST_FOR_WORDS(DEFINE, ##__VA_ARGS__)

#define TRITON_DIST_FOR_TYPES(DEFINE, ...)                                                                             \
  TRITON_DIST_FOR_INTEGERS(DEFINE, ##__VA_ARGS__)                                                                      \
  DEFINE(_Float16, f16, ##__VA_ARGS__)                                                                                 \
  DEFINE(__bf16, bf16, ##__VA_ARGS__)                                                                                  \
  TRITON_DIST_FOR_WIDE_FLOATS(DEFINE, ##__VA_ARGS__)

namespace triton_dist::device {

/// The unsigned integer of a size in bytes.
template <int Bytes> struct BitsOfSize;
template <> struct BitsOfSize<1> {
  using Type = uint8_t;
};
template <> struct BitsOfSize<2> {
  using Type = uint16_t;
};
template <> struct BitsOfSize<4> {
  using Type = uint32_t;
};
template <> struct BitsOfSize<8> {
  using Type = uint64_t;
};

template <typename T> using Bits = typename BitsOfSize<sizeof(T)>::Type;

/// How a routine takes and returns an element: the 16-bit floats, which have no calling convention that all compilers
/// agree on, as their bits.
template <typename T> struct ArgumentOf {
  using Type = T;
};
template <> struct ArgumentOf<_Float16> {
  using Type = uint16_t;
};
template <> struct ArgumentOf<__bf16> {
  using Type = uint16_t;
};

template <typename T> using Argument = typename ArgumentOf<T>::Type;

} // namespace triton_dist::device

#endif // TRITON_DIST_DEVICE_TYPES_H
