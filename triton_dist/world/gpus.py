"""What kernels ask about GPUs, as the PEs of a world agree on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from triton_dist.bootstrap.launch import Launch
from triton_dist.decoding import boolean, integer, record, text

__all__ = ["Gpu", "agree"]


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Attributes:
        name, capability: as in PyTorch.
        multiprocessors: how many of them kernels fill; some fewer than there are where PEs share a GPU.
        shared_memory: largest shared memory of a program, in bytes.
        l2_bytes: of the L2 cache; 0 if PyTorch does not say.
        launches_return: whether a launch returns before its kernel has ended; not with ``CUDA_LAUNCH_BLOCKING=1``.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_memory: int
    l2_bytes: int = 0
    launches_return: bool = True


_SIZE = integer(0, 1 << 62)
_SCHEMA = record(text(200), record(integer(0, 1000), integer(0, 1000)), _SIZE, _SIZE, _SIZE, boolean)


def agree(launch: Launch, mine: Gpu) -> Gpu:
    """What kernels are cut for: the same on every PE, but for the name, which is of its own GPU. *Collective.*

    A program of a kernel waits for the program of its number on other PEs, and algorithms for each other's signals. PEs
    that cut a call by their own GPUs, of which one has fewer SMs, would wait for ever.
    """
    if launch.n_pes == 1:
        return mine
    found = launch.exchange_values("GPU", list(dataclasses.astuple(mine)), _SCHEMA)
    return _shared_by(mine.name, [Gpu(*values) for values in found])


def _shared_by(name: str, gpus: Sequence[Gpu]) -> Gpu:
    """A GPU of this name with what each of ``gpus`` has."""
    of_each = [dataclasses.astuple(gpu)[1:] for gpu in gpus]
    return Gpu(name, *map(min, zip(*of_each, strict=True)))
