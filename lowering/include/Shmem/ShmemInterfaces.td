//===- ShmemInterfaces.td - What the lowering asks of an op -------------===//

#ifndef SHMEM_INTERFACES_TD
#define SHMEM_INTERFACES_TD

include "mlir/IR/OpBase.td"

def Shmem_LibraryCall : OpInterface<"LibraryCall"> {
  let cppNamespace = "::triton_dist::shmem";
  let description = [{
    An op that becomes one call of a device library routine. The lowering reads
    everything it does from here; no pattern spells a symbol or an op's name.
  }];
  let methods = [
    StaticInterfaceMethod<"The NVSHMEM routine that the op calls.",
      "::llvm::StringRef", "getNvshmemCallee">,
    StaticInterfaceMethod<"Who of the program's threads makes the call.",
      "::triton_dist::shmem::Caller", "getCaller">,
    StaticInterfaceMethod<
      "Whether the program's earlier writes are visible to whoever sees the op's effect.",
      "bool", "isRelease">,
    StaticInterfaceMethod<
      "Whether the program's later reads see what the op has seen published.",
      "bool", "isAcquire">,
    StaticInterfaceMethod<[{
      The C call's arguments in order: an attribute's name where the argument is
      that attribute, an empty string where it is the next operand.
    }], "::llvm::ArrayRef<::llvm::StringRef>", "getCallSignature">,
  ];
}

#endif // SHMEM_INTERFACES_TD
