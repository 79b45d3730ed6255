//===- WaitSites.cpp - Numbers and descriptions of a kernel's waits ----------===//

#include "WaitSites.h"

#include "Text.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace triton_dist::shmem;

static constexpr StringLiteral kSite = "shmem.site";

void triton_dist::shmem::markSite(LibraryCall op, int32_t number) {
  op->setAttr(kSite, Builder(op->getContext()).getI32IntegerAttr(number));
}

int32_t triton_dist::shmem::siteOf(LibraryCall op) {
  auto number = op->getAttrOfType<IntegerAttr>(kSite);
  return number ? number.getInt() : 0;
}

/// A collective waits for counters of its barriers, not for elements.
static std::string comparedType(LibraryCall op) {
  auto type = op->getAttrOfType<ElementTypeAttr>("type");
  return (op.isCollective() || !type ? op.getComparedWord() : stringifyElementType(type.getValue())).str();
}

static void appendLines(Location loc, std::string &lines) {
  if (auto call = dyn_cast<CallSiteLoc>(loc)) {
    appendLines(call.getCallee(), lines);
    appendLines(call.getCaller(), lines);
  } else if (auto place = loc->findInstanceOf<FileLineColLoc>()) {
    lines += textOf("\t", place.getFilename().strref(), ":", place.getLine());
  }
}

std::string triton_dist::shmem::describeSite(LibraryCall op) {
  std::string text = op->getName().stripDialect().str() + "\t" + comparedType(op);
  appendLines(op->getLoc(), text);
  return text;
}
