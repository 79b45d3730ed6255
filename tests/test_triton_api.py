"""Triton's internals are reached through triton_dist.triton_api, but for the places that are listed here."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton
from triton.compiler import CompiledKernel

from triton_dist import triton_api

PACKAGE = Path(__file__).resolve().parents[1] / "triton_dist"

PUBLIC = (
    *("triton.language", "triton.experimental", "triton.errors", "triton.testing"),
    "triton.tools.tensor_descriptor",
)
"""What Triton documents; and of ``triton`` itself all names without an underscore, but for submodules."""

OUTSIDE = {
    "compat/jit.py": {"triton.runtime.interpreter", "triton.runtime.jit"},
    "compat/threads.py": {"triton.compiler.errors"},
    "compile_check.py": {
        *("triton.backends.compiler", "triton.compiler", "triton.compiler.errors", "triton.runtime.jit"),
        "changes JITFunction",
    },
    # Run as a program it imports nothing of this package but the loader.
    "compiler/opt.py": {"triton._C.libtriton"},
    "cpu/bfloat16.py": {"triton.runtime"},
    "cpu/builder.py": {"triton.runtime"},
    "cpu/executor.py": {"triton.backends", "triton.runtime", "triton.runtime.errors", "changes stock"},
    "cpu/interpreter.py": {
        *("triton.runtime", "triton.runtime.autotuner", "triton.runtime.jit"),
        *("changes Autotuner", "changes JITFunction", "changes stock", "changes triton"),
    },
    "cpu/kernel_python.py": {
        *("triton._utils", "triton.compiler.code_generator", "triton.compiler.errors", "triton.runtime"),
    },
    "cpu/kernel_source.py": {"triton.compiler.code_generator", "triton.runtime", "triton.runtime.jit"},
    "cpu/language_patch.py": {"triton.runtime", "triton.runtime.jit"},
    "cpu/processor.py": {"triton.runtime"},
}
"""What is still elsewhere. Nothing is to be added; what is moved into the seam goes from here."""


def _is_public(module: str) -> bool:
    inner = module.split(".")[1:]
    return module.startswith(PUBLIC) and not any(part.startswith("_") for part in inner)


def _reaches(file: Path) -> Iterator[str]:
    """Modules of Triton's that are none of its public ones, and names of Triton's that are changed."""
    tritons = {"triton"}
    nodes = list(ast.walk(ast.parse(file.read_text())))
    for node in nodes:
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "triton":
                    tritons.add(name.asname or "triton")
                    if name.name != "triton" and not _is_public(name.name):
                        yield name.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "triton":
            tritons.update(name.asname or name.name for name in node.names)
            public = node.module == "triton" or _is_public(node.module or "")
            if not public or any(name.name.startswith("_") for name in node.names):
                yield node.module or ""
    for node in nodes:
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = list(node.targets)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            targets = [ast.Attribute(node.args[0], "…", ast.Store())]
        for target in targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)) and (root := _root(target)) in tritons:
                yield f"changes {root}"


def _root(expression: ast.expr) -> str | None:
    """``a`` of ``a.b[c].d``."""
    while isinstance(expression, (ast.Attribute, ast.Subscript)):
        expression = expression.value
    return expression.id if isinstance(expression, ast.Name) else None


def test_what_reaches_into_triton_is_known() -> None:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        part = str(file.relative_to(PACKAGE))
        if not part.startswith("triton_api/") and (reaches := set(_reaches(file))):
            found[part] = reaches
    assert found == OUTSIDE


def test_each_kind_of_reach_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "reaches.py"
    file.write_text(
        "import triton\nimport triton.language as tl\nfrom triton.language import core\n"
        "from triton.errors import TritonError\nfrom triton import jit, _utils\n"
        "import triton.runtime.jit as inner\nfrom triton.language._core import x\n"
        "tl.load = 1\ninner.a.b[0] = 2\nsetattr(core, 'name', 3)\ndel jit.x\nmine = triton.jit\nmine.attribute = 1\n"
    )
    assert set(_reaches(file)) == {
        *("triton", "triton.runtime.jit", "triton.language._core"),
        *("changes tl", "changes inner", "changes core", "changes jit"),
    }


def test_the_seam_is_for_the_installed_triton() -> None:
    line = triton.__version__.rpartition(".")[0].replace(".", "_")
    assert {getattr(triton_api, name).__module__ for name in ("Conversion", "extend_compilation", "cached_file")} == {
        f"triton_dist.triton_api.v{line}"
    }


def test_a_kernel_is_loaded_once_and_nobody_launches_it_before_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    threads, begun = 8, threading.Event()

    def init_handles(kernel: SimpleNamespace) -> None:
        if kernel.module is None:
            kernel.module = 1  # as Triton's does, before it calls its hooks
            begun.set()
            threading.Event().wait(0.2)
            done.append("hooks")

    monkeypatch.setattr(CompiledKernel, "_init_handles", init_handles)
    triton_api.extend_loading(lambda kernel: done.append("extension"))
    triton_api.extend_loading(lambda kernel: done.append("never"))
    kernel = SimpleNamespace(module=None)

    def launch(number: int) -> list[str]:
        if number:
            begun.wait(20)
        CompiledKernel._init_handles(kernel)
        return list(done)

    with ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(launch, range(threads))) == [["hooks", "extension"]] * threads
