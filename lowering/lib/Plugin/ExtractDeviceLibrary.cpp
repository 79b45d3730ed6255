//===- ExtractDeviceLibrary.cpp - The part of NVSHMEM that ops call ---------===//
//
// NVSHMEM's device library has tens of megabytes of bitcode, and linking it
// dominates the compilation of a small kernel. What the op table can call is a
// few kilobytes: link just that, lazily, into an empty module. Called from
// Python through ctypes, once per library version.
//
//===----------------------------------------------------------------------===//

#include "Shmem/Shmem.h"

#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

using namespace triton_dist::shmem;

namespace {

template <typename Op> void addCallee(llvm::SmallVectorImpl<llvm::StringRef> &callees) {
  if constexpr (Op::template hasTrait<LibraryCall::Trait>())
    callees.push_back(Op::getNvshmemCallee());
}

template <typename... Ops> llvm::SmallVector<llvm::StringRef> collectCallees() {
  llvm::SmallVector<llvm::StringRef> callees;
  (addCallee<Ops>(callees), ...);
  return callees;
}

/// Declares in `extract` what it needs of `library`; the name of a routine that the library lacks, or nothing.
llvm::StringRef declareCallees(llvm::Module &extract, const llvm::Module &library) {
  for (llvm::StringRef callee : collectCallees<
#define GET_OP_LIST
#include "Shmem/ShmemOps.cpp.inc"
           >()) {
    const llvm::Function *function = library.getFunction(callee);
    if (!function)
      return callee;
    extract.getOrInsertFunction(callee, function->getFunctionType(), function->getAttributes());
  }
  return {};
}

} // namespace

/// Writes the part of the bitcode file `input` that ops can call to `output`.
/// Returns 0, or 1 with a message in `error` (at most `errorBytes` long).
extern "C" __attribute__((visibility("default"))) int
tritonDistExtractDeviceLibrary(const char *input, const char *output, char *error, size_t errorBytes) {
  auto fail = [&](const llvm::Twine &message) {
    snprintf(error, errorBytes, "%s", message.str().c_str());
    return 1;
  };
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> library = llvm::getLazyIRFileModule(input, diagnostic, context);
  if (!library)
    return fail(llvm::Twine(input) + ": " + diagnostic.getMessage());

  llvm::Module extract("triton_dist_device_library", context);
  extract.setDataLayout(library->getDataLayout());
  extract.setTargetTriple(library->getTargetTriple());
  if (llvm::StringRef missing = declareCallees(extract, *library); !missing.empty())
    return fail(llvm::Twine(input) + " has no routine " + missing);
  if (llvm::Linker::linkModules(extract, std::move(library), llvm::Linker::LinkOnlyNeeded))
    return fail(llvm::Twine(input) + " could not be linked");

  std::error_code code;
  llvm::raw_fd_ostream stream(output, code);
  if (code)
    return fail(llvm::Twine(output) + ": " + code.message());
  llvm::WriteBitcodeToFile(extract, stream);
  stream.flush();
  return stream.has_error() ? fail(llvm::Twine(output) + ": " + stream.error().message()) : 0;
}
