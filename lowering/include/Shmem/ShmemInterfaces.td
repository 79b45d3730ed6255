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
  // After what TableGen writes of itself has verified the declared types and the ranges of enums.
  let verify = "return ::triton_dist::shmem::verifyElements($_op);";
  let methods = [
    StaticInterfaceMethod<[{
      The routine of a transport's library, empty where it has none. `$type`,
      `$op` and `$scope` stand for the op's attributes as that library spells them,
      `$aligned` for what the plan found out about the operands.
    }], "::llvm::StringRef", "getRoutine", (ins "::triton_dist::shmem::Transport":$transport)>,
    StaticInterfaceMethod<"What a transport's routine returns.",
      "::triton_dist::shmem::Returns", "getReturns", (ins "::triton_dist::shmem::Transport":$transport)>,
    StaticInterfaceMethod<[{
      The element types that NVSHMEM's routine names otherwise than by C's type of that
      width. A float named as an integer is passed and returned as its bits.
    }], "::llvm::ArrayRef<::triton_dist::shmem::TypeName>", "getNvshmemTypeNames">,
    StaticInterfaceMethod<"Whether a routine that takes no PE does for all PEs what the op does for one.",
      "bool", "isForAllPes">,
    StaticInterfaceMethod<[{
      The routine's arguments in order: an attribute's name where the argument is
      that attribute, an empty string where it is the next operand.
    }], "::llvm::ArrayRef<::llvm::StringRef>", "getCallSignature">,
    StaticInterfaceMethod<"Whether every PE of a team must call it.", "bool", "isCollective">,
    StaticInterfaceMethod<"Whether our own routine takes the number of the wait (see WaitSites.h).",
      "bool", "takesSite">,
    StaticInterfaceMethod<[{
      Whether the libraries other than ours have a routine for one of the op's blocks only,
      which takes two addresses, a number of bytes and a PE.
    }], "bool", "isByBlocks">,
    StaticInterfaceMethod<"The type of the words that a report of a wait compares, where they are no elements.",
      "::llvm::StringRef", "getComparedWord">,
    InterfaceMethod<[{
      How many elements of each PE NVSHMEM keeps in memory of a fixed size while it combines
      them; null where it keeps none.
    }], "::mlir::Value", "getScratchElements">,
    StaticInterfaceMethod<[{
      What is called after our own wait on NVSHMEM: its test of one element, or of any
      of some, which makes what a network wrote consistent. Empty where nothing is.
    }], "::llvm::StringRef", "getNvshmemTest">,
    StaticInterfaceMethod<[{
      For each operand its name where it is a pointer into the symmetric heap, else
      an empty string.
    }], "::llvm::ArrayRef<::llvm::StringRef>", "getSymmetricOperands">,
    StaticInterfaceMethod<"For each operand its name where it is an element's value, else an empty string.",
      "::llvm::ArrayRef<::llvm::StringRef>", "getValueOperands">,
    StaticInterfaceMethod<"Whether the result is an element's value.", "bool", "returnsElement">,
    StaticInterfaceMethod<"The element types that the op's `type` may be, on whatever transport.",
      "::llvm::ArrayRef<::triton_dist::shmem::ElementType>", "getElementTypes">,
    InterfaceMethod<"What a copy that has routines for whole vectors copies: to where, from where, how many bytes.",
      "::llvm::SmallVector<::mlir::Value>", "getCopied">,
    StaticInterfaceMethod<"Whether it loads or stores data on behalf of the program, whatever else it does.",
      "bool", "isRma">,
    InterfaceMethod<"The PE that the op acts on, if it names one.",
      "::mlir::Value", "getPeOperand">,
    InterfaceMethod<"The team that the op acts on, if it names one.",
      "::mlir::Value", "getTeamOperand">,
    InterfaceMethod<"Who of the program's threads makes the call.",
      "::triton_dist::shmem::Caller", "getCaller">,
    InterfaceMethod<
      "Whether the program's earlier writes are visible to whoever sees the op's effect.",
      "bool", "isRelease">,
    InterfaceMethod<
      "Whether the program's later reads see what the op has seen published.",
      "bool", "isAcquire">,
    StaticInterfaceMethod<"Whether a transport's routine does this ordering, so that no fence is needed around it.",
      "bool", "ordersItself", (ins "::triton_dist::shmem::Transport":$transport)>,
  ];
}

def Shmem_OpaqueNumber : OpInterface<"OpaqueNumber"> {
  let cppNamespace = "::triton_dist::shmem";
  let description = "An op without effects that is a number, which only the lowering tells LLVM.";
  let methods = [StaticInterfaceMethod<"The number.", "int64_t", "getNumber">];
}

#endif // SHMEM_INTERFACES_TD
