//===- PlanShmemCalls.cpp - Which routines a module calls, or why it cannot -===//

#include "Alignment.h"
#include "Routines.h"
#include "Text.h"
#include "WaitSites.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace triton_dist::shmem {
#define GEN_PASS_DEF_PLANSHMEMCALLS
#include "Shmem/ShmemPasses.h.inc"
} // namespace triton_dist::shmem

using namespace triton_dist::shmem;

namespace {

/// Triton's headers are no part of its wheel, so its ops are known by name.
bool isPartitioned(Operation *op) { return op->getName().getStringRef().starts_with("ttg.warp_specialize"); }

bool isInWarpSpecializedRegion(Operation *op) {
  for (Operation *parent = op->getParentOp(); parent; parent = parent->getParentOp())
    if (isPartitioned(parent))
      return true;
  return false;
}

llvm::SmallVector<Operation *> partitionsOf(ModuleOp module) {
  llvm::SmallVector<Operation *> partitions;
  module.walk([&](Operation *op) {
    if (isPartitioned(op))
      partitions.push_back(op);
  });
  return partitions;
}

/// The functions of `module` that `callers` call, themselves or by way of others. Those that are inlined are gone.
llvm::SmallPtrSet<Operation *, 4> functionsCalledBy(llvm::SmallVector<Operation *> callers, ModuleOp module) {
  llvm::SmallPtrSet<Operation *, 4> functions;
  while (!callers.empty())
    callers.pop_back_val()->walk([&](Operation *op) {
      auto callee = op->getAttrOfType<FlatSymbolRefAttr>("callee");
      Operation *function = callee ? SymbolTable::lookupSymbolIn(module, callee) : nullptr;
      if (function && functions.insert(function).second)
        callers.push_back(function);
    });
  return functions;
}

bool isInOneOf(const llvm::SmallPtrSet<Operation *, 4> &functions, Operation *op) {
  return llvm::any_of(functions, [&](Operation *function) { return function->isProperAncestor(op); });
}

/// What is wrong with `op`, which `isCalled` by a partition or not; empty when nothing is.
std::string findMistake(LibraryCall op, Transport transport, int64_t numCtas, bool hasPartitions, bool isCalled) {
  StringRef name = op->getName().getStringRef();
  if (std::string why = whyUnavailable(op, transport); !why.empty())
    return textOf(name, " ", why, " on transport ", stringify(transport));
  if (op.getCaller() == Caller::EveryThread)
    return {};
  if (isInWarpSpecializedRegion(op))
    return textOf(name, " stands in a warp-specialised region: it needs every warp of the program, and a partition has "
                        "only some of them; move it out of the loop, or drop warp_specialize=True");
  if (isCalled)
    return textOf(name,
                  " stands in a noinline function that a warp-specialised region calls: it needs every warp of the "
                  "program, and a partition has only some of them; call the function outside");
  if (hasPartitions && transport != Transport::P2p && op.getCaller() == Caller::Block)
    return textOf(name, " in a warp-specialised kernel: ", stringify(transport),
                  "'s routine would wait for the partitions' warps, too; give it scope=\"warp\" or \"thread\", or use "
                  "transport p2p");
  if (numCtas > 1)
    return textOf(name, " in a kernel with num_ctas=", numCtas,
                  ": it would act once per CTA instead of once per program; use num_ctas=1");
  return {};
}

std::optional<int64_t> constantOf(Value value) {
  auto constant = value ? value.getDefiningOp<arith::ConstantOp>() : nullptr;
  auto number = constant ? dyn_cast<IntegerAttr>(constant.getValue()) : IntegerAttr();
  return number ? std::optional(number.getInt()) : std::nullopt;
}

/// What looks wrong with `op` in a world of `nPes` PEs (0: not known); empty when nothing does.
std::string findDoubt(LibraryCall op, int32_t nPes) {
  std::optional<int64_t> pe = constantOf(op.getPeOperand());
  if (nPes == 0 || !pe || (*pe >= 0 && *pe < nPes))
    return {};
  return textOf(op->getName().getStringRef(), ": pe ", *pe, " is out of range [0, ", nPes, ")");
}

/// The name of the kernel's argument that `value` is; empty when it is none.
StringRef argumentName(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || !argument.getOwner()->isEntryBlock())
    return {};
  Operation *function = argument.getOwner()->getParentOp();
  auto visibility = function->getAttrOfType<StringAttr>("sym_visibility");
  auto name = argument.getLoc()->findInstanceOf<NameLoc>();
  bool isKernel = function->getName().getStringRef() == "tt.func" && visibility && visibility == "public";
  return isKernel && name ? name.getName().strref() : StringRef();
}

/// The name of the kernel's argument that `pointer` is an offset from; empty when it may be something else. A loop that
/// carries a pointer begins with one.
StringRef argumentBehind(Value pointer) {
  while (true) {
    Operation *op = pointer.getDefiningOp();
    if (op && (op->getName().getStringRef() == "tt.addptr" || op->getName().getStringRef() == "tt.bitcast")) {
      pointer = op->getOperand(0);
      continue;
    }
    auto carried = dyn_cast<BlockArgument>(pointer);
    Operation *loop = carried ? carried.getOwner()->getParentOp() : nullptr;
    if (!loop || loop->getName().getStringRef() != "scf.for" || carried.getArgNumber() == 0)
      return argumentName(pointer);
    pointer = loop->getOperand(carried.getArgNumber() + 2); // behind the bounds and the step
  }
}

