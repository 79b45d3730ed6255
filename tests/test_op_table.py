"""A walk over the op table: each op is there at every layer, does there what the table says, and nothing else is."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from op_examples import EXAMPLES, SIGNATURE, as_kernels
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

import triton_dist.language as dl
from triton_dist._C.op_table import OPS, Effect, ElementType, Op, Reduction, ThreadScope, Value
from triton_dist.cpu.ops import IMPLEMENTATIONS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import generate_op_docs  # noqa: E402
import op_coverage  # noqa: E402
from generate_op_docs import FUNCTIONS, functions  # noqa: E402

INTERNAL = {"always", "poll"}
"""Ops that the language emits beside others, or our own kernels do."""

TRANSPORTS = ("nvshmem", "p2p")

each_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


def test_the_table_is_read() -> None:
    assert len(OPS) >= 60
    assert all(op.name == name for name, op in OPS.items())
    assert set(FUNCTIONS) <= set(OPS) and set(OPS) - set(EXAMPLES) == INTERNAL


# ---- the language and the CPU world


@each_op
def test_op_has_functions_in_the_language(op: Op) -> None:
    assert functions(op) or op.name in INTERNAL
    for name in functions(op):
        assert name in dl.__all__, f"triton_dist.language does not export {name}"
        assert callable(getattr(dl, name)), f"dl.{name} is {getattr(dl, name)!r}"


def test_the_language_has_no_other_function() -> None:
    emitting = {name for op in OPS.values() for name in functions(op)}
    compatible = {"notify", "num_ranks", "rank", "wait"}  # Triton-distributed's names for some of these
    others = {name for name in dl.__all__ if callable(getattr(dl, name)) and not name.isupper()}
    assert others - emitting == compatible


def test_the_cpu_world_implements_every_op() -> None:
    assert set(IMPLEMENTATIONS) == set(OPS) - {"poll"}, "except the one that means nothing to an interpreter"


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_implementation_takes_operands_and_then_attributes(name: str) -> None:
    op = OPS[name]
    taken = list(inspect.signature(IMPLEMENTATIONS[name]).parameters)
    assert taken == [name.replace("cmp_values", "cmp_value") for name in (*op.operands, *op.attributes)]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return as_kernels(tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_emits_the_op(name: str, examples: ModuleType) -> None:
    assert f"shmem.{name}" in _ttir(getattr(examples, name))


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


# ---- the lowering: every op in MLIR's generic form, as the table describes it

_TYPES = {
    Value.POINTER: "!llvm.ptr<1>",
    Value.SYMMETRIC_POINTER: "!llvm.ptr<1>",
    Value.I1: "i1",
    Value.I32: "i32",
    Value.I64: "i64",
}
_ELEMENT = ElementType.I32
_SHARED_MEMORY = "llvm.mlir.global external @global_smem() {addr_space = 3 : i32} : !llvm.array<0 x i8>"


def _type(value: Value) -> str:
    return _TYPES.get(value, "i32")


def _ir(op: Op, types: dict[str, str], result: str | None) -> str:
    """A function with one op whose operands have these types."""
    attributes = {name: max(kind) for name, kind in op.attributes.items()}
    attributes |= {"type": _ELEMENT} if "type" in op.attributes else {}
    text = ", ".join(f"{name} = {int(value)} : i32" for name, value in attributes.items())
    arguments = ", ".join(f"%{name}: {type}" for name, type in types.items())
    operands = ", ".join(f"%{name}" for name in types)
    call = f'"shmem.{op.name}"({operands}) {{{text}}} : ({", ".join(types.values())}) -> ({result or ""})'
    returned = f"-> {result} " if result else ""
    assigned, answer = ("%result = ", f" %result : {result}") if result else ("", "")
    body = f"  {assigned}{call}\n  llvm.return{answer}"
    return f"{_SHARED_MEMORY}\nllvm.func @{op.name}({arguments}) {returned}{{\n{body}\n}}"


def _correct(op: Op) -> str:
    return _ir(op, {name: _type(value) for name, value in op.operands.items()}, op.result and _type(op.result))


def _mistakes(op: Op) -> Iterator[tuple[str, str]]:
    """The op with one wrong type, for each of its operands and its result, and what the error names."""
    types = {name: _type(value) for name, value in op.operands.items()}
    result = op.result and _type(op.result)
    for number, name in enumerate(types):
        said = f"operand #{number} must be" if op.operands[name] is not Value.ELEMENT else name
        yield _ir(op, types | {name: "f32"}, result), rf"'shmem\.{op.name}' op {said}\b"
    if result:
        yield _ir(op, types, "f32"), rf"'shmem\.{op.name}' op result\b"


def _lowered(modules: list[str], transport: str, folder: Path) -> tuple[list[str], str]:
    """What triton-dist-opt makes of modules, and its errors."""
    file = folder / "ops.mlir"
    file.write_text("\n// -----\n".join(modules))
    options = ["--split-input-file", "--pass", "convert-shmem-to-llvm", "--transport", transport]
    command = [sys.executable, str(ROOT / "triton_dist/triton_api/opt.py"), str(file), *options]
    run = subprocess.run(command, capture_output=True, text=True)
    return [f"module{part}" for part in run.stdout.split("\nmodule")], run.stderr


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """By transport and op, LLVM's IR."""

    def lower(transport: str) -> dict[str, str]:
        modules, errors = _lowered(list(map(_correct, OPS.values())), transport, tmp_path_factory.mktemp(transport))
        assert not errors, errors
        return dict(zip(OPS, modules, strict=True))

    return {transport: lower(transport) for transport in TRANSPORTS}


