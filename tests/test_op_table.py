"""A walk over the op table: each op must be there at every layer, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

import triton_dist.language as dl
from triton_dist.cpu.ops import IMPLEMENTATIONS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from generate_op_docs import FUNCTIONS, functions  # noqa: E402
from op_examples import EXAMPLES, SIGNATURE, as_kernels  # noqa: E402
from op_table import TRANSPORTS, Op, ops  # noqa: E402

INTERNAL = {"always", "poll"}
"""Ops that the language emits beside others, or our own kernels do, and that mean nothing to an interpreter."""

each_op = pytest.mark.parametrize("op", ops(), ids=lambda op: op.name)
each_transport = pytest.mark.parametrize("transport", ["nvshmem", "p2p"])
each_call = pytest.mark.parametrize("op", [op for op in ops() if op.calls], ids=lambda op: op.name)


def test_the_table_is_read() -> None:
    names = [op.name for op in ops()]
    assert len(names) >= 60
    assert len(names) == len(set(names))
    assert set(EXAMPLES) | set(FUNCTIONS) | INTERNAL <= set(names)


# ---- every op


@each_op
def test_op_has_functions_in_the_language(op: Op) -> None:
    assert functions(op) or op.name in INTERNAL
    for name in functions(op):
        assert name in dl.__all__, f"triton_dist.language does not export {name}"
        assert callable(getattr(dl, name)), f"dl.{name} is {getattr(dl, name)!r}"


@each_op
def test_op_can_be_built(op: Op) -> None:
    assert hasattr(ir.builder, f"shmem_{op.name}")


@each_op
def test_op_has_an_implementation_in_the_cpu_world(op: Op) -> None:
    assert op.name in IMPLEMENTATIONS or op.name in INTERNAL


@each_op
@each_transport
def test_op_has_a_lit_test(op: Op, transport: str) -> None:
    assert op.name in _lowered()[transport], f"no file of tests/lowering lowers shmem.{op.name} for {transport}"


@each_op
@each_transport
def test_op_has_a_lit_test_of_what_is_rejected(op: Op, transport: str) -> None:
    assert op.name in _rejected()[transport], f"no case of tests/lowering rejects shmem.{op.name} for {transport}"


@each_call
@each_transport
def test_op_has_a_routine(op: Op, transport: str) -> None:
    assert op.routines[transport]


def _lowered() -> dict[str, set[str]]:
    """By transport, the ops that lit tests lower."""
    return _cases(lambda case: "error: " not in case)


def _rejected() -> dict[str, set[str]]:
    """By transport, the ops of cases in which an error is expected."""
    return _cases(lambda case: "error: " in case)


def _cases(wanted: Callable[[str], bool]) -> dict[str, set[str]]:
    """The ops that stand in the IR, not in the comments, of wanted cases of lit tests, by transport."""
    ops: dict[str, set[str]] = {transport: set() for transport in TRANSPORTS}
    for file in (ROOT / "tests/lowering").glob("*.mlir"):
        commands, *rest = re.split(r"^(?!// RUN:)", file.read_text(), maxsplit=1, flags=re.MULTILINE)
        lines = [line for line in commands.splitlines() if "--pass convert-shmem-to-llvm" in line]
        transports = {found[1] if (found := re.search(r"--transport ([\w-]+)", line)) else "nvshmem" for line in lines}
        for case in filter(wanted, "".join(rest).split("// -----")):
            code = "\n".join(line.partition("//")[0] for line in case.splitlines())
            for transport in transports:
                ops[transport] |= set(re.findall(r"\bshmem\.(\w+)", code))
    return ops


# ---- nothing else


def test_the_cpu_world_implements_no_other_op() -> None:
    assert set(IMPLEMENTATIONS) <= {op.name for op in ops()}


def test_the_language_has_no_other_function() -> None:
    emitting = {name for op in ops() for name in functions(op)}
    compatible = {"notify", "num_ranks", "rank", "wait"}  # Triton-distributed's names for some of these
    others = {name for name in dl.__all__ if callable(getattr(dl, name)) and not name.isupper()}
    assert others - emitting == compatible


# ---- the reference


def test_the_reference_is_up_to_date() -> None:
    check = [sys.executable, str(ROOT / "scripts/generate_op_docs.py"), "--check"]
    run = subprocess.run(check, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_table_of_what_was_run_is_up_to_date() -> None:
    run = subprocess.run([sys.executable, str(ROOT / "scripts/op_coverage.py")], capture_output=True, text=True)
    assert run.stdout == (ROOT / "docs/tested.md").read_text(), "docs/tested.md is stale: run `make docs`"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return as_kernels(tmp_path_factory.mktemp("examples"))


@each_op
def test_example_emits_the_op(op: Op, examples: ModuleType) -> None:
    if op.name in INTERNAL:
        pytest.skip("shown where waits are")
    text = _ttir(getattr(examples, op.name))
    assert f"shmem.{op.name}" in text


def _ttir(kernel: Callable[..., Any]) -> str:
    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    options = backend.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = ASTSource(fn=JITFunction(kernel), signature=dict(SIGNATURE))
    hooks = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(target, options, *hooks, context)
    return str(module.str_nodebug())
