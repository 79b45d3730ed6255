//===- OpBuilders.cpp - Building shmem ops from Python ----------------------===//
//
// Triton hands a plugin op a list of values. Ours is
//
//   [a slot per result..., the op's operands..., a constant per attribute...]
//
// 3.7's binding returns nothing to Python, so Python passes a slot for a result:
// an op that is the identity in its first operand, which is replaced by the
// result here (`x | 0`, or a cast to its own type). The other side of this convention is build_plugin_op in
// triton_dist/triton_api. Since 3.8 the binding puts a null value before the list, for a result that it returns; a slot
// also carries the result's type, so it serves these versions, too.
//
// What Python passes is verified here, although Triton verifies the module later: an exception is thrown while Triton
// looks at the user's line, and becomes an error that shows it. This file alone is compiled with exceptions; none
// passes through MLIR's code.
//
//===----------------------------------------------------------------------===//

#include "OpBuilders.h"

#include "Shmem/Shmem.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"

#include <stdexcept>

using namespace mlir;
using namespace triton_dist::shmem;

namespace {

/// The builder positioned before the slots, which Python creates last, so that
/// operands dominate the op and the op dominates its uses.
class SlotInsertion {
public:
  SlotInsertion(TritonOpBuilder &triton, ArrayRef<Value> slots)
      : builder(triton.getBuilder()), location(triton.getLastLoc()), slots(slots), guard(builder) {
    if (!slots.empty())
      builder.setInsertionPoint(slots.front().getDefiningOp());
  }

  void fill(ValueRange results) {
    for (auto [slot, result] : llvm::zip_equal(slots, results))
      slot.getDefiningOp()->setOperand(0, result);
  }

  OpBuilder &builder;
  Location location;

private:
  ArrayRef<Value> slots;
  OpBuilder::InsertionGuard guard;
};

/// Not `matchPattern(value, m_ConstantInt(…))`: that asks for a trait, whose TypeID comes from the compiler's spelling
/// of its name, and libtriton may be built with another compiler than we are. Ops, dialects and interfaces have ids
/// proper.
int32_t constantOf(Value value) {
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  auto number = constant ? dyn_cast<IntegerAttr>(constant.getValue()) : IntegerAttr();
  if (!number || !number.getType().isInteger(32))
    throw std::invalid_argument("an attribute of a shmem op was not passed as a constant i32");
  return static_cast<int32_t>(number.getInt());
}

/// Throws what MLIR says against something, if `check` fails.
void orThrow(MLIRContext *context, llvm::function_ref<LogicalResult()> check) {
  std::string message;
  LogicalResult result = failure();
  {
    ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) { message += diagnostic.str(); });
    result = check();
  }
  if (failed(result))
    throw std::invalid_argument(message);
}

/// The op of `state`, verified. Numbers that name no case of an enum are found before there is an op: in it they would
/// be missing.
Operation *createVerified(OpBuilder &builder, OperationState &state) {
  orThrow(builder.getContext(), [&] {
    return state.name.verifyInherentAttrs(
        state.attributes, [&] { return mlir::emitError(state.location) << "'" << state.name << "' op "; });
  });
  Operation *op = builder.create(state);
  orThrow(builder.getContext(), [&] { return mlir::verify(op); });
  return op;
}

/// A wait stands in an `if` that Triton's pipeliner can predicate; see shmem.always.
template <typename Op> constexpr bool isWait() {
  if constexpr (Op::template hasTrait<LibraryCall::Trait>())
    return Op::isWait();
  return false;
}

constexpr int32_t kPageBytes = 4096;

template <typename Op> ArrayRef<StringRef> attributesOf() {
  if constexpr (Op::template hasTrait<LibraryCall::Trait>())
    return Op::getAttributesInOrder();
  return {};
}

template <typename Op> void buildOp(TritonOpBuilder &triton, std::vector<Value> &arguments) {
  constexpr bool hasResult = Op::template hasTrait<OpTrait::OneResult>();
  ArrayRef<StringRef> attributes = attributesOf<Op>();
  ArrayRef<Value> given = arguments;
  if (!given.empty() && !given.front())
    given = given.drop_front();
  if (given.size() < hasResult + attributes.size())
    throw std::invalid_argument(("too few arguments for " + Op::getOperationName()).str());
  ArrayRef<Value> slots = given.take_front(hasResult ? 1 : 0);
  ArrayRef<Value> operands = given.drop_front(slots.size()).drop_back(attributes.size());
  ArrayRef<Value> constants = given.take_back(attributes.size());

  SlotInsertion at(triton, slots);
  OperationState state(at.location, Op::getOperationName());
  state.addTypes(ValueRange(slots).getTypes());
  state.addOperands(operands);
  for (auto [name, constant] : llvm::zip_equal(attributes, constants))
    state.addAttribute(name, at.builder.getI32IntegerAttr(constantOf(constant)));
  if constexpr (Op::isPageMultiple()) // for Triton's axis analysis: a pointer moved by it keeps its alignment
    state.addAttribute("tt.divisibility", at.builder.getI32TensorAttr(kPageBytes));

  if constexpr (isWait<Op>()) {
    Value always = AlwaysOp::create(at.builder, at.location, at.builder.getI1Type());
    auto branch = scf::IfOp::create(at.builder, at.location, state.types, always, /*withElseRegion=*/true);
    at.fill(branch.getResults());
    at.builder.setInsertionPointToStart(branch.thenBlock());
    Operation *wait = createVerified(at.builder, state);
    scf::YieldOp::create(at.builder, at.location, wait->getResults());
    at.builder.setInsertionPointToStart(branch.elseBlock());
    Value never = arith::ConstantIntOp::create(at.builder, at.location, state.types.front(), 0);
    scf::YieldOp::create(at.builder, at.location, never);
  } else {
    at.fill(createVerified(at.builder, state)->getResults());
  }
}

/// `shmem.putmem` is `shmem_putmem` in Python.
template <typename Op> const char *builderName() {
  static const std::string name = ("shmem_" + Op::getOperationName().drop_front(sizeof("shmem.") - 1)).str();
  return name.c_str();
}

template <typename... Ops> MutableArrayRef<triton_dist::plugin::OpInfo> describe() {
  static triton_dist::plugin::OpInfo infos[] = {{builderName<Ops>(), buildOp<Ops>}...};
  return infos;
}

} // namespace

llvm::MutableArrayRef<triton_dist::plugin::OpInfo> triton_dist::plugin::getOpBuilders() {
  return describe<
#define GET_OP_LIST
#include "Shmem/ShmemOps.cpp.inc"
      >();
}
