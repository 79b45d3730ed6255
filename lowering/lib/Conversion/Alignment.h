//===- Alignment.h - Which copies are of whole vectors ----------------------===//
//
// Our own library copies vectors of 16 bytes, and what is no whole one otherwise. A
// kernel whose copies are known to need the former only is linked with a routine
// that has nothing else, and compiles in less time.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_CONVERSION_ALIGNMENT_H
#define TRITON_DIST_CONVERSION_ALIGNMENT_H

#include "Shmem/Shmem.h"

namespace triton_dist::shmem {

/// Whether `op`, in TTGIR, copies a multiple of 16 bytes between addresses that are multiples of 16.
bool copiesWholeVectors(LibraryCall op);

/// What the plan has found out, for the conversion, which sees nothing of it any more.
void markAligned(LibraryCall op);
bool isMarkedAligned(LibraryCall op);

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_ALIGNMENT_H
