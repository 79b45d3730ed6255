//===- Text.h - Texts of several parts ---------------------------------------===//
//
// llvm::formatv passes objects to the LLVM inside Triton whose classes change
// between LLVM's versions. What a stream prints crosses as characters.
//
//===------------------------------------------------------------------------===//

#ifndef TRITON_DIST_CONVERSION_TEXT_H
#define TRITON_DIST_CONVERSION_TEXT_H

#include "llvm/Support/raw_ostream.h"

#include <string>

namespace triton_dist::shmem {

/// The parts, one after the other.
template <typename... Parts> std::string textOf(const Parts &...parts) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  (stream << ... << parts);
  return text;
}

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_TEXT_H
