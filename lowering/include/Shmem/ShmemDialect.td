//===- ShmemDialect.td - The shmem dialect ------------------------------===//

#ifndef SHMEM_DIALECT_TD
#define SHMEM_DIALECT_TD

include "mlir/IR/OpBase.td"

def Shmem_Dialect : Dialect {
  let name = "shmem";
  let cppNamespace = "::triton_dist::shmem";
  let summary = "OpenSHMEM operations of a Triton program";
  let description = [{
    One op per OpenSHMEM routine that makes sense on a device, named as the
    standard (or NVSHMEM, where it extends the standard) names it.

    Triton has programs, not threads. Every op acts **once per program** and is
    ordered with the program's own loads and stores, so all operands are scalars
    and no Triton pass needs to know the dialect. Ops stay as they are from TTIR
    to the end of Triton's own conversion to LLVM; `convert-shmem-to-llvm` then
    turns each into a call of the device library.
  }];
}

#endif // SHMEM_DIALECT_TD
