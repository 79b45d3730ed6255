"""Which ops of the table were really used: seen in every kernel that is loaded, or in every op that is interpreted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["start", "take"]

_seen: set[str] = set()


def start(gpu: bool) -> None:
    """Take notes from now on."""
    if gpu:
        from triton import knobs

        knobs.runtime.kernel_load_end_hook.add(_loaded)
        return
    from triton_dist.cpu.builder import CpuBuilder

    plain = CpuBuilder.shmem_op

    def shmem_op(builder: Any, op: Any, *arguments: Any) -> Any:
        _seen.add(op.name)
        return plain(builder, op, *arguments)

    CpuBuilder.shmem_op = shmem_op  # type: ignore[method-assign]


def take() -> list[str]:
    """The ops used since the last call. A kernel counts where it is loaded first."""
    ops = sorted(_seen)
    _seen.clear()
    return ops


def _loaded(module: int, function: int, name: str, metadata_group: Mapping[str, str], key: str) -> None:
    # The first that all kernels have: those that are written in Gluon skip TTIR.
    source = next(path for file, path in metadata_group.items() if file.endswith(".ttgir"))
    _seen.update(re.findall(r"\bshmem\.(\w+)", Path(source).read_text()))
