"""Dependencies point one way: the language knows no transport, the lowering no Python, the runtime neither."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "triton_dist"


def _imports(file: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
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


WORLDS = ("triton_dist.world", "triton_dist.bootstrap", "triton_dist.cpu", "triton_dist.gpu")

# What a part may not import, not even inside a function.
FORBIDDEN = {
    "language": (*WORLDS, "triton_dist.compiler", "triton_dist.testing", "triton_dist._C", "torch"),
    "compiler": (*WORLDS, "triton_dist.language", "triton_dist.testing", "triton_dist._C._runtime"),
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
    "check": (*WORLDS, "triton_dist.language", "triton_dist.compiler", "triton_dist._C", "torch", "triton"),
    "testing": ("triton_dist.language", "triton_dist.compiler"),
    "triton_api": (*WORLDS, *(f"triton_dist.{part}" for part in ("compiler", "language", "kernels", "check", "_C"))),
    "environment.py": ("triton_dist", "torch", "triton"),
    "bootstrap/": ("triton_dist.cpu", "triton_dist.gpu", "triton_dist.language", "triton_dist.compiler", "triton"),
    "world/base.py": ("triton_dist.world.api", "triton_dist.cpu", "triton_dist.gpu", "triton"),
    "gpu/": ("triton_dist._C", "triton_dist.cpu", "triton_dist.language"),
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
