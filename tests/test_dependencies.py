"""Dependencies point one way: the language knows no transport, the lowering no Python, the runtime neither."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "triton_dist"


@functools.cache
def _import_statements(source: str) -> list[ast.Import | ast.ImportFrom]:
    """Anywhere in it."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))]


def _imports(file: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in _import_statements(file.read_text()):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _sources(*folders: str) -> list[Path]:
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.suffix in (".cpp", ".h", ".td")]
    assert files, f"no sources in {folders}"
    return files


ORDER = (
    *("environment", "cublas", "decoding", "process_state", "stream_operations", "torch_api"),  # alone
    *("native_calls", "triton_api"),  # what they add to PyTorch and Triton
    *("mlir_bindings", "_C", "comparisons"),  # what the build makes, and its tables
    *("bootstrap", "testing", "check"),  # processes: how they find each other, how they are started, what they did
    "model",  # what that costs on a machine
    *("compiler", "language"),  # kernels become code
    *("world", "cpu", "gpu"),  # the contract, and what keeps it
    *("compile_check", "compat", "api", "autotune", "triton_dist"),  # the public names
    *("ahead_of_time", "mlir"),  # kernels for elsewhere, and from elsewhere
    *("kernels", "tensor_parallel", "nn", "expert_buffer", "deep_ep", "serving"),  # what uses them
    *("spawning", "profiler_utils", "utils", "demo", "info"),
)
"""Packages and modules of the package, from the lowest: each imports those before it only. ``triton_dist`` is its
``__init__.py``."""


def _graph(root: Path) -> dict[str, set[str]]:
    """By module of the package at ``root``: the modules that it imports, anywhere in it, for type checkers too.

    Packages that enclose an imported module are imported with it. That counts only if a name is taken from them: any
    ``__init__.py`` that collects names would close a cycle otherwise, which Python resolves in every order of imports.
    """
    files = {".".join(_parts(file, root)): file for file in root.rglob("*.py")}
    return {module: set(_imported(file, files)) - {module} for module, file in files.items()}


