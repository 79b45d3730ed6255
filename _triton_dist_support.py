"""What is installed, what of it is supported, and what to do: a pure function of what ``triton-dist-info`` finds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

__all__ = ["PYTORCH", "TESTED", "Found", "Row", "matrix", "satisfies", "table"]

TESTED = {
    "3.7.1": "whole test suite, also on GPUs",
    "3.8.0": "tests that are not slow on CPU, not run on a GPU",
    "3.9.0": "tests that are not slow on CPU, ops on a GPU, GEMMs for Hopper not on a GPU",
}
"""What each version of Triton was tested with. docs/building.md says what the smoke set is, and names the tests."""

PYTORCH = {"3.7.1": "2.13", "3.8.0": "2.14", "3.9.0": "2.15"}
"""The PyTorch that is made for each version of Triton: pip installs the two together."""


@dataclass(frozen=True)
class Found:
    """What is here. None: it is not installed."""

    python: str
    requires: dict[str, str] = field(default_factory=dict)
    """What the package asks for: ``{"python": ">=3.10", "torch": ">=2.13", "nvshmem": ">=3.4.5,<3.9"}``."""
    triton: str | None = None
    plugins: tuple[str, ...] = ()
    """The versions of Triton that there are plugins for."""
    supported: tuple[str, ...] = ()
    """Those that plugins can be built for."""
    plugin: str | None = None
    """The file that would be loaded."""
    runtime: str | None = None
    """The file of the CPU world's library."""
    torch: str | None = None
    torch_gpu: str | None = None
    """What PyTorch is built for: ``"13.0"``, ``"HIP 6.4"``."""
    gpus: int = 0
    nvshmem_device: str | None = None
    """The version of the bitcode, as those of the next two."""
    nvshmem_host: str | None = None
    nvshmem4py: str | None = None
    mlir: tuple[tuple[str, str], ...] = ()
    """Packages with MLIR's Python bindings, and their versions."""


@dataclass(frozen=True)
class Row:
    """A component."""

    component: str
    installed: str
    supported: str
    status: str
    """``"ok"``, ``"optional"`` (is missing and not needed here), ``"missing"`` or ``"unsupported"``."""
    action: str = ""
    """The command that mends it."""
    tested: str = ""
    """How far this version was tested."""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)


def matrix(found: Found) -> list[Row]:
    """A row for each component that the package works with."""
    needs_gpu_packages = found.gpus > 0 and not (found.torch_gpu or "").startswith("HIP")
    absent = "missing" if needs_gpu_packages else "optional"
    cuda = "12" if (found.torch_gpu or "").startswith("12.") else "13"
    extra = f"pip install 'triton-dist[cuda{cuda}]'"
    wanted = found.requires.get("nvshmem", "")
    bitcode = f"pip install 'nvidia-nvshmem-cu{cuda}{wanted}'"
    usable = found.nvshmem_device and satisfies(found.nvshmem_device, wanted)
    same = f"=={found.nvshmem_device}" if usable else wanted
    return [
        _by_version("Python", found.python, found.requires.get("python", ""), "install another Python"),
        _triton(found),
        _plugin(found),
        _by_version("PyTorch", found.torch, found.requires.get("torch", ""), _install(found)),
        _runtime(found),
        _nvshmem("NVSHMEM bitcode", found.nvshmem_device, wanted, absent, bitcode),
        _nvshmem("NVSHMEM host library", found.nvshmem_host, same, absent, extra),
        _nvshmem("nvshmem4py", found.nvshmem4py, "", absent, extra),
        _mlir(found),
    ]


