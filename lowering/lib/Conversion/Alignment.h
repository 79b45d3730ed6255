//===- Alignment.h - Which copies are of whole vectors ----------------------===//
//
// Our own library copies vectors of 16 bytes, and what is no whole one otherwise. A
// kernel whose copies are known to need the former only, or besides it a few bytes
// behind the last vector, is linked with a routine that has nothing else, and compiles
// in less time.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_CONVERSION_ALIGNMENT_H
#define TRITON_DIST_CONVERSION_ALIGNMENT_H

#include "Shmem/Shmem.h"

namespace triton_dist::shmem {

/// What is known to be a multiple of 16 of a copy: nothing for sure, both addresses, or these and the number of bytes.
enum class Alignment { Unknown, Addresses, WholeVectors };

/// What is known of `op`, in TTGIR; Unknown if it copies nothing.
Alignment findAlignment(LibraryCall op);

/// What the plan has found out, for the conversion, which sees nothing of it any more.
void markAlignment(LibraryCall op, Alignment alignment);
Alignment markedAlignment(LibraryCall op);

} // namespace triton_dist::shmem

#endif // TRITON_DIST_CONVERSION_ALIGNMENT_H
