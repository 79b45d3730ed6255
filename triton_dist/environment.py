"""Every environment variable that triton_dist reads: one table, read through one function.

A variable is read when it is asked for, not at import, so that a test or a launcher may set it late. The reference page
in ``docs/`` is made from this table (``python -m triton_dist.environment``).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["VARIABLES", "Variable", "check_all", "get", "size", "size_of"]


@dataclass(frozen=True)
class Variable:
    """One variable: how its text is read, what it is when unset, and what it is for."""

    name: str
    parse: Callable[[str], Any]
    default: Any
    help: str
    kind: str


def _choice(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return text.lower()

    return parse


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("expected 1 or 0")


def _folder(text: str) -> str:
    if not text.strip() or not os.path.isdir(text):
        raise ValueError("expected a folder that exists")
    return text


def _sms(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise ValueError("expected a number of SMs from 1 to 9999")
    return int(text)


_MAX_SECONDS = 1_000_000  # 11.6 days; waits of the operating system accept at most about twice that


def _capability(text: str) -> tuple[int, int]:
    if text != "9.0":
        raise ValueError("expected 9.0, Hopper's: kernels for others are not interpreted")
    return 9, 0


def _seconds(text: str) -> float:
    if not re.fullmatch(_NUMBER, text) or not 0.001 <= float(text) <= _MAX_SECONDS:
        raise ValueError(f"expected a number of seconds from 0.001 to {_MAX_SECONDS}, such as 30 or 0.5")
    return float(text)


def _target(text: str) -> str | None:
    if text.lower() in ("0", "false", "no", "off", ""):
        return None
    if text.lower() in ("1", "true", "yes", "on"):
        return "sm_90"
    if not re.fullmatch(r"sm_\d+|gfx[0-9a-f]+", text.lower()):
        raise ValueError("expected 1 (for sm_90), sm_<number>, gfx<number> or 0")
    return text.lower()


def _timeout(text: str) -> float:
    if text == "0":
        return math.inf
    try:
        return _seconds(text)
    except ValueError as error:
        raise ValueError(f"{error}, or 0 for never") from None


def _schedule(text: str) -> str:
    name, _, seed = text.lower().partition(":")
    is_seed = name == "random" and re.fullmatch("[0-9]{1,18}", seed)
    if not is_seed and text.lower() not in ("round-robin", "eager", "adversarial"):
        raise ValueError("expected round-robin, eager, adversarial or random:<seed> (at most 18 digits)")
    return text.lower()


def _topology(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})", text.strip().lower())
    if not found:
        raise ValueError("expected <hosts>x<PEs of each>, such as 2x4")
    return int(found[1]), int(found[2])


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("expected the path of a file")
    return text


_NUMBER = r"[0-9]{1,20}(\.[0-9]{0,20})?"
_MAX_SIZE = 1 << 46  # half of a process's address space
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(text: str) -> int:
    """Bytes of ``"512M"``; K, M, G and T are powers of 1024."""
    found = re.fullmatch(rf"({_NUMBER})\s*([KMGT]?)(I?B)?", text.strip().upper())
    value = int(float(found[1]) * _UNITS[found[3]]) if found else 0
    if not 0 < value <= _MAX_SIZE:
        raise ValueError("expected a size of 1 to 64T bytes, such as 512M or 2G")
    return value


def size_or_none(text: str) -> int:
    """As :func:`size`, or 0."""
    return 0 if text.strip() == "0" else size(text)


VARIABLES: dict[str, Variable] = {
    v.name: v
    for v in (
        Variable(
            "TRITON_DIST_WORLD",
            _choice("cpu", "gpu"),
            None,
            "Which world to build. Unset: gpu when PyTorch sees a GPU, else cpu.",
            "cpu or gpu",
        ),
        Variable(
            "TRITON_DIST_TRANSPORT",
            _choice("auto", "p2p", "nvshmem", "rocshmem", "rocshmem-6"),
            "auto",
            "The device library of kernels on GPUs. auto: p2p where every PE reaches every other by load and store, "
            "else nvshmem. rocshmem, rocshmem-6 (up to ROCm 6.4): AMD GPUs, compiled but never run.",
            "name",
        ),
        Variable(
            "TRITON_DIST_CPU_TRANSPORT",
            _choice("shared", "oshmem"),
            "shared",
            "What carries a CPU world. shared: memory that the processes of one machine share. oshmem: Open MPI's "
            "OpenSHMEM library, also between hosts (docs/launching.md). The same on all PEs.",
            "shared or oshmem",
        ),
        Variable(
            "TRITON_DIST_SYMMETRIC_SIZE",
            size,
            1 << 30,
            "Size of each PE's symmetric heap, in bytes; K, M, G and T are powers of 1024.",
            "size",
        ),
        Variable(
            "TRITON_DIST_GROUP_MEMORY",
            size_or_none,
            256 << 20,
            "Bytes of symmetric memory of each PE, beside TRITON_DIST_SYMMETRIC_SIZE, for the workspaces of groups of "
            "some PEs (docs/kernels.md); 0: none. The same on all PEs; read by init().",
            "size",
        ),
        Variable(
            "TRITON_DIST_INIT_TIMEOUT",
            _seconds,
            120.0,
            "Seconds that init() waits for the other PEs to come; then it says which did not.",
            "seconds",
        ),
        Variable(
            "TRITON_DIST_SECRET_FILE",
            _path,
            None,
            "File with the secret that authenticates the PEs to each other. It is the same on all hosts, and only its "
            "owner may read it (chmod 600). For worlds on several hosts; a world on one host needs none.",
            "path",
        ),
        Variable(
            "TRITON_DIST_TUNING_DIR",
            _path,
            None,
            "Folder of what kernels.tune() has measured on this host (docs/kernels.md). Unset: triton_dist/tuning in "
            "XDG_CACHE_HOME or ~/.cache. It is yours, and other users cannot write to it.",
            "path",
        ),
        Variable(
            "TRITON_DIST_TOPOLOGY",
            _topology,
            None,
            "Divides the PEs into pretended hosts, such as 2x4: two hosts of four PEs each. Between them nothing is "
            "reached by load and store (docs/world.md, Hosts). The same on all PEs; read by init().",
            "hosts x PEs",
        ),
        Variable(
            "TRITON_DIST_ALLOW_SHARED_GPU",
            _flag,
            False,
            "Let several PEs share a GPU, for developing on one: over p2p, with waits that may be slow or never end.",
            "flag",
        ),
        Variable(
            "TRITON_DIST_WAIT_TIMEOUT",
            _timeout,
            60.0,
            "Seconds after which a wait in a kernel, or of a host for other PEs, is reported; 0: never. CPU world: a "
            "kernel ends with an error when none of its programs has made progress for this time. GPU world: see "
            "TRITON_DIST_WAIT_ACTION; read by init().",
            "seconds",
        ),
        Variable(
            "TRITON_DIST_WAIT_ACTION",
            _choice("report", "abort"),
            "report",
            "GPU world, and waits of a host: what happens after TRITON_DIST_WAIT_TIMEOUT. report: a report on stderr; "
            "the wait goes on. abort: the report; then the world is broken and every PE ends with an error. Read by "
            "init().",
            "report or abort",
        ),
        Variable(
            "TRITON_DIST_SCHEDULE",
            _schedule,
            "round-robin",
            "CPU world: how the next program and the next PE are chosen. All but round-robin run one PE at a time and "
            "also switch at accesses to symmetric memory, so that a failure can be reproduced.",
            "round-robin, eager, adversarial or random:<seed>",
        ),
        Variable(
            "TRITON_DIST_CHECK",
            _flag,
            False,
            "CPU world: look for races, deadlocks and misuse of symmetric memory, report them at the end and exit with "
            "status 1. triton-dist-check sets it.",
            "flag",
        ),
        Variable(
            "TRITON_DIST_CHECK_LOG",
            _folder,
            None,
            "CPU world: an existing folder where a checked run leaves the logs of its PEs, as pe0.log and so on, in "
            "place of looking for mistakes in them. Memory that is not symmetric and tl.dot are recorded, too. "
            "triton-dist-model sets it.",
            "folder",
        ),
        Variable(
            "TRITON_DIST_CPU_SMS",
            _sms,
            None,
            "CPU world: kernels of the library cut their work as on a GPU with so many SMs; unset: as it is fast to "
            "interpret. triton-dist-model sets it. The same on all PEs.",
            "number",
        ),
        Variable(
            "TRITON_DIST_CPU_CAPABILITY",
            _capability,
            None,
            "CPU world: kernels of the library are those for GPUs of this compute capability, some of them in Gluon; "
            "unset: those in plain Triton. The same on all PEs.",
            "9.0",
        ),
        Variable(
            "TRITON_DIST_CHECK_COMPILE",
            _target,
            None,
            "CPU world: also compile each launched kernel for this GPU (1 is sm_90). A failure is a finding with "
            "TRITON_DIST_CHECK, and an error of the launch without it. triton-dist-check --compile sets this variable.",
            "1, sm_90, gfx942, …",
        ),
        Variable(
            "TRITON_DIST_LAUNCH_CHECKS",
            _flag,
            True,
            "GPU world: before a kernel with shmem ops is launched, look at what it needs: a grid that is resident if "
            "it has collectives, and symmetric tensors where ops need them. Read when a kernel is loaded.",
            "flag",
        ),
        Variable(
            "TRITON_DIST_NATIVE_CALLS",
            _flag,
            True,
            "GPU world: calls of triton_dist.kernels that were made before are made again by C++, where the build has "
            "that and PyTorch tells C about tensors; 0: by Python. Read when a communicator makes its first call.",
            "flag",
        ),
        Variable(
            "TRITON_DIST_DEPENDENT_LAUNCH",
            _flag,
            False,
            "GPU world: kernels of a decode step take their places while those in front of them end (programmatic "
            "dependent launch, from Hopper on). Off, as it has not been timed on H100s. Read by init().",
            "flag",
        ),
        Variable(
            "TRITON_DIST_MLIR_BINDINGS",
            _choice("mlir", "jaxlib.mlir", "iree.compiler"),
            None,
            "The package whose MLIR bindings triton_dist.mlir is used with. Unset: one that the program has imported, "
            "else the first of these that is installed.",
            "mlir, jaxlib.mlir or iree.compiler",
        ),
        Variable(
            "TRITON_DIST_DISABLE_PLUGIN",
            _flag,
            False,
            "Start Triton without our plugin (read by the start-up hook, before triton_dist is imported).",
            "flag",
        ),
    )
}


def get(name: str) -> Any:
    """The parsed value of a variable of the table, or its default when it is unset.

    Raises:
        ValueError: its text cannot be read; the message quotes it and says what was expected.
    """
    variable = VARIABLES[name]
    return _parsed(name, variable.parse, variable.default)


def check_all() -> None:
    """Read all variables, also those that are asked for late or never.

    Raises:
        ValueError: as of :func:`get`.
    """
    for name in VARIABLES:
        get(name)


def size_of(name: str, default: int) -> int:
    """The size that another library's variable holds, parsed like our own sizes; errors as of :func:`get`."""
    found: int = _parsed(name, size, default)
    return found


def _parsed(name: str, parse: Callable[[str], Any], default: Any) -> Any:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(
            f"{name}={text!r}: {error}" if len(text) <= 60 else f"{name}={text[:60]!r}…: {error}"
        ) from None


def _page() -> str:
    rows = [f"| `{v.name}` | {v.kind} | {v.default} | {v.help} |" for v in VARIABLES.values()]
    return "\n".join(["| variable | kind | default | meaning |", "| --- | --- | --- | --- |", *rows])


if __name__ == "__main__":
    print(_page())
