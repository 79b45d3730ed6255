"""A launch of a planned GEMM in a CPU world: what its store warps store and signal, as JSON on the last line.

Arguments: the function, its algorithm, rows of A, columns of B and K on a PE.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest import mock

import torch

import triton_dist
from triton_dist import kernels
from triton_dist.cpu.builder import CpuBuilder
from triton_dist.cpu.gluon import tma
from triton_dist.cpu.program import running
from triton_dist.kernels.gemm.hopper import launch
from triton_dist.kernels.gemm.hopper.layout import TILES

name, algorithm = sys.argv[1:3]
m, n, k = map(int, sys.argv[3:])
world = triton_dist.init()
sent: dict[int, list[Any]] = {}
flags: list[torch.Tensor] = []
real_flags, real_atomic = launch.symmetric_flags, CpuBuilder.create_atomic_rmw


def of_program() -> list[Any]:
    return sent.setdefault(running().index[0], [])


class Store(tma.Store):
    def __init__(self, to: tma.Descriptor, place: list[int], block: Any) -> None:
        super().__init__(to, place, block)
        (rows, columns), _ = to.overlap(place)
        nbytes = (rows.stop - rows.start) * (columns.stop - columns.start) * to.elements.itemsize
        of_program().append(("bytes", pe_of(to.elements.ctypes.data), nbytes))


def pe_of(address: int) -> int:
    """Whose memory this is."""
    place = world.heap.find(address)
    return world.pe if place is None else place[0]


def noted_flags(*arguments: Any) -> torch.Tensor:
    flags.append(real_flags(*arguments))
    return flags[-1]


def noted_atomic(self: CpuBuilder, op: Any, pointer: Any, *more: Any) -> Any:
    address = int(pointer.data.flat[0])
    for pe in range(world.n_pes):
        begin = world.peer(flags[-1], pe).data_ptr()
        if op.name == "XCHG" and begin + 4 * int(TILES.value) <= address < begin + flags[-1].nbytes:
            of_program().append(("signal", pe))
    return real_atomic(self, op, pointer, *more)


a, b = torch.ones(m, k).half(), torch.ones(k, n).half()
out = (triton_dist.zeros(m, n * world.n_pes, dtype=torch.float16),) if name == "gemm_all_scatter" else ()
with (
    mock.patch.object(tma, "Store", Store),
    mock.patch.object(launch, "symmetric_flags", noted_flags),
    mock.patch.object(CpuBuilder, "create_atomic_rmw", noted_atomic),
):
    getattr(kernels, name)(a, b, *out, algorithm=algorithm)
print(json.dumps(sent))