@each_op
@each_transport
def test_op_becomes_a_call_of_its_routine(op: Op, transport: str, lowered: dict[str, dict[str, str]]) -> None:
    text = lowered[transport][op.name]
    assert f"llvm.func @{op.name}(" in text and f"shmem.{op.name}" not in text
    called = re.findall(r"llvm\.call @(\w+)", text)
    if op.caller is None:
        assert called == [] and "llvm.mlir.constant" in text
        return
    routine = op.routines[transport]
    is_ours = routine.startswith("triton_dist_")
    placeholders = {
        "type": "i32" if is_ours else "int32",
        "op": max(Reduction).name.lower(),
        "aligned": "",
        "scope": f"_{max(ThreadScope).name.lower()}",
    }
    pattern = re.sub(r"\$(\w+?)(?=\$|_|$)", lambda found: placeholders[found[1]], routine)
    pattern = pattern if is_ours else pattern.replace("nvshmem_", "nvshmemx?_", 1)
    assert re.fullmatch(pattern, called[0]), f"{called[0]} is not {pattern}"
    assert ("llvm.fence" in text or "nvvm.barrier" in text) == (op.effect is not Effect.NO_EFFECT)


@each_transport
def test_ops_of_wrong_types_are_refused(transport: str, tmp_path: Path) -> None:
    mistakes = [(op.name, module, said) for op in OPS.values() for module, said in _mistakes(op)]
    _, errors = _lowered([module for _, module, _ in mistakes], transport, tmp_path)
    found = re.findall(r"error: (.*)", errors)
    assert len(found) == len(mistakes) > 100
    for (name, module, said), error in zip(mistakes, found, strict=True):
        assert re.search(said, error), f"{name}: {error}, not {said}\n{module}"


# ---- the reference


def test_the_reference_is_up_to_date() -> None:
    assert generate_op_docs.page() == (ROOT / "docs/ops.md").read_text(), "docs/ops.md is stale: run `make docs`"


def test_the_table_of_what_was_run_is_up_to_date() -> None:
    page = "\n".join([*op_coverage.page(), ""])
    assert page == (ROOT / "docs/tested.md").read_text(), "docs/tested.md is stale: run `make docs`"


def test_runs_in_parts_are_put_together_and_replace_older_ones() -> None:
    def part(*checks: str, commit: str = "new", pes: int = 2) -> dict[str, Any]:
        made = [{"check": check, "passed": True, "ops": []} for check in checks]
        return {"transport": "p2p", "pes": pes, "commit": commit, "checks": made, "skipped": []}

    known = [part("a", commit="old"), part("a", commit="old", pes=4)]
    found = op_coverage.added(known, "here", [part("a", "b"), part("c")])
    assert [(run["pes"], run["commit"]) for run in found] == [(4, "old"), (2, "new")]
    assert found[1]["where"] == "here" and [check["check"] for check in found[1]["checks"]] == ["a", "b", "c"]
    later = part("b", "d", commit="newer")
    later["checks"][0]["passed"] = False
    *_, joined = op_coverage.added(known, "here", [part("a", "b"), later, part("e", commit="newer")])
    assert joined["commit"] == "new, newer"
    passed = {check["check"]: check["passed"] for check in joined["checks"]}
    assert passed == {"a": True, "b": False, "d": True, "e": True} and len(joined["checks"]) == 4
    with pytest.raises(ValueError, match="two parts have the checks a"):
        op_coverage.added(known, "here", [part("a", "b"), part("a")])
