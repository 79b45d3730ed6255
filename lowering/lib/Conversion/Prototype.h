//===- Prototype.h - A C++ function as its header declares it ---------------===//
//
// ROCSHMEM's device functions are C++: their symbols encode their parameters, and
// its contexts and teams are no integers. So the op table quotes its declarations,
// and what a call needs is read from there.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_CONVERSION_PROTOTYPE_H
#define TRITON_DIST_CONVERSION_PROTOTYPE_H

#include "Shmem/Shmem.h"

#include <optional>
#include <string>

namespace triton_dist::shmem {

/// A type in ROCSHMEM's declarations, or a pointer to it.
struct CType {
  enum class Kind { Void, Integer, Float, Context, Team };

  Kind kind;
  unsigned bits;                      // of an integer or a float
  bool isSigned;                      // an integer
  llvm::StringRef mangled;            // as the C++ ABI encodes it
  std::optional<ElementType> element; // the dialect's element type that it is
  bool isPointer = false;
  bool isConst = false; // what the pointer points to

  /// By its name in C ("size_t") or in the names of SHMEM routines ("uint64", "schar").
  static std::optional<CType> parse(llvm::StringRef name);
};

/// `int rocshmem_int_test(int *, int, int)`.
struct Prototype {
  std::string name;
  CType result;
  llvm::SmallVector<CType> parameters;

  /// Reads a declaration without names of parameters. The table's are correct: asserts.
  static Prototype parse(llvm::StringRef declaration);

  /// The symbol of the function in namespace rocshmem, by the Itanium C++ ABI.
  std::string symbol() const;
};

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_PROTOTYPE_H
