//===- Routines.cpp - How each device library names and numbers things ------===//

#include "Routines.h"

#include "Alignment.h"
#include "Rocshmem.h"
#include "Shmem/Nvshmem.h"
#include "Shmem/Rocshmem.h"
#include "device/Enums.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace triton_dist;
using namespace triton_dist::shmem;

std::optional<Transport> shmem::parseTransport(StringRef name) {
  return llvm::StringSwitch<std::optional<Transport>>(name)
      .Case("nvshmem", Transport::Nvshmem)
      .Case("rocshmem", Transport::Rocshmem)
      .Case("rocshmem-6", Transport::Rocshmem6)
      .Case("p2p", Transport::P2p)
      .Default(std::nullopt);
}

StringRef shmem::stringify(Transport transport) {
  switch (transport) {
  case Transport::Nvshmem:
    return "nvshmem";
  case Transport::Rocshmem:
    return "rocshmem";
  case Transport::Rocshmem6:
    return "rocshmem-6";
  case Transport::P2p:
    return "p2p";
  }
  llvm_unreachable("a transport without a name");
}

namespace {

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

/// Prefix of the names of our own library's routines.
constexpr StringLiteral kOurPrefix = "triton_dist_";

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

/// The name in the routine that `op` calls.
StringRef typeName(LibraryCall op, ElementType type, Transport transport) {
  if (transport == Transport::P2p)
    return stringifyElementType(type);
  for (const TypeName &other : op.getNvshmemTypeNames())
    if (other.type == type)
      return other.name;
  return nvshmemTypeName(type);
}

/// The suffix that says which threads take part.
StringRef scopeSuffix(ThreadScope scope) {
  switch (scope) {
  case ThreadScope::Thread:
    return "";
  case ThreadScope::Warp:
    return "_warp";
  case ThreadScope::Block:
    return "_block";
  }
  llvm_unreachable("a scope without a suffix");
}

StringRef alignmentSuffix(Alignment alignment) {
  switch (alignment) {
  case Alignment::Unknown:
    return "";
  case Alignment::Addresses:
    return "_between_aligned";
  case Alignment::WholeVectors:
    return "_aligned";
  }
  llvm_unreachable("an alignment without a suffix");
}

void replace(std::string &text, StringRef placeholder, StringRef value) {
  if (size_t at = text.find(placeholder.str()); at != std::string::npos)
    text.replace(at, placeholder.size(), value.str());
}

} // namespace

bool shmem::isRocshmem(Transport transport) {
  return transport == Transport::Rocshmem || transport == Transport::Rocshmem6;
}

Transport shmem::libraryOf(LibraryCall op, Transport transport) {
  return op.getRoutine(transport).starts_with(kOurPrefix) ? Transport::P2p : transport;
}

std::string shmem::whyUnavailable(LibraryCall op, Transport transport) {
  if (isRocshmem(libraryOf(op, transport)))
    return rocshmem::whyUnavailable(op, transport);
  return op.getRoutine(transport).empty() ? "is not available" : "";
}

static std::string spelled(LibraryCall op, StringRef pattern, Transport transport) {
  std::string name = pattern.str();
  if (auto type = op->getAttrOfType<ElementTypeAttr>("type"))
    replace(name, "$type", typeName(op, type.getValue(), transport));
  if (auto reduction = op->getAttrOfType<ReductionAttr>("op"))
    replace(name, "$op", stringifyReduction(reduction.getValue()));
  replace(name, "$aligned", alignmentSuffix(markedAlignment(op)));
  if (auto scope = op->getAttrOfType<ThreadScopeAttr>("scope")) {
    replace(name, "$scope", scopeSuffix(scope.getValue()));
    // NVSHMEM's routines for more than a thread extend OpenSHMEM, and say so.
    if (transport == Transport::Nvshmem && scope.getValue() != ThreadScope::Thread)
      replace(name, "nvshmem_", "nvshmemx_");
  }
  return name;
}