/// How many elements each PE contributes, as a number or the name of the kernel's argument; empty when neither is it.
std::string numberOfElements(Value nelems) {
  if (std::optional<int64_t> constant = constantOf(nelems))
    return std::to_string(*constant);
  if (auto extended = nelems.getDefiningOp<arith::ExtSIOp>())
    nelems = extended.getIn();
  return argumentName(nelems).str();
}

/// NVSHMEM's reducescatter keeps what all PEs send it in memory of a fixed size, and ends in a device assertion when it
/// does not fit (nvshmemi_reducescatter_allpush_threadgroup, device/coll/reducescatter.cuh): who launches `op` should
/// know how much it is. Empty where there is no such limit, or the size is not known.
std::string scratchNeeded(LibraryCall op, Transport transport) {
  Value kept = op.getScratchElements();
  if (!kept || transport != Transport::Nvshmem || constantOf(op.getTeamOperand()) != 0)
    return {};
  std::string nelems = numberOfElements(kept);
  auto type = op->getAttrOfType<ElementTypeAttr>("type").getValue();
  return nelems.empty() ? "" : textOf(nelems, "\t", elementBytes(type));
}

std::string sourceLine(Location loc) {
  if (auto place = loc->findInstanceOf<FileLineColLoc>())
    return textOf(place.getFilename().strref(), ":", place.getLine(), ":", place.getColumn());
  return "unknown line";
}

struct PlanShmemCalls : triton_dist::shmem::impl::PlanShmemCallsBase<PlanShmemCalls> {
  PlanShmemCalls(StringRef transport, int32_t nPes) : transport(transport), nPes(nPes) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::optional<Transport> chosen = parseTransport(transport);
    if (!chosen)
      return signalPassFailure();
    llvm::SmallVector<Operation *> partitions = partitionsOf(module);
    llvm::SmallPtrSet<Operation *, 4> called = functionsCalledBy(partitions, module);
    auto numCtas = module->getAttrOfType<IntegerAttr>("ttg.num-ctas");
    llvm::MapVector<StringAttr, std::string> symbols;
    std::string error, warnings, collective, scratch, waits;
    int32_t sites = 0;
    llvm::MapVector<StringRef, std::string> symmetric;
    module.walk([&](LibraryCall op) {
      std::string mistake =
          findMistake(op, *chosen, numCtas ? numCtas.getInt() : 1, !partitions.empty(), isInOneOf(called, op));
      if (!mistake.empty()) {
        error = sourceLine(op->getLoc()) + ": " + mistake;
        return WalkResult::interrupt();
      }
      if (std::string doubt = findDoubt(op, nPes); !doubt.empty())
        warnings += sourceLine(op->getLoc()) + ": " + doubt + "\n";
      std::string use = sourceLine(op->getLoc()) + ": " + op->getName().getStringRef().str();
      if (std::string needed = scratchNeeded(op, *chosen); !needed.empty())
        scratch += needed + "\t" + use + "\n";
      if (op.isCollective() && collective.empty())
        collective = use;
      for (auto [operand, name] : llvm::zip_equal(op->getOperands(), op.getSymmetricOperands()))
        if (StringRef argument = name.empty() ? StringRef() : argumentBehind(operand); !argument.empty())
          symmetric.insert({argument, use + ", " + name.str()});
      markAlignment(op, findAlignment(op));
      if (op.takesSite() && libraryOf(op, *chosen) == Transport::P2p) {
        markSite(op, ++sites);
        waits += describeSite(op) + "\n";
      }
      symbols.insert({StringAttr::get(module.getContext(), routineOf(op, *chosen)), use});
      if (std::string test = testAfter(op, *chosen); !test.empty())
        symbols.insert({StringAttr::get(module.getContext(), test), use});
      for (const std::string &variable : variablesOf(op, *chosen))
        symbols.insert({StringAttr::get(module.getContext(), variable), use});
      return WalkResult::advance();
    });

    if (!error.empty()) {
      module->setAttr("shmem.error", StringAttr::get(module.getContext(), error));
      return;
    }
    setLines("shmem.warnings", warnings);
    setLines("shmem.collective", collective);
    setLines("shmem.scratch", scratch);
    setLines("shmem.waits", waits);
    std::string lines;
    for (auto &[argument, use] : symmetric)
      lines += (argument + "\t" + use + "\n").str();
    setLines("shmem.symmetric", lines);
    lines.clear();
    for (auto &[symbol, use] : symbols)
      lines += (symbol.getValue() + "\t" + use + "\n").str();
    module->setAttr("shmem.routines", StringAttr::get(module.getContext(), lines));
  }

  void setLines(StringRef name, StringRef lines) {
    if (!lines.empty())
      getOperation()->setAttr(name, StringAttr::get(&getContext(), lines));
  }

  std::string transport;
  int32_t nPes;
};

} // namespace

std::unique_ptr<Pass> triton_dist::shmem::createPlanShmemCalls(StringRef transport, int32_t nPes) {
  return std::make_unique<PlanShmemCalls>(transport, nPes);
}
