//===- Routines.h - How each device library names and numbers things --------===//

#ifndef TRITON_DIST_CONVERSION_ROUTINES_H
#define TRITON_DIST_CONVERSION_ROUTINES_H

#include "Shmem/Shmem.h"

#include <optional>
#include <string>

namespace triton_dist::shmem {

/// A transport by its name ("nvshmem", "rocshmem", "rocshmem-6", "p2p").
std::optional<Transport> parseTransport(llvm::StringRef name);
llvm::StringRef stringify(Transport transport);

/// Whether the library is ROCSHMEM, whose routines are C++ (see Rocshmem.h).
bool isRocshmem(Transport transport);

/// The library whose routine `op` calls: the transport's or, for waits on a PE's own memory, our own.
Transport libraryOf(LibraryCall op, Transport transport);

/// Why a transport has nothing for `op`, to stand behind the op's name; empty when it has.
std::string whyUnavailable(LibraryCall op, Transport transport);

/// The symbol of the routine that `op` calls. Only for ops that are available.
std::string routineOf(LibraryCall op, Transport transport);

/// NVSHMEM's routine that is called after our own wait, if any; see LibraryCall::getNvshmemTest.
std::string testAfter(LibraryCall op, Transport transport);

/// The library's variables that the call of `op` reads.
llvm::SmallVector<std::string> variablesOf(LibraryCall op, Transport transport);

/// Whether the routine that `op` calls takes and returns the bits of its float as an integer.
bool takesBits(LibraryCall op, Transport transport);

/// The bytes of an element.
unsigned elementBytes(ElementType type);

/// The attribute `name` of `op` as the library's C int.
int64_t libraryValue(mlir::Operation *op, llvm::StringRef name, Transport transport);

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_ROUTINES_H
