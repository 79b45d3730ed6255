"""The op table, lowering/include/Shmem/ShmemOps.td, as Python objects: what the reference and the tests read of it."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["TABLE", "TRANSPORTS", "Op", "ops"]

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "lowering/include/Shmem/ShmemOps.td"
TRANSPORTS = ("nvshmem", "p2p", "rocshmem")


@dataclass(frozen=True)
class Op:
    """One entry of the table."""

    name: str
    section: str
    summary: str
    description: str
    arguments: tuple[str, ...]
    """Names of operands and attributes, in order."""
    caller: str
    """"every thread" (of queries), "each thread", "block" or "elected"; empty for an op that calls no routine."""
    release: bool
    acquire: bool
    wait: bool
    routines: dict[str, str]
    """By transport; `$type`, `$op` and `$scope` stand for attributes, `$aligned` for what the plan finds out about the
    operands. Empty where the library has none."""

    @property
    def calls(self) -> bool:
        """Whether the op becomes a call of a routine."""
        return bool(self.caller)


@functools.cache
def ops() -> tuple[Op, ...]:
    """All ops, in the order of the table."""
    records = _dump()
    names = records["!instanceof"]["Shmem_Op"]
    sections = _sections()
    entries = [(_line(records[name]), records[name]) for name in names]
    return tuple(_op(entry, _section(sections, line)) for line, entry in sorted(entries, key=lambda pair: pair[0]))


def _dump() -> Any:
    """The table as llvm-tblgen's JSON."""
    tablegen = next(filter(None, map(shutil.which, ("llvm-tblgen-22", "llvm-tblgen"))), None)
    if tablegen is None:
        raise FileNotFoundError("llvm-tblgen is missing: scripts/install_system_packages.sh installs it")
    includes = [TABLE.parents[1], _headers(tablegen)]
    command = [tablegen, "--dump-json", *(f"-I{include}" for include in includes), str(TABLE)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _headers(tablegen: str) -> Path:
    """Where mlir/IR/OpBase.td lies, for the LLVM that ``tablegen`` is part of."""
    return Path(tablegen).resolve().parents[1] / "include"


def _op(record: Any, section: str) -> Op:
    callers = {
        "Shmem_Query": "every thread",
        "Shmem_EveryThreadOp": "each thread",
        "Shmem_BlockOp": "block",
        "Shmem_ElectedOp": "elected",
    }
    return Op(
        name=record["opName"],
        section=section,
        summary=record["summary"],
        description=_dedent(record["description"] or ""),
        arguments=tuple(name for _, name in record["arguments"]["args"]),
        caller=next((callers[c] for c in record["!superclasses"] if c in callers), ""),
        release=bool(record.get("release")),
        acquire=bool(record.get("acquire")),
        wait=bool(record.get("wait")),
        routines={transport: record.get(transport) or "" for transport in TRANSPORTS},
    )


def _dedent(text: str) -> str:
    import inspect

    return inspect.cleandoc(text)


def _line(record: Any) -> int:
    """Where in the table an op is defined: the last place that made its record."""
    return max(int(place.rsplit(":", 1)[1]) for place in record["!locs"] if place.startswith(TABLE.name))


def _sections() -> list[tuple[int, str]]:
    """The lines of the table's banners, with their titles."""
    lines = TABLE.read_text().splitlines()
    bars = [number for number, line in enumerate(lines, 1) if re.fullmatch(r"//===-+===//", line)]
    return [(bar, lines[bar].removeprefix("// ")) for bar in bars if bar + 2 in bars]


def _section(sections: list[tuple[int, str]], line: int) -> str:
    return [title for start, title in sections if start < line][-1]
