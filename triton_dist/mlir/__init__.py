"""The shmem dialect for users of MLIR: ops, a description in IRDL, verification, lowering and compilation.

    from jaxlib.mlir import ir
    from triton_dist import mlir
    from triton_dist.mlir.dialects import shmem

    with ir.Context() as context, ir.Location.unknown():
        mlir.register(context)
        ...  # build a module with shmem.my_pe(…), shmem.putmem(…)
        mlir.verify(module)
        kernel = mlir.compile(module, "cuda:90", num_warps=4)  # kernel.ptx

A module of the host's bindings is handed over as text, so the host's MLIR and that inside of Triton need not be the
same version. What works on IR runs in a process of its own: an assertion of the compiler is an error here and no crash.
"""

from __future__ import annotations

import importlib
from typing import Any

from triton_dist.mlir.compiling import CompiledKernel, compile
from triton_dist.mlir.engine import IRError, run_passes, verify
from triton_dist.mlir.irdl import description
from triton_dist.mlir_bindings import add_dialects, package

__all__ = ["CompiledKernel", "IRError", "compile", "description", "lower", "register", "run_passes", "verify"]


def register(context: Any) -> None:
    """Let a context of the host's bindings hold shmem ops.

    Loads the :func:`description` where the bindings can (those of LLVM's own builds), so that the host verifies the
    ops, too. Others (jaxlib's, IREE's) have no IRDL: their context then allows dialects that it does not know.

    Raises:
        ImportError: no package with MLIR's Python bindings is installed.
    """
    add_dialects(context)
    try:
        irdl = importlib.import_module(f"{package()}.dialects.irdl")
    except ModuleNotFoundError:
        context.allow_unregistered_dialects = True
        return
    ir = importlib.import_module(f"{package()}.ir")
    _ = context.dialects["llvm"]  # whose pointers the description names
    with context, ir.Location.unknown():
        irdl.load_dialects(ir.Module.parse(description()))


def lower(module: Any, *, transport: str = "p2p", target: str = "cuda:90", num_warps: int = 4) -> str:
    """The text of a module in which each shmem op has become a call of a device library.

    Args:
        module: as for :func:`verify`; ops stand in functions of the LLVM dialect, and in no region of ``scf``.
        transport: whose routines are called: ``"p2p"``, ``"nvshmem"``, ``"rocshmem"`` or ``"rocshmem-6"``.
        target: ``"cuda:90"``, ``"hip:gfx942"``: for which GPU barriers and thread numbers are.
        num_warps: of a program.

    Raises:
        IRError: the module does not verify, or an op has no routine on this transport.
    """
    return run_passes(module, ["convert-shmem-to-llvm"], transport=transport, target=target, num_warps=num_warps)
