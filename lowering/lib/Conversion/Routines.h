//===- Routines.h - How each device library names and numbers things --------===//

#ifndef TRITON_DIST_CONVERSION_ROUTINES_H
#define TRITON_DIST_CONVERSION_ROUTINES_H

#include "Shmem/Shmem.h"

#include <optional>
#include <string>

namespace triton_dist::shmem {

/// A transport by its name ("nvshmem", "rocshmem", "p2p").
std::optional<Transport> parseTransport(llvm::StringRef name);
llvm::StringRef stringify(Transport transport);

/// The routine that `op` calls, placeholders filled in; empty where the library has none.
std::string routineOf(LibraryCall op, Transport transport);

/// The attribute `name` of `op` as the library's C int.
int64_t libraryValue(mlir::Operation *op, llvm::StringRef name, Transport transport);

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_ROUTINES_H
