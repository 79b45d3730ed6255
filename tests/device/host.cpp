//===- host.cpp - What the device library needs on this machine -------------===//

#include "World.h"

/// The state of the calling thread, which is a PE.
extern "C" void *state() { return &triton_dist_p2p_state; }

/// Rounds to the nearest, ties to even. Compilers' own libraries have it only lately.
extern "C" __bf16 __truncsfbf2(float value) {
  uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if (value == value)
    bits += 0x7fff + (bits >> 16 & 1);
  return __builtin_bit_cast(__bf16, (uint16_t)(bits >> 16));
}
