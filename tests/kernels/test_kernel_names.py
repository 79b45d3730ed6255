"""Names of launched kernels: a timeline shows nothing else of a kernel, so each tells its operation and is unique.

Launched kernels are those that functions of the host name. A kernel's operation is the public function of the longest
name with which its module's begins (``dispatch_many.py``: ``moe.dispatch``). Modules that several operations share have
names of other words; there any operation, or the module's own name, will do.
"""

from __future__ import annotations

import dis
import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

import triton_dist.kernels
from triton_dist.kernels import moe


def kernels_of(module: ModuleType) -> dict[str, Any]:
    """Functions of Triton and Gluon that the module defines and that can be launched, by name."""
    found = {name: value for name, value in vars(module).items() if hasattr(value, "fn") and hasattr(value, "run")}
    return {name: value for name, value in found.items() if value.fn.__module__ == module.__name__}


def codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and those of functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def named_in(code: CodeType, module: ModuleType) -> Iterator[Any]:
    """What code of the module names: globals, what it imports, and what it takes from modules among these."""
    last: Any = None
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname == "IMPORT_NAME":
            last = importlib.import_module(name) if name.startswith("triton_dist") else None
        elif instruction.opname == "IMPORT_FROM":
            yield getattr(last, name, None)
        elif instruction.opname == "LOAD_GLOBAL":
            yield (last := vars(module).get(name))
        elif isinstance(last, ModuleType) and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            yield (last := getattr(last, name, None))


def named_by_the_host(module: ModuleType) -> Iterator[Any]:
    """What functions and methods of the host in the module name."""
    values = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    methods = [method for value in values if isinstance(value, type) for method in vars(value).values()]
    for function in (*values, *methods):
        plain = getattr(function, "__wrapped__", function)  # but for decorators
        for code in codes(plain.__code__) if isinstance(plain, FunctionType) else ():
            yield from named_in(code, module)


@cache
def modules() -> list[ModuleType]:
    package = triton_dist.kernels
    return [
        importlib.import_module(found.name) for found in pkgutil.walk_packages(package.__path__, "triton_dist.kernels.")
    ]


def launched(modules: Iterable[ModuleType]) -> list[tuple[str, str]]:
    """Module and name of each kernel that one of the modules' functions launches."""
    modules = list(modules)
    named = {id(value) for module in modules for value in named_by_the_host(module)}
    found = [(module.__name__, value) for module in modules for value in kernels_of(module).values()]
    return [(module, value.fn.__name__) for module, value in found if id(value) in named]


def begins_with(name: str, word: str) -> bool:
    return name == word or name.startswith(f"{word}_")


def operations() -> dict[str, str]:
    """Of each public function, what its kernels' names begin with."""
    of_experts = {name: name if name.startswith("moe_") else f"moe_{name}" for name in moe.__all__}
    every = of_experts | {name: name for name in triton_dist.kernels.__all__}
    return {name: word for name, word in every.items() if name.islower()}


def wrong_names(kernels: list[tuple[str, str]]) -> list[str]:
    counts, found = Counter(name for _, name in kernels), []
    for module, name in kernels:
        *packages, stem = module.split(".")
        known = [operation for operation in operations() if begins_with(stem, operation)]
        if known:
            allowed = {operations()[max(known, key=len)]}
        else:
            allowed = {*operations().values(), stem, f"{packages[-1]}_{stem}"}
        if not any(begins_with(name, word) for word in allowed):
            found.append(f"{module}: {name} begins with none of {sorted(allowed)}")
        if counts[name] > 1:
            found.append(f"{module}: {counts[name]} kernels are called {name}")
    return found


def test_each_launched_kernel_has_the_name_of_its_operation_for_itself() -> None:
    kernels = launched(modules())
    assert ("triton_dist.kernels.collectives.all_gather", "all_gather_push") in kernels
    assert ("triton_dist.kernels.moe.rounds_hopper", "moe_dispatch_rounds_by_tma") in kernels  # imported in a function
    assert ("triton_dist.kernels.protocols.ll", "send") not in kernels  # kernels call it
    assert len(kernels) > 50
    assert wrong_names(kernels) == []


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [
        ("triton_dist.kernels.collectives.all_gather", "_push", True),
        ("triton_dist.kernels.collectives.all_gather", "all_gathering", True),
        ("triton_dist.kernels.collectives.all_gather", "all_reduce_push", True),
        ("triton_dist.kernels.gemm.hopper.all_gather_gemm", "all_gather_kernel", True),
        ("triton_dist.kernels.gemm.portable", "gemm_portable_send", False),
        ("triton_dist.kernels.gemm.portable", "portable_send", False),
        ("triton_dist.kernels.gemm.portable", "send", True),
        ("triton_dist.kernels.moe.dispatch_many", "dispatch_many", True),
        ("triton_dist.kernels.moe.dispatch_many", "moe_dispatch_many", False),
        ("triton_dist.kernels.gemm.hopper.dispatch_grouped_gemm", "moe_dispatch_kernel", True),
    ],
)
def test_names_that_are_refused(module: str, name: str, wrong: bool) -> None:
    assert bool(wrong_names([(module, name)])) == wrong


def test_two_kernels_of_one_name_are_refused() -> None:
    kernels = [(f"triton_dist.kernels.{folder}.norm_gemm", "norm_gemm_kernel") for folder in ("gemm", "norm")]
    assert len(wrong_names(kernels)) == 2
