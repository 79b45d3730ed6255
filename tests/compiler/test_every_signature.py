"""Machine code of every signature of every op, with every element type, for several GPUs and both transports.

Each op's kernel calls all functions that docs/ops.md shows for it: once for each element type, and for the first of
these once for each value of each attribute (scope, ordering, comparison, update of a signal).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from op_signatures import VALUES, as_call, imported, signatures
from triton.backends.compiler import GPUTarget

from triton_dist._C.op_table import OPS, ElementType, Op
from triton_dist.compiler import transport

ARCHITECTURES = (80, 90, 100)
LIBRARIES = ("p2p", "nvshmem")
SIGNATURES = {name: lines for name, lines in signatures("###").items() if name in OPS}
TYPED = ("dst", "src", "ptr", "ivar", "ivars", "cmp_values")
"""Arguments that point to elements. The others that are pointers are of one type."""
POINTERS = {type: f"*{type.name.lower().replace('f', 'fp').replace('bfp', 'bf')}" for type in ElementType}
CONSTANTS = {
    "cmp": [f"dl.CMP_{name}" for name in ("EQ", "NE", "GT", "GE", "LT", "LE")],
    "sig_op": ["dl.SIGNAL_SET", "dl.SIGNAL_ADD"],
    "sem": [repr(name) for name in ("relaxed", "acquire", "release", "acq_rel")],
}
THREADS, OBSERVERS = ("thread", "warp", "block"), ("cta", "gpu", "sys")


LACKING = {
    ("nvshmem", "atomic_add"): (ElementType.F32, ElementType.F64),
    ("nvshmem", "atomic_fetch_add"): (ElementType.F32, ElementType.F64),
}
"""Types for which a library has no routine. The op is refused there with an error that names the routine."""


def calls(library: str, op: Op) -> Iterator[str]:
    """Of every function of an op."""
    types = [type for type in op.elements or (ElementType.I64,) if type not in LACKING.get((library, op.name), ())]
    for signature in dict.fromkeys(SIGNATURES[op.name]):
        for number, type in enumerate(types):
            if re.match(r"dl\.(and|or|xor)_", signature) and type >= ElementType.F16:
                continue
            value = f"tl.load({type.name})"
            values = VALUES | dict.fromkeys(TYPED, type.name) | dict.fromkeys(("value", "cmp_value", "cond"), value)
            yield as_call(signature, values)
            for name, constants in variants(op, signature).items() if number == 0 else ():
                yield from (as_call(signature, values, **{name: constant}) for constant in constants)


def variants(op: Op, signature: str) -> dict[str, list[str]]:
    """Arguments whose value is a constant of the compiler, and all their values."""
    found = {name: constants for name, constants in CONSTANTS.items() if re.search(rf"\b{name}\b", signature)}
    if "scope=" in signature:
        found["scope"] = [repr(name) for name in (OBSERVERS if "mem_scope" in op.attributes else THREADS)]
    return found


ARGUMENTS = {
    **{type.name: pointer for type, pointer in POINTERS.items()},
    "words": "*i64",
    "status": "*i32",
    "n": "i32",
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A kernel for each op over each library, in a file, since Triton reads the source."""
    lines = ["import triton.language as tl", "import triton_dist.language as dl"]
    for library, name in itertools.product(LIBRARIES, SIGNATURES):
        lines += [f"def {name}_over_{library}({', '.join(ARGUMENTS)}):"]
        lines += [f"    {call}" for call in calls(library, OPS[name])]
    return imported(lines, tmp_path_factory.mktemp("signatures") / "kernels_of_ops.py")


def test_every_op_has_signatures() -> None:
    """Other ops emit those that have none."""
    assert set(OPS) - set(SIGNATURES) == {"poll", "always"}


def test_every_type_and_every_constant_is_called() -> None:
    put = list(calls("p2p", OPS["iput"]))
    assert len(put) == 12 + 3 and any("scope='thread'" in call and "dst=I8" in call for call in put)
    assert len(list(calls("p2p", OPS["reduce"]))) == 7 * (8 + 3) + 4 * 4
    assert len(list(calls("p2p", OPS["atomic_swap"]))) == 6 + 4 + 3
    assert POINTERS[ElementType.BF16] == "*bf16" and POINTERS[ElementType.F32] == "*fp32"


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_machine_code(
    library: str, architecture: int, name: str, kernels: ModuleType, compile_kernel: Callable[..., Any]
) -> None:
    kernel, target = getattr(kernels, f"{name}_over_{library}"), GPUTarget("cuda", architecture, 32)
    with transport.using(library):
        compiled = compile_kernel(kernel, ARGUMENTS, target=target)
    assert compiled.asm["cubin"]
    assert re.search(rf"^\.target sm_{architecture}", compiled.asm["ptx"], re.MULTILINE)
    undefined = [line for line in compiled.asm["ptx"].splitlines() if line.startswith(".extern .func")]
    assert not [line for line in undefined if not re.search("__assertfail|vprintf", line)], "not CUDA's own"
