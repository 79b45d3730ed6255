"""The shmem dialect outside of Triton: its description in IRDL, MLIR's Python bindings, verification and lowering."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import triton

from triton_dist import mlir, mlir_bindings
from triton_dist._C.op_table import OPS, ElementType, Op, Reduction, Value
from triton_dist.mlir import engine

ROOT = Path(__file__).resolve().parents[2]
LLVM = json.loads((ROOT / "cmake/supported_triton.json").read_text())[triton.__version__]["llvm"]
TYPES = {Value.I1: "i1", Value.I32: "i32", Value.I64: "i64", Value.ELEMENT: "i32"}
POINTER = "!llvm.ptr<1>"


def _type(value: Value) -> str:
    return TYPES.get(value, POINTER)


def _attributes(op: Op) -> dict[str, int]:
    """The last case of each enum, and elements that are i32."""
    return {name: int(ElementType.I32 if name == "type" else max(kind)) for name, kind in op.attributes.items()}


def _function(op: Op, /, **changes: Any) -> str:
    """A function with the op; ``changes``: types of operands and of the result, or numbers of attributes."""
    types = {name: changes.get(name, _type(value)) for name, value in op.operands.items()}
    attributes = {name: changes.get(name, number) for name, number in _attributes(op).items()}
    result = changes.get("result", _type(op.result)) if op.result else ""
    taken = ", ".join(f"%{name}: {type}" for name, type in types.items())
    listed = ", ".join(f"{name} = {number} : i32" for name, number in attributes.items())
    call = f'"shmem.{op.name}"({", ".join(f"%{name}" for name in types)}) {{{listed}}}'
    assigned = "%answer = " if result else ""
    body = f"  {assigned}{call} : ({', '.join(types.values())}) -> ({result})\n  llvm.return"
    return f"llvm.func @{op.name}({taken}) {{\n{body}\n}}\n"


# ---- IRDL


def _host(tmp_path: Path, source: str) -> subprocess.CompletedProcess[str]:
    """MLIR's own tool, which knows the dialect by its description alone."""
    tool = shutil.which(f"mlir-opt-{LLVM}") or f"/usr/lib/llvm-{LLVM}/bin/mlir-opt"
    if not Path(tool).exists():
        pytest.skip(f"mlir-opt of LLVM {LLVM} is not installed (mlir-{LLVM}-tools)")
    (tmp_path / "shmem.irdl.mlir").write_text(mlir.description(pointers=()))
    (tmp_path / "ops.mlir").write_text(source)
    command = [tool, f"--irdl-file={tmp_path / 'shmem.irdl.mlir'}", str(tmp_path / "ops.mlir")]
    command += ["--verify-diagnostics"] if "expected-error" in source else []
    return subprocess.run(command, capture_output=True, text=True)


def test_a_host_that_loads_the_description_knows_every_op(tmp_path: Path) -> None:
    done = _host(tmp_path, "".join(map(_function, OPS.values())))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r'"shmem\.\w+"\(', done.stdout)) == len(OPS)


def test_a_host_that_loads_the_description_refuses_what_is_wrong(tmp_path: Path) -> None:
    def expected(number: int, function: str) -> str:
        named = re.sub(r"@\w+", f"@wrong{number}", function)
        return named.replace("\n  ", "\n  // expected-error-re @below {{{{.*}}}}\n  ", 1)

    wrong = []
    for op in OPS.values():
        wrong += [_function(op, **{name: "f16"}) for name, value in op.operands.items() if value in TYPES]
        wrong += [_function(op, result="f16")] if op.result else []
        wrong += [_function(op, **{name: 99}) for name in op.attributes]
        if "type" in op.attributes and len(op.elements) < len(ElementType):
            wrong.append(_function(op, type=int(min(set(ElementType) - set(op.elements)))))
    assert len(wrong) > 150
    done = _host(tmp_path, "".join(expected(number, function) for number, function in enumerate(wrong)))
    assert done.returncode == 0, done.stderr[:2000]


def test_the_description_names_the_pointers_that_it_is_asked_for() -> None:
    assert 'irdl.base "!llvm.ptr"' in mlir.description()
    both = mlir.description(pointers=("!llvm.ptr", "!tt.ptr"))
    assert both.count('irdl.base "!tt.ptr"') == both.count('irdl.base "!llvm.ptr"') > 50
    assert "irdl.any\n" in mlir.description(pointers=()) and "irdl.base" not in mlir.description(pointers=())


# ---- bindings

needs_bindings = pytest.mark.skipif(
    not mlir_bindings.installed(), reason="no MLIR bindings are installed: pip install 'triton-dist[mlir]'"
)


