//===- ExtractDeviceLibrary.cpp - The part of a library that a kernel calls -===//
//
// NVSHMEM's device library has tens of megabytes of bitcode, and linking it
// dominates the compilation of a small kernel. What one kernel calls is a few
// kilobytes: link just that, lazily, into an empty module. Called from Python
// through ctypes.
//
//===----------------------------------------------------------------------===//

#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace {

/// Declares in `extract` the `routines` (one per line; variables, too) of `library`; the first that it lacks, or
/// nothing.
llvm::StringRef declare(llvm::Module &extract, const llvm::Module &library, llvm::StringRef routines) {
  llvm::SmallVector<llvm::StringRef> names;
  routines.split(names, '\n', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (llvm::StringRef name : names) {
    if (const llvm::Function *routine = library.getFunction(name))
      extract.getOrInsertFunction(name, routine->getFunctionType(), routine->getAttributes());
    else if (const llvm::GlobalVariable *variable = library.getGlobalVariable(name))
      new llvm::GlobalVariable(extract, variable->getValueType(), variable->isConstant(),
                               llvm::GlobalValue::ExternalLinkage, /*Initializer=*/nullptr, name,
                               /*InsertBefore=*/nullptr, llvm::GlobalValue::NotThreadLocal,
                               variable->getAddressSpace());
    else
      return name;
  }
  return {};
}

} // namespace

/// Writes the part of the bitcode file `input` that `routines`, one per line, need to `output`.
/// Returns 0; or 1 with what went wrong in `message`; or 2 with the routine that the library lacks there.
extern "C" __attribute__((visibility("default"))) int
tritonDistExtractDeviceLibrary(const char *input, const char *output, const char *routines, char *message,
                               size_t messageBytes) {
  auto fail = [&](int status, const llvm::Twine &text) {
    snprintf(message, messageBytes, "%s", text.str().c_str());
    return status;
  };
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> library = llvm::getLazyIRFileModule(input, diagnostic, context);
  if (!library)
    return fail(1, llvm::Twine(input) + ": " + diagnostic.getMessage());

  // The linker takes data layout and target from the library. Where a module keeps them changes between LLVM's
  // versions.
  llvm::Module extract("triton_dist_device_library", context);
  if (llvm::StringRef missing = declare(extract, *library, routines); !missing.empty())
    return fail(2, missing);
  if (llvm::Linker::linkModules(extract, std::move(library), llvm::Linker::LinkOnlyNeeded))
    return fail(1, llvm::Twine(input) + " could not be linked");

  std::error_code code;
  llvm::raw_fd_ostream stream(output, code);
  if (code)
    return fail(1, llvm::Twine(output) + ": " + code.message());
  llvm::WriteBitcodeToFile(extract, stream);
  stream.flush();
  return stream.has_error() ? fail(1, llvm::Twine(output) + ": " + stream.error().message()) : 0;
}
