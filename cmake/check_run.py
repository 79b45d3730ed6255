"""Does the plugin work inside the libtriton.so that it is for? Run after check_abi.py; one that fails is not published.

Symbols and vtables do not show everything: a field that was added to a class, or two virtual functions that changed
places, are found by running only. So libtriton.so is loaded without the rest of Triton, and ops of each kind are
parsed, verified, printed and lowered in it, and a library is linked by it, in a process of its own, since what does not
fit may crash.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

MODULE = """
module attributes {"ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  llvm.func @kernel(%x: !llvm.ptr<1>, %sig: !llvm.ptr<1>, %n: i64, %pe: i32) {
    %me = shmem.my_pe : i32
    shmem.putmem block %x, %x, %n, %me : !llvm.ptr<1>, !llvm.ptr<1>
    shmem.signal_op %sig, add %n, %pe : !llvm.ptr<1>
    %old = shmem.atomic_fetch acq_rel sys i32 %x, %pe : !llvm.ptr<1>, i32
    shmem.atomic_add acq_rel sys i32 %x, %old, %pe : !llvm.ptr<1>, i32
    %seen = shmem.signal_wait_until %sig, ge %n : !llvm.ptr<1>
    shmem.quiet
    llvm.return
  }
}
"""
LIBRARY = """
target datalayout = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
@state = addrspace(4) externally_initialized constant i64 0
define i32 @helper(i32 %x) { ret i32 %x }
define i32 @called(i32 %x) {
  %y = call i32 @helper(i32 %x)
  ret i32 %y
}
define void @unused() { ret void }
"""
OTHER_PYTHON = "cannot be imported"
PASSES = {"shmem_plan": ["nvshmem", "2"], "shmem_to_llvm": ["nvshmem"]}


def load(libtriton: Path, plugin: Path) -> ModuleType:
    """Triton's extension module, with the plugin."""
    os.environ["TRITON_PLUGIN_PATHS"] = str(plugin)  # which Triton reads up to 3.8
    loader = importlib.machinery.ExtensionFileLoader("libtriton", str(libtriton))
    spec = importlib.util.spec_from_loader("libtriton", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    if hasattr(module.passes.plugin, "extend_with"):
        module.ir.extend_dialects_with(str(plugin))
        module.passes.plugin.extend_with(str(plugin))
    return module


def run(libtriton: Path, plugin: Path) -> None:
    """Lower the ops; SystemExit if they are not lowered."""
    try:
        triton = load(libtriton, plugin)
    except ImportError as error:
        raise SystemExit(f"{OTHER_PYTHON}: {error}") from None
    context = triton.ir.context()
    triton.ir.load_dialects(context)
    triton.nvidia.load_dialects(context)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ops.mlir")
        file.write_text(MODULE)
        module = triton.ir.parse_mlir_module(str(file), context)
    manager, passes = triton.ir.pass_manager(context), triton.passes.plugin
    for name, arguments in PASSES.items():
        (getattr(passes, name, None) or getattr(passes, f"add_{name}"))(manager, arguments)
    manager.run(module, "check_run")
    lowered = str(module)
    link(plugin)
    if "shmem." in lowered.split("llvm.func @kernel")[1] or "llvm.call @nvshmemx_signal_op" not in lowered:
        raise SystemExit(f"The ops were not lowered:\n{lowered}")


def link(plugin: Path) -> None:
    """Have the plugin extract a function from a library; SystemExit if it does not."""
    with tempfile.TemporaryDirectory() as folder:
        library, extract = Path(folder, "library.ll"), Path(folder, "extract.bc")
        library.write_text(LIBRARY)
        message = ctypes.create_string_buffer(1024)
        arguments = (os.fsencode(library), os.fsencode(extract), b"called\nstate", message, ctypes.c_size_t(1024))
        status = ctypes.CDLL(str(plugin)).tritonDistExtractDeviceLibrary(*arguments)
        linked = extract.read_bytes() if status == 0 else b""
    names = [name for name in (b"called", b"helper", b"state", b"unused") if name in linked]
    if names != [b"called", b"helper", b"state"]:
        raise SystemExit(f"The plugin does not extract routines: {message.value.decode() or names}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libtriton", type=Path, required=True)
    parser.add_argument("--plugin", type=Path, required=True)
    parser.add_argument("--here", action="store_true", help="in this process")
    arguments = parser.parse_args()
    if arguments.here:
        run(arguments.libtriton, arguments.plugin)
        return 0
    done = subprocess.run([sys.executable, *sys.argv, "--here"], capture_output=True, text=True)
    if done.returncode == 0:
        print("Run check passed: shmem ops are parsed and lowered inside this libtriton.so")
        return 0
    if done.stderr.startswith(OTHER_PYTHON):
        print(f"Run check left out: {arguments.libtriton} {done.stderr.strip()} (it may be another Python's)")
        return 0
    how = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    print(f"Run check failed ({how}): {arguments.plugin} inside {arguments.libtriton}", file=sys.stderr)
    print(done.stderr[-4000:], file=sys.stderr)
    print(
        "The plugin was not published. Its LLVM headers do not match this Triton, though all symbols and vtables do.\n"
        "Build with the LLVM that this Triton was built with (-DMLIR_DIR= and -DLLVM_DIR=).",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