def table(rows: Iterable[Row]) -> list[str]:
    """The rows as lines of text."""
    cells = [("", "installed", "supported", "")] + [
        (row.component, row.installed or "–", row.supported or "any", ": ".join(filter(None, (row.status, row.tested))))
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = ["  ".join(f"{text:{width}}" for text, width in zip(line, (*widths, 0), strict=True)) for line in cells]
    return [line.rstrip() for line in lines] + [_advice(row) for row in rows if row.action]


def _advice(row: Row) -> str:
    return f"→ {row.component}{' (optional)' if row.status == 'optional' else ''}: {row.action}"


def satisfies(version: str, requirement: str) -> bool:
    """Whether a version is in a range such as ``>=2.13,<3`` or ``==3.7.1``. Local parts (``+cpu``) do not count."""
    for part in filter(None, requirement.replace(" ", "").split(",")):
        found = re.fullmatch(r"(>=|<=|==|!=|<|>|~=)([\d.]+)(\.\*)?", part)
        if found is None:
            return True  # what cannot be read counts as fitting
        have, want = _numbers(version), _numbers(found[2])
        have = have[: len(want)] if found[3] or found[1] == "~=" else have
        size = max(len(have), len(want))
        have, want = (numbers + (0,) * (size - len(numbers)) for numbers in (have, want))
        held = {
            ">=": have >= want,
            "<=": have <= want,
            "==": have == want,
            "!=": have != want,
            "<": have < want,
            ">": have > want,
            "~=": have >= want,
        }
        if not held[found[1]]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[+a-zA-Z]", version)[0]))


def _by_version(component: str, installed: str | None, requirement: str, action: str) -> Row:
    if installed is None:
        return Row(component, "", requirement, "missing", action)
    if satisfies(installed, requirement):
        return Row(component, installed, requirement, "ok")
    return Row(component, installed, requirement, "unsupported", f"{action} (supported: {requirement})")


def _install(found: Found) -> str:
    """The command that installs a Triton with a plugin, and the PyTorch that belongs to it where that is another."""
    usable = found.plugins or found.supported
    if not usable:
        return "make build (in a source tree)"
    release = ".".join((found.torch or "").split(".")[:2])
    if fitting := [version for version in usable if PYTORCH.get(version) == release]:
        return f"pip install triton=={fitting[-1]}"
    version = found.triton if found.triton in usable else usable[-1]
    return f"pip install 'torch=={PYTORCH[version]}.*' triton=={version}"


def _triton(found: Found) -> Row:
    supported = ", ".join(found.supported or found.plugins)
    install = _install(found)
    if found.triton is None:
        return Row("Triton", "", supported, "missing", install)
    if found.triton in found.plugins:
        return Row("Triton", found.triton, supported, "ok", tested=TESTED.get(found.triton, ""))
    if found.triton in found.supported:
        return Row("Triton", found.triton, supported, "unsupported", f"make plugins (builds one for it), or {install}")
    return Row("Triton", found.triton, supported, "unsupported", install)


def _plugin(found: Found) -> Row:
    supported = f"Triton {', '.join(found.plugins)}" if found.plugins else ""
    if found.plugin:
        return Row("plugin", found.plugin, supported, "ok")
    return Row("plugin", "", supported, "missing", "" if found.plugins else "make build (in a source tree)")


def _runtime(found: Found) -> Row:
    if found.runtime:
        return Row("library of CPU worlds", found.runtime, "any Python", "ok")
    return Row("library of CPU worlds", "", "any Python", "optional" if found.gpus else "missing", "make build")


def _nvshmem(component: str, installed: str | None, wanted: str, absent: str, action: str) -> Row:
    if installed is None:
        return Row(component, "", wanted, absent, action)
    if not satisfies(installed, wanted):
        return Row(component, installed, wanted, "unsupported", action)
    return Row(component, installed, wanted, "ok")


def _mlir(found: Found) -> Row:
    packages = ", ".join(f"{name} {version}".strip() for name, version in found.mlir)
    supported = "mlir, jaxlib.mlir, iree.compiler"
    if packages:
        return Row("MLIR bindings", packages, supported, "ok")
    return Row("MLIR bindings", "", supported, "optional", "pip install 'triton-dist[mlir]'")
