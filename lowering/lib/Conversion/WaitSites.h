//===- WaitSites.h - The places of a kernel that wait ------------------------===//
//
// A wait that lasts too long reports its number. The plan numbers the ops that wait
// and lists them for the host, so that machine code carries no text.
//
//===------------------------------------------------------------------------===//

#ifndef TRITON_DIST_CONVERSION_WAITSITES_H
#define TRITON_DIST_CONVERSION_WAITSITES_H

#include "Shmem/Shmem.h"

#include <string>

namespace triton_dist::shmem {

/// Numbers `op`, from 1.
void markSite(LibraryCall op, int32_t number);

/// Its number; 0 where no plan gave it one.
int32_t siteOf(LibraryCall op);

/// What the host is told of `op`: its name, the type of what it compares, and its lines, from the innermost function to
/// the kernel; separated by tabs.
std::string describeSite(LibraryCall op);

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_WAITSITES_H