std::string shmem::routineOf(LibraryCall op, Transport transport) {
  Transport library = libraryOf(op, transport);
  if (isRocshmem(library))
    return rocshmem::prototypeOf(op, transport).symbol();
  return spelled(op, op.getRoutine(transport), library);
}

std::string shmem::testAfter(LibraryCall op, Transport transport) {
  return transport == Transport::Nvshmem ? spelled(op, op.getNvshmemTest(), transport) : "";
}

bool shmem::takesBits(LibraryCall op, Transport transport) {
  auto type = op->getAttrOfType<ElementTypeAttr>("type");
  if (transport != Transport::Nvshmem || !type || !isFloat(type.getValue()))
    return false;
  return llvm::any_of(op.getNvshmemTypeNames(), [&](const TypeName &other) { return other.type == type.getValue(); });
}

unsigned shmem::elementBytes(ElementType type) {
  switch (type) {
  case ElementType::I8:
  case ElementType::U8:
    return 1;
  case ElementType::I16:
  case ElementType::U16:
  case ElementType::F16:
  case ElementType::BF16:
    return 2;
  case ElementType::I32:
  case ElementType::U32:
  case ElementType::F32:
    return 4;
  case ElementType::I64:
  case ElementType::U64:
  case ElementType::F64:
    return 8;
  }
  llvm_unreachable("an element type without a size");
}

SmallVector<std::string> shmem::variablesOf(LibraryCall op, Transport transport) {
  return isRocshmem(libraryOf(op, transport)) ? rocshmem::variablesOf(op, transport) : SmallVector<std::string>();
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

namespace {

/// A library's numbers, in the order of the dialect's enums.
struct Numbers {
  int signalUpdates[getMaxEnumValForSignalUpdate() + 1];
  int comparisons[getMaxEnumValForCmp() + 1];
};

constexpr Numbers kNvshmem = {
    {triton_dist::nvshmem::kSignalSet, triton_dist::nvshmem::kSignalAdd},
    {triton_dist::nvshmem::kCmpEq, triton_dist::nvshmem::kCmpNe, triton_dist::nvshmem::kCmpGt,
     triton_dist::nvshmem::kCmpGe, triton_dist::nvshmem::kCmpLt, triton_dist::nvshmem::kCmpLe},
};
constexpr Numbers kRocshmem = {
    {triton_dist::rocshmem::kSignalSet, triton_dist::rocshmem::kSignalAdd},
    {triton_dist::rocshmem::kCmpEq, triton_dist::rocshmem::kCmpNe, triton_dist::rocshmem::kCmpGt,
     triton_dist::rocshmem::kCmpGe, triton_dist::rocshmem::kCmpLt, triton_dist::rocshmem::kCmpLe},
};

/// Our own library takes the dialect's numbers.
template <typename Enum, typename Device> constexpr bool equal(Enum value, Device device) {
  return static_cast<int64_t>(value) == static_cast<int64_t>(device);
}
static_assert(equal(SignalUpdate::Set, device::kSet) && equal(SignalUpdate::Add, device::kAdd));
static_assert(equal(Cmp::Eq, device::kEq) && equal(Cmp::Ne, device::kNe) && equal(Cmp::Gt, device::kGt) &&
              equal(Cmp::Ge, device::kGe) && equal(Cmp::Lt, device::kLt) && equal(Cmp::Le, device::kLe));

} // namespace

int64_t shmem::libraryValue(Operation *op, StringRef name, Transport transport) {
  int64_t value = cast<IntegerAttr>(op->getAttr(name)).getInt();
  if (transport == Transport::P2p)
    return value;
  const Numbers &numbers = isRocshmem(transport) ? kRocshmem : kNvshmem;
  // By name: to MLIR, attributes of all enums are i32 and differ in their range only.
  return name == "cmp" ? numbers.comparisons[value] : numbers.signalUpdates[value];
}
