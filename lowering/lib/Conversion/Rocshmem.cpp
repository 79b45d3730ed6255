//===- Rocshmem.cpp - Calls of ROCSHMEM's device functions ------------------===//
//
// Where they differ from those of the other libraries, whose C signature is that
// of the op:
//
// - they are C++ (see Prototype.h), and exist for the types that the table lists;
// - collectives take a context, a struct of two pointers by value, which the ABI
//   passes as two arguments: we pass the default one;
// - teams are pointers. The only one that device code can name is the world, so
//   an op's team must be the constant TEAM_WORLD;
// - counts of collectives are C ints;
// - there is no signal_op and no signal_wait_until: the table names an atomic and
//   a wait on a uint64_t instead.
//
//===----------------------------------------------------------------------===//

#include "Rocshmem.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace triton_dist::shmem;

namespace {

constexpr StringLiteral kDefaultContext = "ROCSHMEM_CTX_DEFAULT";
constexpr StringLiteral kWorldTeam = "ROCSHMEM_TEAM_WORLD";

// Address spaces of AMD GPUs.
constexpr unsigned kGlobal = 1;
constexpr unsigned kConstant = 4;

//===----------------------------------------------------------------------===//
// What the table says of an op
//===----------------------------------------------------------------------===//

void replaceAll(std::string &text, StringRef placeholder, StringRef value) {
  for (size_t at = 0; (at = text.find(placeholder.str(), at)) != std::string::npos; at += value.size())
    text.replace(at, placeholder.size(), value.str());
}

/// ROCSHMEM's name of `op`'s element type, among those that the routine exists for.
StringRef typeName(StringRef types, ElementType type) {
  for (StringRef name : llvm::split(types, ' '))
    if (std::optional<CType> known = CType::parse(name); known && known->element == type)
      return name;
  return {};
}

StringRef scopeSuffix(ThreadScope scope) {
  switch (scope) {
  case ThreadScope::Thread:
    return "";
  case ThreadScope::Warp:
    return "_wave";
  case ThreadScope::Block:
    return "_wg";
  }
  llvm_unreachable("a scope without a suffix");
}

/// A declaration for `op`, or why there is none.
struct Entry {
  std::string declaration;
  std::string mistake;
};

Entry lookUp(LibraryCall op, Transport transport) {
  auto [declaration, types] = op.getRoutine(transport).split(" for ");
  Entry entry{declaration.str(), ""};
  auto fail = [&](const llvm::Twine &mistake) { return Entry{"", mistake.str()}; };
  if (declaration.empty())
    return fail("is not available");

  if (auto type = op->getAttrOfType<ElementTypeAttr>("type"); type && declaration.contains("$type")) {
    StringRef name = typeName(types, type.getValue());
    if (name.empty())
      return fail("is not available for " + stringifyElementType(type.getValue()));
    replaceAll(entry.declaration, "$type", name);
    if (auto reduction = op->getAttrOfType<ReductionAttr>("op"))
      replaceAll(entry.declaration, "$op", stringifyReduction(reduction.getValue()));
  }
  if (auto update = op->getAttrOfType<SignalUpdateAttr>("sig_op"))
    replaceAll(entry.declaration, "$sig_op", stringifySignalUpdate(update.getValue()));

  if (auto scope = op->getAttrOfType<ThreadScopeAttr>("scope")) {
    bool isForBlockOnly = !declaration.contains("$scope");
    if (isForBlockOnly && scope.getValue() != ThreadScope::Block)
      return fail("is available for scope block only");
    replaceAll(entry.declaration, "$scope", scopeSuffix(scope.getValue()));
  }
  return entry;
}

/// The operands of `op` that are teams, by the parameters that take them.
SmallVector<Value> teamsOf(LibraryCall op, const Prototype &prototype) {
  SmallVector<Value> teams;
  unsigned operand = 0;
  for (const CType &parameter : prototype.parameters) {
    if (parameter.kind == CType::Kind::Context)
      continue;
    if (parameter.kind == CType::Kind::Team)
      teams.push_back(op->getOperand(operand));
    if (++operand == op->getNumOperands())
      break;
  }
  return teams;
}

/// Of whatever dialect: this runs before and after the conversion to LLVM.
bool isConstantZero(Value value) {
  Operation *constant = value.getDefiningOp();
  auto number = constant ? constant->getAttrOfType<IntegerAttr>("value") : IntegerAttr();
  return number && number.getValue().isZero();
}

//===----------------------------------------------------------------------===//
// Emitting the call
//===----------------------------------------------------------------------===//

Type convert(MLIRContext *context, const CType &type) {
  if (type.isPointer || type.kind == CType::Kind::Team)
    return LLVM::LLVMPointerType::get(context);
  switch (type.kind) {
  case CType::Kind::Void:
    return LLVM::LLVMVoidType::get(context);
  case CType::Kind::Integer:
    return IntegerType::get(context, type.bits);
  case CType::Kind::Float:
    return type.bits == 32 ? Type(Float32Type::get(context)) : Type(Float64Type::get(context));
  case CType::Kind::Context:
  case CType::Kind::Team:
    break;
  }
  llvm_unreachable("a type that no value has");
}

/// The address of one of the library's variables.
Value addressOf(OpBuilder &builder, ModuleOp module, Location loc, StringRef name, Type type, unsigned addressSpace) {
  if (!module.lookupSymbol(name)) {
    OpBuilder global = OpBuilder::atBlockBegin(module.getBody());
    LLVM::GlobalOp::create(global, module.getLoc(), type, /*isConstant=*/false, LLVM::Linkage::External, name,
                           Attribute(), /*alignment=*/8, addressSpace);
  }
  auto pointer = LLVM::LLVMPointerType::get(module.getContext(), addressSpace);
  return LLVM::AddressOfOp::create(builder, loc, pointer, name);
}

/// Small integers travel in wider registers; caller and callee must agree on how they are extended.
DictionaryAttr abiAttributes(MLIRContext *context, const CType &type) {
  SmallVector<NamedAttribute> attributes;
  if (type.kind == CType::Kind::Integer && !type.isPointer && type.bits < 32)
    attributes.emplace_back(StringAttr::get(context, type.isSigned ? LLVM::LLVMDialect::getSExtAttrName()
                                                                   : LLVM::LLVMDialect::getZExtAttrName()),
                            UnitAttr::get(context));
  return DictionaryAttr::get(context, attributes);
}

/// A call under construction.
class CallBuilder {
public:
  CallBuilder(OpBuilder &builder, LibraryCall op) : builder(builder), op(op), module(op->getParentOfType<ModuleOp>()) {}