class Host:
    """The bindings, with a context and modules that are built in it."""

    def __init__(self) -> None:
        self.ir: Any = importlib.import_module(f"{mlir_bindings.package()}.ir")
        self.shmem: Any = importlib.import_module("triton_dist.mlir.dialects.shmem")
        self.context = self.ir.Context()
        mlir.register(self.context)

    def module_of(self, *ops: Op, **changes: str) -> Any:
        """A module with a function for each op, built by the op's class."""
        ir = self.ir
        with self.context, ir.Location.file("host.py", 7, 3):
            module = ir.Module.create()
            for op in ops:
                types = [changes.get(name, _type(value)) for name, value in op.operands.items()]
                text = f"!llvm.func<void ({', '.join(types)})>"
                attributes = {
                    "sym_name": ir.StringAttr.get(op.name),
                    "function_type": ir.TypeAttr.get(ir.Type.parse(text)),
                    "linkage": ir.Attribute.parse("#llvm.linkage<external>"),
                }
                with ir.InsertionPoint(module.body):
                    function = ir.Operation.create("llvm.func", attributes=attributes, regions=1)
                block = function.regions[0].blocks.append(*map(ir.Type.parse, types))
                with ir.InsertionPoint(block):
                    self.build(op, dict(zip(op.operands, block.arguments, strict=True)))
                    ir.Operation.create("llvm.return")
            return module

    def build(self, op: Op, operands: dict[str, Any]) -> Any:
        name = "".join(part.capitalize() for part in op.name.split("_")) + "Op"
        kinds = {"type": "ElementType", "op": "Reduction", "sem": "Sem", "mem_scope": "MemScope", "cmp": "Cmp"}
        kinds |= {"sig_op": "SignalUpdate", "scope": "ThreadScope"}
        given = {
            "type_" if name == "type" else name: getattr(self.shmem, kinds[name])(number)  # a name of Python's
            for name, number in _attributes(op).items()
        }
        result = {"result": self.ir.Type.parse(_type(op.result))} if op.result else {}
        return getattr(self.shmem, name)(**result, **operands, **given)


@pytest.fixture(scope="module")
def host() -> Host:
    return Host()


@needs_bindings
def test_every_op_is_built_verified_parsed_and_lowered(host: Host) -> None:
    module = host.module_of(*OPS.values())
    assert module.operation.verify()
    with host.context:
        again = host.ir.Module.parse(str(module))
    assert str(again) == str(module)
    mlir.verify(module)
    lowered = mlir.lower(module)
    assert "shmem." not in re.sub(r"^module attributes .*", "", lowered)
    called = set(re.findall(r"llvm\.call @(\w+)", lowered))
    for op in OPS.values():
        routine = op.routines["p2p"].partition("$")[0]
        assert op.caller is None or any(name.startswith(routine) for name in called), op.name


@needs_bindings
def test_classes_are_those_of_the_table(host: Host) -> None:
    for op in OPS.values():
        function = getattr(host.shmem, op.name)
        taken = [name.removesuffix("_") for name in inspect.signature(function).parameters]
        wanted = [*(["result"] if op.result else []), *op.operands, *op.attributes, "loc", "ip"]
        assert sorted(taken) == sorted(wanted), op.name
    assert [case.name.upper() for case in host.shmem.Reduction] == [case.name for case in Reduction]


@needs_bindings
def test_an_error_names_the_host_s_own_line(host: Host) -> None:
    module = host.module_of(OPS["p"], value="i64")
    with pytest.raises(mlir.IRError, match=r"^host\.py:7:3: 'shmem\.p' op value is 'i64', and the element type i32"):
        mlir.verify(module)


@needs_bindings
def test_the_example_compiles_a_ring_to_ptx(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples/mlir_ring.py"), "--output", "made/here"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS mlir_ring") and ".visible .entry ring(" in done.stdout
    folder = tmp_path / "made/here"
    assert {file.name for file in folder.iterdir()} == {"ring.ptx", "ring.cubin", "ring.json", "ring.h"}
    ptx = (folder / "ring.ptx").read_text()
    assert "triton_dist_p2p_state[" in ptx and ".target sm_90a" in ptx and "fence.acquire.sys" in ptx


