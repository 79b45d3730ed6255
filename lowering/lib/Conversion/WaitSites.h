//===- WaitSites.h - Numbers and descriptions of a kernel's waits ------------===//
//
// A wait report contains the number of the wait. The plan numbers the waiting ops
// and lists them for the host, so the machine code contains no text.
//
//===------------------------------------------------------------------------===//

#ifndef TRITON_DIST_CONVERSION_WAITSITES_H
#define TRITON_DIST_CONVERSION_WAITSITES_H

#include "Shmem/Shmem.h"

#include <string>

namespace triton_dist::shmem {

/// Numbers `op`, from 1.
void markSite(LibraryCall op, int32_t number);

/// The number of `op`; 0 if no plan has numbered it.
int32_t siteOf(LibraryCall op);

/// The description of `op` for the host: its name, the compared type, and its source lines, from the innermost function
/// to the kernel; separated by tabs.
std::string describeSite(LibraryCall op);

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_WAITSITES_H