  void add(const CType &parameter, Value argument) {
    if (parameter.kind == CType::Kind::Integer && !parameter.isPointer && argument.getType().isInteger(64) &&
        parameter.bits < 64)
      argument = LLVM::TruncOp::create(builder, op.getLoc(), builder.getIntegerType(parameter.bits), argument);
    arguments.push_back(argument);
    attributes.push_back(abiAttributes(builder.getContext(), parameter));
  }

  void addWorldTeam(const CType &parameter) {
    Type pointer = convert(builder.getContext(), parameter);
    Value variable = addressOf(builder, module, op.getLoc(), kWorldTeam, pointer, kConstant);
    add(parameter, LLVM::LoadOp::create(builder, op.getLoc(), pointer, variable));
  }

  void addDefaultContext(const CType &parameter) {
    auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
    auto type = LLVM::LLVMStructType::getLiteral(builder.getContext(), {pointer, pointer});
    Value variable = addressOf(builder, module, op.getLoc(), kDefaultContext, type, kGlobal);
    Value context = LLVM::LoadOp::create(builder, op.getLoc(), type, variable);
    for (int64_t field : {0, 1})
      add(parameter, LLVM::ExtractValueOp::create(builder, op.getLoc(), context, field));
  }

  Value emit(const Prototype &prototype) {
    auto called = LLVM::CallOp::create(builder, op.getLoc(), declare(prototype), arguments);
    called.setArgAttrsAttr(builder.getArrayAttr(attributes));
    return called.getNumResults() ? called.getResult() : Value();
  }

private:
  LLVM::LLVMFuncOp declare(const Prototype &prototype) {
    std::string symbol = prototype.symbol();
    if (auto declared = module.lookupSymbol<LLVM::LLVMFuncOp>(symbol))
      return declared;
    OpBuilder declaration = OpBuilder::atBlockBegin(module.getBody());
    auto type = LLVM::LLVMFunctionType::get(convert(builder.getContext(), prototype.result),
                                            llvm::to_vector(ValueRange(arguments).getTypes()));
    auto function = LLVM::LLVMFuncOp::create(declaration, module.getLoc(), symbol, type);
    function.setConvergent(true); // routines for more than a thread hold barriers
    function.setArgAttrsAttr(builder.getArrayAttr(attributes));
    return function;
  }