def test_the_bindings_are_those_that_the_program_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_DIST_MLIR_BINDINGS", raising=False)
    monkeypatch.setattr(mlir_bindings, "installed", lambda: list(mlir_bindings.PACKAGES))
    for name in mlir_bindings.PACKAGES:
        monkeypatch.delitem(sys.modules, f"{name}.ir", raising=False)
    assert mlir_bindings.package() == "mlir"
    monkeypatch.setitem(sys.modules, "iree.compiler.ir", sys)
    assert mlir_bindings.package() == "iree.compiler", "the one that is imported"
    monkeypatch.setenv("TRITON_DIST_MLIR_BINDINGS", "jaxlib.mlir")
    assert mlir_bindings.package() == "jaxlib.mlir"
    monkeypatch.setattr(mlir_bindings, "installed", list)
    with pytest.raises(ImportError, match=r"MLIR_BINDINGS=jaxlib\.mlir: this package is not installed"):
        mlir_bindings.package()
    monkeypatch.delenv("TRITON_DIST_MLIR_BINDINGS")
    with pytest.raises(ImportError, match=r"looked for mlir, jaxlib\.mlir, iree\.compiler\): pip install"):
        mlir_bindings.package()


# ---- the page
PAGE = (ROOT / "docs/mlir.md").read_text()


@pytest.mark.skipif("jaxlib.mlir" not in mlir_bindings.installed(), reason="jaxlib is not installed")
def test_the_page_s_program_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "program.py").write_text(block)
    run = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr


def test_the_page_s_kernel_is_that_of_the_example() -> None:
    (block,) = re.findall(r"```mlir\n(.*?)```", PAGE, re.DOTALL)
    mlir.verify(block)
    for op in ("my_pe", "n_pes", "putmem_signal", "signal_wait_until"):
        assert f"shmem.{op}" in block and f"shmem.{op}(" in (ROOT / "examples/mlir_ring.py").read_text()


# ---- the engine on text

KERNEL = """\
llvm.func @f(%signal: !llvm.ptr<1>, %n: i64) attributes {nvvm.kernel} {
  %seen = shmem.signal_wait_until %signal, ge %n : !llvm.ptr<1>
  llvm.store %seen, %signal : i64, !llvm.ptr<1>
  llvm.return
}
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("garbage", r"^f\.mlir:1:1: custom op 'garbage' is unknown"),
        (KERNEL.replace("shmem.signal_wait", "shmem.signall_wait"), r"^f\.mlir:2:11: .*shmem\.signall_wait"),
        (KERNEL.replace("%n : ", "%m : "), r"^f\.mlir:2:\d+: use of undeclared SSA value"),
        (KERNEL.replace("ge %n", "near %n"), r"^f\.mlir:2:\d+: .*\bge\b"),
        ("llvm.func @f() {\n  %0 = shmem.my_pe : i64\n  llvm.return\n}", r"^f\.mlir:2:8: 'shmem\.my_pe' op result"),
        ("\0\x01\xff", r"^f\.mlir:1:2: unexpected character"),
    ],
)  # fmt: skip
def test_what_does_not_verify_is_one_error_with_its_line(source: str, message: str) -> None:
    with pytest.raises(mlir.IRError, match=message):
        mlir.verify(source, name="f.mlir")


def test_verified_text_is_lowered_for_each_gpu() -> None:
    nvidia = mlir.lower(KERNEL, transport="nvshmem")
    assert "nvvm.barrier" in nvidia and "global_smem" in nvidia, "a module without shared memory gets it"
    amd = mlir.lower(KERNEL, target="hip:gfx942")
    assert "llvm.amdgcn.s.barrier" in amd and "@triton_dist_signal_wait_until" in amd


def test_what_is_asked_for_exists() -> None:
    with pytest.raises(ValueError, match=r"no pass 'inlien': choose from .*, inline, "):
        mlir.run_passes(KERNEL, ["inlien"])
    with pytest.raises(ValueError, match=r"no transport 'nccl': choose from nvshmem, "):
        mlir.lower(KERNEL, transport="nccl")
    with pytest.raises(TypeError, match=r"expected the text of a module, .* not <class 'int'>"):
        mlir.verify(5)


def test_modules_are_called_as_the_errors_say() -> None:
    names = {"": "module", "a/b.mlir": "b", "x.py": "x", "..": "..", "a b\n:c": "a_b__c", "\0": "_"}
    assert {name: engine.file_name(name).removesuffix(".mlir") for name in names} == names
    assert len(engine.file_name("é" * 5000)) < 200


def test_a_crash_of_the_compiler_is_an_error() -> None:
    stderr = "python: Pass.cpp:102: void run(): Assertion `seenKernel' failed.\nPLEASE submit a bug report"
    message = engine.first_error(subprocess.CompletedProcess([], -6, "", stderr))
    assert message.startswith("the compiler ended by signal 6 on this module: ") and "seenKernel" in message
    said = "ptxas fatal   : Unresolved extern function 'foo'\nRepro command: ptxas"
    assert engine.first_error(subprocess.CompletedProcess([], 1, "", said)) == "ptxas: Unresolved extern function 'foo'"
    assert "status 3 and no message" in engine.first_error(subprocess.CompletedProcess([], 3, "", ""))