def _parts(file: Path, root: Path) -> list[str]:
    parts = list(file.relative_to(root.parent).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def _imported(file: Path, modules: Container[str]) -> Iterator[str]:
    """Those of ``modules`` that a file imports, or takes names from."""
    for node in _import_statements(file.read_text()):
        names = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{name.name}" for name in node.names]
            names = [name if name in modules else node.module for name in full]
        yield from (name for name in names if name in modules)


def _package(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def _cycle(graph: Mapping[str, Iterable[str]]) -> str:
    """A cycle of a graph as ``a imports b imports a``; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " imports ".join(reversed(error.args[1]))
    return ""


def test_no_modules_import_each_other() -> None:
    graph = _graph(PACKAGE)
    assert len(graph) > 100
    assert not _cycle(graph)


def test_packages_import_lower_ones_only() -> None:
    for module, imported in _graph(PACKAGE).items():
        assert _package(module) in ORDER, f"{module}: give it a place in the order"
        for other in imported:
            lower = ORDER.index(_package(other)) <= ORDER.index(_package(module))
            assert lower, f"{module} imports {other}, whose package is not below its own"


SHARED = ("triton_dist._C", "triton_dist.language._poll")
"""The compiled modules, and the op that reports the waits of the kernel library's own loops."""


def test_private_names_stay_in_their_package() -> None:
    for file in sorted(PACKAGE.rglob("*.py")):
        own = _package(".".join(_parts(file, PACKAGE)))
        for name in _imports(file):
            if name.split(".")[0] == "triton_dist" and not name.startswith(SHARED) and _package(name) != own:
                private = [part for part in name.split(".") if part.startswith("_")]
                assert not private, f"{file.relative_to(ROOT)} imports {name}"


def test_cycles_of_every_kind_of_import_are_found(tmp_path: Path) -> None:
    package = tmp_path / "p"
    (package / "q").mkdir(parents=True)
    sources = {
        "__init__.py": "from p import a",
        "a.py": "def f():\n    from p.q import b, c",
        "q/__init__.py": "from p.q.b import g",
        "q/b.py": "import p.q.c",
        "q/c.py": "x = 1",
    }

    def cycle(**changes: str) -> str:
        for name, text in (sources | {f"{name.replace('_', '/')}.py": text for name, text in changes.items()}).items():
            (package / name).write_text(text)
        return _cycle(_graph(package))

    late = "def f():\n    import p.q.b"
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import f"
    assert not cycle()
    assert cycle(q_c=late) in ("p.q.b imports p.q.c imports p.q.b", "p.q.c imports p.q.b imports p.q.c")
    assert set(cycle(q_c=typed).split(" imports ")) == {"p.a", "p.q.c"}
    assert "p.q " in cycle(q_c="from p.q import g")
    assert not cycle(q_c="import os")


WORLDS = ("triton_dist.world", "triton_dist.bootstrap", "triton_dist.cpu", "triton_dist.gpu")

# What a part may not import, not even inside a function. All may import the op table, triton_dist._C.op_table.
FORBIDDEN = {
    "language": (*WORLDS, "triton_dist.compiler", "triton_dist.testing", "torch"),
    "compiler": (*WORLDS, "triton_dist.language", "triton_dist.testing"),
    "kernels": (
        "triton_dist.bootstrap",
        "triton_dist.cpu",
        "triton_dist.gpu",
        "triton_dist.compiler",
        "triton_dist.testing",
        "triton_dist._C",
        "nvshmem",
    ),
    **dict.fromkeys(("bootstrap", "world", "gpu", "cpu"), ("triton_dist.kernels", "triton_dist.compile_check")),
    "check": (*WORLDS, "triton_dist.language", "triton_dist.compiler", "torch", "triton"),
    "testing": ("triton_dist.language", "triton_dist.compiler"),
    "triton_api": (*WORLDS, *(f"triton_dist.{part}" for part in ("compiler", "language", "kernels", "check", "_C"))),
    "_C/op_table.py": ("triton_dist", "torch", "triton"),
    "comparisons.py": (*WORLDS, "triton_dist.language", "torch", "triton"),
    "environment.py": ("triton_dist", "torch", "triton"),
    "bootstrap/": ("triton_dist.cpu", "triton_dist.gpu", "triton_dist.language", "triton_dist.compiler", "triton"),
    "world/": ("triton",),
    "gpu/": ("triton_dist.cpu", "triton_dist.language"),
    "cpu/": ("triton_dist.gpu", "triton_dist.compiler", "nvshmem", "cuda"),
}


@pytest.mark.parametrize("part", FORBIDDEN)
def test_imports(part: str) -> None:
    place = PACKAGE / part
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files, f"{place} is gone"
    for file in files:
        for module in _imports(file):
            for forbidden in FORBIDDEN[part]:
                wrong = module == forbidden or module.startswith(f"{forbidden}.")
                assert not wrong, f"{file.relative_to(ROOT)} imports {module}"


def test_lowering_knows_no_python() -> None:
    for file in _sources("lowering"):
        found = re.search(r'#include\s+[<"](Python\.h|pybind11)', file.read_text())
        assert not found, f"{file.relative_to(ROOT)}: {found.group()}"


def test_runtime_knows_neither_python_nor_ir() -> None:
    for file in _sources("runtime"):
        found = re.search(r'#include\s+[<"](Python\.h|pybind11|mlir|llvm|torch|Shmem)', file.read_text())
        assert not found, f"{file.relative_to(ROOT)}: {found.group()}"


def test_symbols_of_device_libraries_are_spelled_in_one_place() -> None:
    """Conversion patterns take callees from the op table."""
    for file in _sources("lowering/lib/Conversion", "lowering/lib/Plugin"):
        found = re.search(r'"(nvshmemx?_|rocshmem_(?!\w+_t"))\w+"', file.read_text())  # but for names of types
        assert not found, f"{file.relative_to(ROOT)} spells {found.group()}"