  OpBuilder &builder;
  LibraryCall op;
  ModuleOp module;
  SmallVector<Value> arguments;
  SmallVector<Attribute> attributes;
};

} // namespace

std::string rocshmem::whyUnavailable(LibraryCall op, Transport transport) {
  Entry entry = lookUp(op, transport);
  if (!entry.mistake.empty())
    return entry.mistake;
  SmallVector<Value> teams = teamsOf(op, Prototype::parse(entry.declaration));
  if (teams.empty())
    return {};
  if (transport == Transport::Rocshmem6)
    return "is not available: device code cannot name a team";
  if (!llvm::all_of(teams, isConstantZero))
    return "takes no team but the constant TEAM_WORLD";
  return {};
}

Prototype rocshmem::prototypeOf(LibraryCall op, Transport transport) {
  return Prototype::parse(lookUp(op, transport).declaration);
}

SmallVector<std::string> rocshmem::variablesOf(LibraryCall op, Transport transport) {
  SmallVector<std::string> variables;
  for (const CType &parameter : prototypeOf(op, transport).parameters) {
    if (parameter.kind == CType::Kind::Context)
      variables.push_back(kDefaultContext.str());
    if (parameter.kind == CType::Kind::Team)
      variables.push_back(kWorldTeam.str());
  }
  return variables;
}

Value rocshmem::call(OpBuilder &builder, LibraryCall op, Transport transport, ArrayRef<Value> arguments) {
  Prototype prototype = prototypeOf(op, transport);
  CallBuilder routine(builder, op);
  auto *argument = arguments.begin();
  auto *attribute = op.getCallSignature().begin();
  for (const CType &parameter : prototype.parameters) {
    if (parameter.kind == CType::Kind::Context) {
      routine.addDefaultContext(parameter);
      continue;
    }
    if (*attribute == "sig_op" && op.getRoutine(transport).contains("$sig_op"))
      ++argument, ++attribute; // in the name already
    if (parameter.kind == CType::Kind::Team)
      routine.addWorldTeam(parameter);
    else
      routine.add(parameter, *argument);
    ++argument, ++attribute;
  }
  Value result = routine.emit(prototype);
  bool isSeenValueMissing = !result && op->getNumResults() && op.getReturns(transport) == Returns::Result;
  if (!isSeenValueMissing)
    return result;
  // A wait that does not say what it saw: look at the variable again.
  Type type = op->getResult(0).getType();
  return LLVM::LoadOp::create(builder, op.getLoc(), type, arguments.front(), /*alignment=*/8, /*isVolatile=*/false,
                              /*isNonTemporal=*/false, /*isInvariant=*/false, /*isInvariantGroup=*/false,
                              LLVM::AtomicOrdering::monotonic);
}
