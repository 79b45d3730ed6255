//===- Alignment.cpp - Which copies are of whole vectors --------------------===//
//
// Begins at what Triton knows of a kernel's arguments and what tl.multiple_of says
// (`tt.divisibility`), and follows addresses and sizes from there. Triton's own
// analysis is no part of its wheel.
//
//===----------------------------------------------------------------------===//

#include "Alignment.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace triton_dist;
using namespace triton_dist::shmem;

static constexpr int64_t kVectorBytes = 16;
static constexpr StringLiteral kDivisibility = "tt.divisibility";
static constexpr StringLiteral kWholeVectors = "shmem.aligned";
static constexpr StringLiteral kAddresses = "shmem.aligned_addresses";

namespace {

/// The largest power of two up to 16 that divides `number`.
int64_t powerIn(int64_t number) { return (number | kVectorBytes) & -(number | kVectorBytes); }

/// What `tt.divisibility` says, which is a number for arguments and a tensor of numbers for ops.
int64_t powerIn(Attribute divisibility) {
  if (auto number = dyn_cast_or_null<IntegerAttr>(divisibility))
    return powerIn(number.getInt());
  if (auto numbers = dyn_cast_or_null<DenseIntElementsAttr>(divisibility); numbers && numbers.getNumElements() == 1)
    return powerIn((*numbers.value_begin<APInt>()).getSExtValue());
  return 1;
}

/// The bytes from one element to the next behind a pointer of Triton's.
int64_t bytesOfElement(Type pointer) {
  unsigned bits = 0;
  pointer.walkImmediateSubElements(
      [](Attribute) {}, [&](Type element) { bits = element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 0; });
  return std::max(1u, bits / 8); // an i1 takes a byte, and for what is no number one is a safe answer
}

/// Largest powers of two up to 16 that are known to divide numbers and addresses.
class KnownPowers {
public:
  int64_t in(Value value) {
    auto [at, isNew] = known.try_emplace(value, 1);
    return isNew ? known[value] = find(value) : at->second;
  }

private:
  int64_t find(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
      if (!function || !argument.getOwner()->isEntryBlock())
        return 1; // carried by a loop
      return powerIn(function.getArgAttr(argument.getArgNumber(), kDivisibility));
    }
    Operation *op = value.getDefiningOp();
    auto of = [&](unsigned operand) { return in(op->getOperand(operand)); };
    int64_t computed = llvm::TypeSwitch<Operation *, int64_t>(op)
                           .Case([](arith::ConstantOp constant) { return powerIn(constant.getValue()); })
                           .Case<arith::AddIOp, arith::SubIOp>([&](auto) { return std::min(of(0), of(1)); })
                           .Case([&](arith::MulIOp) { return std::min(of(0) * of(1), kVectorBytes); })
                           .Case([&](arith::SelectOp) { return std::min(of(1), of(2)); })
                           .Case<arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp>([&](auto) { return of(0); })
                           .Default([&](Operation *) -> int64_t {
                             StringRef name = op->getName().getStringRef(); // Triton's headers are no part of its wheel
                             if (name == "tt.bitcast")
                               return of(0);
                             if (name == "tt.addptr")
                               return std::min(of(0), of(1) * bytesOfElement(value.getType()));
                             return 1;
                           });
    return std::max(computed, powerIn(op->getAttr(kDivisibility)));
  }

  llvm::DenseMap<Value, int64_t> known;
};

} // namespace

Alignment shmem::findAlignment(LibraryCall op) {
  SmallVector<Value> copied = op.getCopied();
  if (copied.empty())
    return Alignment::Unknown;
  KnownPowers powers;
  auto isAligned = [&](Value value) { return powers.in(value) == kVectorBytes; };
  Value nbytes = copied.pop_back_val();
  if (!llvm::all_of(copied, isAligned))
    return Alignment::Unknown;
  return isAligned(nbytes) ? Alignment::WholeVectors : Alignment::Addresses;
}

void shmem::markAlignment(LibraryCall op, Alignment alignment) {
  if (alignment != Alignment::Unknown)
    op->setAttr(alignment == Alignment::WholeVectors ? kWholeVectors : kAddresses, UnitAttr::get(op->getContext()));
}

Alignment shmem::markedAlignment(LibraryCall op) {
  if (op->hasAttr(kWholeVectors))
    return Alignment::WholeVectors;
  return op->hasAttr(kAddresses) ? Alignment::Addresses : Alignment::Unknown;
}
