"""Compiles kernels of the LLVM dialect that Triton has not made, by Triton's own steps from there on."""

from __future__ import annotations

import re
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton import knobs
from triton._C.libtriton import ir, nvidia, passes
from triton.backends.compiler import Language
from triton.compiler import make_backend

from triton_dist.triton_api.launch_compiler import gpu_target
from triton_dist.triton_api.opt import add_conversion_to_llvm, set_attributes

__all__ = ["CompiledModule", "compile_module"]

_KERNEL = re.compile(
    r'^define [^\n]*?\bptx_kernel (?P<result>[^@\n]+) @(?P<name>"[^"]*"|[^\s"(]+)\((?P<parameters>[^\n]*)\) ',
    re.MULTILINE,
)
_PARAMETER = re.compile(r"(?:^|, )(?P<type>ptr|i\d+|half|bfloat|float|double)\b[^,]*?%")
_TYPES = {"ptr": "*i8", "half": "fp16", "bfloat": "bf16", "float": "fp32", "double": "fp64"}


@dataclass(frozen=True)
class CompiledModule:
    """What became of a module."""

    name: str
    """The kernel's."""
    parameters: tuple[str, ...]
    """Their types as Triton spells them; each pointer is ``*i8``."""
    asm: dict[str, Any]
    """``"ptx"``, a text, and ``"cubin"``, bytes."""
    metadata: dict[str, Any]
    """As Triton has it of its kernels; ``"shmem"`` as :mod:`triton_dist.compiler.hooks` adds it."""


def compile_module(file: Path, target: str, options: dict[str, Any]) -> CompiledModule:
    """Compile the one kernel of a file of MLIR: a function of the LLVM dialect with the attribute ``nvvm.kernel``.

    Its ops are those of llvm, nvvm, arith, cf, scf, index and shmem. MLIR prints its errors to stderr.

    Args:
        target: of NVIDIA: ``"sm_90"``.
        options: Triton's: ``num_warps``.

    Raises:
        ValueError: the module has no kernel, or several.
        RuntimeError: it does not verify or cannot be lowered.
    """
    backend = make_backend(gpu_target(target))
    # Triton's step, in which the conversion of its own IR is replaced by MLIR's, and passes that look for its kernels
    # are left out.
    backend.__class__ = type("CUDABackend", (type(backend),), {"make_llir": _without_tritons_passes(backend)})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = ir.parse_mlir_module(str(file), context)
    module.context = context
    parsed = backend.parse_options(options)
    set_attributes(module, context, f"cuda:{target.removeprefix('sm_')}", parsed.num_warps)
    if module.get_int_attr("ttg.shared") is None:
        module.set_attr("ttg.shared", ir.builder(context).get_int32_attr(0))
    stages: dict[str, Any] = {}
    if knobs.runtime.add_stages_inspection_hook is not None:
        knobs.runtime.add_stages_inspection_hook()
    backend.add_stages(stages, parsed, Language.TRITON)
    metadata: dict[str, Any] = dict(vars(parsed))
    asm: dict[str, Any] = {"llir": stages["llir"](module, metadata)}
    kernels = list(_KERNEL.finditer(asm["llir"]))
    if len(kernels) != 1:
        found = ", ".join(kernel["name"] for kernel in kernels) or "none"
        raise ValueError(f"expected one function with the attribute nvvm.kernel, found {found}")
    (kernel,) = kernels
    name, types = kernel["name"], _parameter_types(kernel["parameters"])
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError(f"kernel {name} has a name that C does not have")
    if kernel["result"] != "void" or types is None:
        raise ValueError(f"kernel {name} returns something, or takes what is neither a pointer nor a number")
    asm["ptx"] = stages["ptx"](asm["llir"], metadata)
    asm["cubin"] = stages["cubin"](asm["ptx"], metadata)
    return CompiledModule(name, types, asm, metadata)


def _parameter_types(parameters: str) -> tuple[str, ...] | None:
    """The types of LLVM's parameters; None if one is neither a pointer nor a number."""
    plain = parameters
    for nested in (r"\([^()]*\)", r"[{<\[][^{}<>\[\]]*[}>\]]"):  # of attributes; and structures, vectors, arrays
        while (shorter := re.sub(nested, "", plain)) != plain:
            plain = shorter
    types = [found["type"] for found in _PARAMETER.finditer(plain)]
    return tuple(_TYPES.get(type, type) for type in types) if len(types) == parameters.count("%") else None


def _without_tritons_passes(backend: Any) -> Any:
    function = type(backend).make_llir
    replaced = {
        "passes": _Replaced(passes, ttgpuir=_Nothing()),
        "nvidia": _Replaced(nvidia, passes=_Conversion()),
    }
    return types.FunctionType(
        function.__code__,
        {**function.__globals__, **replaced},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


class _Replaced:
    """A module with other values for some of its names."""

    def __init__(self, module: Any, **values: Any) -> None:
        self._module = module
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Nothing:
    """A module of functions that add passes, none of which adds any."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *arguments: Any) -> None:
        pass


class _Conversion(_Nothing):
    """Triton's passes for NVIDIA's GPUs, of which one converts to the LLVM dialect."""

    def add_to_llvmir(self, manager: Any, *arguments: Any) -> None:
        add_conversion_to_llvm(manager)
