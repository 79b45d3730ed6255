//===- ShmemEnums.td - Symbolic constants of the shmem dialect ----------===//
//
// The IR holds names. Libraries number them differently (NVSHMEM's signal
// set/add are 9/10, ROCSHMEM's 0/1), so each transport's numbers are looked up
// when an op is lowered.
//
//===--------------------------------------------------------------------===//

#ifndef SHMEM_ENUMS_TD
#define SHMEM_ENUMS_TD

include "mlir/IR/EnumAttr.td"
include "Shmem/ShmemDialect.td"

class Shmem_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = Shmem_Dialect.cppNamespace;
}

def Shmem_SignalUpdate : Shmem_Enum<"SignalUpdate", "how a signal word is updated", [
  I32EnumAttrCase<"Set", 0, "set">,
  I32EnumAttrCase<"Add", 1, "add">,
]>;

def Shmem_Cmp : Shmem_Enum<"Cmp", "comparison of a wait", [
  I32EnumAttrCase<"Eq", 0, "eq">,
  I32EnumAttrCase<"Ne", 1, "ne">,
  I32EnumAttrCase<"Gt", 2, "gt">,
  I32EnumAttrCase<"Ge", 3, "ge">,
  I32EnumAttrCase<"Lt", 4, "lt">,
  I32EnumAttrCase<"Le", 5, "le">,
]>;

#endif // SHMEM_ENUMS_TD
