//===- Routines.cpp - How each device library names and numbers things ------===//

#include "Routines.h"

#include "Shmem/Nvshmem.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace triton_dist;
using namespace triton_dist::shmem;

std::optional<Transport> shmem::parseTransport(StringRef name) {
  return llvm::StringSwitch<std::optional<Transport>>(name)
      .Case("nvshmem", Transport::Nvshmem)
      .Case("rocshmem", Transport::Rocshmem)
      .Case("p2p", Transport::P2p)
      .Default(std::nullopt);
}

StringRef shmem::stringify(Transport transport) {
  switch (transport) {
  case Transport::Nvshmem:
    return "nvshmem";
  case Transport::Rocshmem:
    return "rocshmem";
  case Transport::P2p:
    return "p2p";
  }
  llvm_unreachable("a transport without a name");
}

namespace {

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// C type names in NVSHMEM's routines.
StringRef nvshmemTypeName(ElementType type) {
  switch (type) {
  case ElementType::I8:
    return "int8";
  case ElementType::U8:
    return "uint8";
  case ElementType::I16:
    return "int16";
  case ElementType::U16:
    return "uint16";
  case ElementType::I32:
    return "int32";
  case ElementType::U32:
    return "uint32";
  case ElementType::I64:
    return "int64";
  case ElementType::U64:
    return "uint64";
  case ElementType::F16:
    return "half";
  case ElementType::BF16:
    return "bfloat16";
  case ElementType::F32:
    return "float";
  case ElementType::F64:
    return "double";
  }
  llvm_unreachable("an element type without a name");
}

StringRef typeName(ElementType type, Transport transport) {
  return transport == Transport::P2p ? stringifyElementType(type) : nvshmemTypeName(type);
}

/// The suffix that says which threads take part.
StringRef scopeSuffix(ThreadScope scope, Transport transport) {
  bool isRocshmem = transport == Transport::Rocshmem;
  switch (scope) {
  case ThreadScope::Thread:
    return "";
  case ThreadScope::Warp:
    return isRocshmem ? "_wave" : "_warp";
  case ThreadScope::Block:
    return isRocshmem ? "_wg" : "_block";
  }
  llvm_unreachable("a scope without a suffix");
}

void replace(std::string &text, StringRef placeholder, StringRef value) {
  if (size_t at = text.find(placeholder.str()); at != std::string::npos)
    text.replace(at, placeholder.size(), value.str());
}

} // namespace

std::string shmem::routineOf(LibraryCall op, Transport transport) {
  std::string name = op.getRoutine(transport).str();
  if (auto type = op->getAttrOfType<ElementTypeAttr>("type"))
    replace(name, "$type", typeName(type.getValue(), transport));
  if (auto reduction = op->getAttrOfType<ReductionAttr>("op"))
    replace(name, "$op", stringifyReduction(reduction.getValue()));
  if (auto scope = op->getAttrOfType<ThreadScopeAttr>("scope")) {
    replace(name, "$scope", scopeSuffix(scope.getValue(), transport));
    // NVSHMEM's routines for more than a thread extend OpenSHMEM, and say so.
    if (transport == Transport::Nvshmem && scope.getValue() != ThreadScope::Thread)
      replace(name, "nvshmem_", "nvshmemx_");
  }
  return name;
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

namespace {

int64_t nvshmemValue(SignalUpdate update) {
  switch (update) {
  case SignalUpdate::Set:
    return nvshmem::kSignalSet;
  case SignalUpdate::Add:
    return nvshmem::kSignalAdd;
  }
  llvm_unreachable("a signal update without a number");
}

int64_t nvshmemValue(Cmp cmp) {
  switch (cmp) {
  case Cmp::Eq:
    return nvshmem::kCmpEq;
  case Cmp::Ne:
    return nvshmem::kCmpNe;
  case Cmp::Gt:
    return nvshmem::kCmpGt;
  case Cmp::Ge:
    return nvshmem::kCmpGe;
  case Cmp::Lt:
    return nvshmem::kCmpLt;
  case Cmp::Le:
    return nvshmem::kCmpLe;
  }
  llvm_unreachable("a comparison without a number");
}

} // namespace

int64_t shmem::libraryValue(Operation *op, StringRef name, Transport transport) {
  Attribute attribute = op->getAttr(name);
  if (transport != Transport::Nvshmem)
    return cast<IntegerAttr>(attribute).getInt(); // our own library takes the dialect's numbers
  // By name: to MLIR, attributes of all enums are i32 and differ in their range only.
  if (name == "cmp")
    return nvshmemValue(cast<CmpAttr>(attribute).getValue());
  return nvshmemValue(cast<SignalUpdateAttr>(attribute).getValue());
}
