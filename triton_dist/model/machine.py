"""The description of a machine: a TOML file, every value of which is there, is known and is positive."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["MACHINES", "CopyEngine", "Machine", "MachineError", "Memory", "NVLink", "Network", "Sm"]

MACHINES = Path(__file__).parent / "machines"
"""The descriptions that come with the package; ``--machine h200`` is ``h200.toml`` there."""


class MachineError(ValueError):
    """A description that is not one. Says which value of which file."""


@dataclass(frozen=True)
class Sm:
    """SMs of a GPU, and what each does by itself. Rates of bytes are GB/s, times are µs."""

    count: int
    programs: int
    """Programs that an SM holds at a time; its rates are shared among them."""
    load: float
    """Rate at which it issues loads."""
    store: float
    """Rate at which it issues stores."""
    fence: float
    """Time of a fence at system scope, besides the arrival of the stores before it."""
    stages: int
    """A ``tl.dot`` waits for loads that were issued so many dots ago less one, as in a software pipeline; of kernels
    that are launched without ``num_stages``."""
    launch: float
    """Time from the end of a kernel to the first instruction of the next of its stream."""
    flops: Mapping[int, float]
    """TFLOP/s of the whole GPU, by bytes of an operand's element."""


@dataclass(frozen=True)
class Memory:
    """A GPU's own memory, with its L2 cache."""

    bandwidth: float
    latency: float
    """Of a load."""
    l2_bandwidth: float
    """Of blocks that a program of the same kernel has loaded before, all of them together."""
    l2_latency: float
    """Of such a block, of a store, of an atomic operation, and of a look at a word that another SM has just written."""


@dataclass(frozen=True)
class NVLink:
    """The link of each GPU to one switch, in each direction."""

    bandwidth: float
    latency: float
    """From the SM that stores to the memory of the peer. A load takes it twice."""


@dataclass(frozen=True)
class CopyEngine:
    """What host code copies between GPUs."""

    bandwidth: float
    start: float
    """Time from the work before it in a stream to the first byte, and from the last to the work after it."""
    interval: float
    """Time between two copies in a row."""


@dataclass(frozen=True)
class Network:
    """The NICs of a host."""

    ports: int
    """NICs of a host; the PE with local number i uses number i modulo this."""
    bandwidth: float
    """Of a NIC, in each direction."""
    latency: float
    message: float
    """Time for which a message occupies its NIC, besides its bytes."""


@dataclass(frozen=True)
class Machine:
    name: str
    gpus_per_host: int
    sm: Sm
    memory: Memory
    nvlink: NVLink
    copy_engine: CopyEngine
    network: Network

    @staticmethod
    def load(file: str | Path) -> Machine:
        """The machine that a file describes, or that comes with the package by this name.

        Raises:
            MachineError: there is no such file, or a value is missing, unknown or wrong.
        """
        path = Path(file)
        if not path.suffix and (MACHINES / f"{file}.toml").is_file():
            path = MACHINES / f"{file}.toml"
        try:
            found = tomllib.loads(path.read_text("utf-8"))
        except OSError as error:
            names = ", ".join(sorted(known.stem for known in MACHINES.glob("*.toml")))
            raise MachineError(f"{file}: {error.strerror}; a file, or one of {names}") from None
        except ValueError as error:  # also of an encoding
            raise MachineError(f"{file}: {error}") from None
        machine: Machine = _made(Machine, found, str(file), "")
        return machine

    def host(self, pe: int) -> int:
        return pe // self.gpus_per_host


_TABLES: dict[str, type[Any]] = {
    "Sm": Sm,
    "Memory": Memory,
    "NVLink": NVLink,
    "CopyEngine": CopyEngine,
    "Network": Network,
}


def _made(kind: type[Any], found: Any, file: str, table: str) -> Any:
    """An instance of a dataclass from a table of TOML."""
    if not isinstance(found, dict):
        raise MachineError(f"{file}: [{table}] must be a table")
    known = {field.name: str(field.type) for field in fields(kind)}
    where = f"{table}." if table else ""
    for name in found:
        if name not in known:
            raise MachineError(f"{file}: {where}{name} is unknown; known are {', '.join(known)}")
    for name in known:
        if name not in found:
            raise MachineError(f"{file}: {where}{name} is missing")
    return kind(**{name: _value(of, found[name], file, where + name) for name, of in known.items()})


def _value(kind: str, value: Any, file: str, name: str) -> Any:
    if kind in _TABLES:
        return _made(_TABLES[kind], value, file, name)
    if kind == "str":
        if not isinstance(value, str) or not value:
            raise MachineError(f"{file}: {name} must be a text, got {value!r}")
        return value
    if kind.startswith("Mapping"):
        if not isinstance(value, dict) or not value or not all(key in ("1", "2", "4", "8") for key in value):
            raise MachineError(f"{file}: {name} must be a table by bytes of an element: 1, 2, 4, 8; got {value!r}")
        return {int(key): _value("float", each, file, f"{name}.{key}") for key, each in value.items()}
    is_number = type(value) is int or (kind == "float" and isinstance(value, float) and math.isfinite(value))
    if not is_number or value <= 0 or value > 1e12:
        what = "a positive integer" if kind == "int" else "a positive number"
        raise MachineError(f"{file}: {name} must be {what}, got {value!r}")
    return value if kind == "int" else float(value)
