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

// The summary lists the cases, since MLIR shows it where a number is none of them.
class Shmem_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary # " (" # !interleave(!foreach(case, cases, case.str), ", ") # ")", cases> {
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

// The enums below choose a routine or what surrounds its call; none of them is
// an argument of it.
class Shmem_PlanEnum<string name, string summary, list<I32EnumAttrCase> cases>
    : Shmem_Enum<name, summary, cases>;

def Shmem_Sem : Shmem_PlanEnum<"Sem", "memory ordering of an atomic", [
  I32EnumAttrCase<"Relaxed", 0, "relaxed">,
  I32EnumAttrCase<"Acquire", 1, "acquire">,
  I32EnumAttrCase<"Release", 2, "release">,
  I32EnumAttrCase<"AcqRel", 3, "acq_rel">,
]>;

def Shmem_MemScope : Shmem_PlanEnum<"MemScope", "who observes the ordering of an atomic", [
  I32EnumAttrCase<"Cta", 0, "cta">,
  I32EnumAttrCase<"Gpu", 1, "gpu">,
  I32EnumAttrCase<"Sys", 2, "sys">,
]>;

def Shmem_ThreadScope : Shmem_PlanEnum<"ThreadScope", "which of the program's threads act", [
  I32EnumAttrCase<"Thread", 0, "thread">,
  I32EnumAttrCase<"Warp", 1, "warp">,
  I32EnumAttrCase<"Block", 2, "block">,
]>;

// MLIR's integers have no sign, and OpenSHMEM's routines differ by it.
def Shmem_ElementType : Shmem_PlanEnum<"ElementType", "C element type of a routine", [
  I32EnumAttrCase<"I8", 0, "i8">,
  I32EnumAttrCase<"U8", 1, "u8">,
  I32EnumAttrCase<"I16", 2, "i16">,
  I32EnumAttrCase<"U16", 3, "u16">,
  I32EnumAttrCase<"I32", 4, "i32">,
  I32EnumAttrCase<"U32", 5, "u32">,
  I32EnumAttrCase<"I64", 6, "i64">,
  I32EnumAttrCase<"U64", 7, "u64">,
  I32EnumAttrCase<"F16", 8, "f16">,
  I32EnumAttrCase<"BF16", 9, "bf16">,
  I32EnumAttrCase<"F32", 10, "f32">,
  I32EnumAttrCase<"F64", 11, "f64">,
]>;

def Shmem_Reduction : Shmem_PlanEnum<"Reduction", "operator of a reduction", [
  I32EnumAttrCase<"Sum", 0, "sum">,
  I32EnumAttrCase<"Prod", 1, "prod">,
  I32EnumAttrCase<"Min", 2, "min">,
  I32EnumAttrCase<"Max", 3, "max">,
  I32EnumAttrCase<"And", 4, "and">,
  I32EnumAttrCase<"Or", 5, "or">,
  I32EnumAttrCase<"Xor", 6, "xor">,
]>;

#endif // SHMEM_ENUMS_TD
