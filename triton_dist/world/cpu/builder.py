"""Triton's interpreter with what a world adds: shmem ops, and programs that let others run while they poll."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from triton_dist.world.cpu.accesses import may_touch
from triton_dist.world.cpu.bfloat16 import Bfloat16Builder
from triton_dist.world.cpu.ops import IMPLEMENTATIONS, intention
from triton_dist.world.cpu.processor import ProcessorBuilder
from triton_dist.world.cpu.schedule import Access
from triton_dist.world.cpu.scheduler import running
from triton_dist.world.cpu.world import current

__all__ = ["CpuBuilder"]

_POLLABLE = 4096
"""Bytes: a volatile load or an atomic of more than this is data, not something that a program spins on."""


class CpuBuilder(Bfloat16Builder, ProcessorBuilder):
    """The class of ``triton.runtime.interpreter.interpreter_builder`` in the CPU world."""

    def shmem_op(self, name: str, operands: Sequence[Any], attributes: Sequence[int]) -> int | float | None:
        """Do one op of the dialect; see :mod:`triton_dist.world.cpu.ops`."""
        world = current()
        if world is not None and world.turns is not None and (access := intention(name)) is not Access.NOTHING:
            running().may_be_interrupted(world.turns, access)
        result: int | float | None = IMPLEMENTATIONS[name](*(operand.data.item() for operand in operands), *attributes)
        return result

    # ---- a program that sees again and again what it saw before waits for somebody: let that one run

    def create_masked_load(
        self, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: bool
    ) -> Any:
        _touching(Access.READ, ptrs)
        loaded = super().create_masked_load(ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)
        if is_volatile:
            _polled("volatile tl.load", ptrs, loaded)
        return loaded

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        _touching(Access.PUBLISH, ptr)
        before = super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)
        _polled(f"tl.atomic_{rmwOp.name.lower()}", ptr, before)
        return before

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        _touching(Access.PUBLISH, ptr)
        before = super().create_atomic_cas(ptr, cmp, val, sem, scope)
        if np.array_equal(before.data, np.broadcast_to(cmp.data, before.data.shape)):
            running().steps += 1  # it has what it wanted
        else:
            _polled("tl.atomic_cas", ptr, before)
        return before

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any) -> Any:
        _touching(Access.WRITE, ptrs)
        running().steps += 1
        return super().create_masked_store(ptrs, value, mask, cache_modifier, eviction_policy)


def _touching(access: Access, pointers: Any) -> None:
    world = current()
    if world is not None and world.turns is not None and may_touch(world.heap, world.n_pes, pointers.data):
        running().may_be_interrupted(world.turns, access)


def _polled(op: str, pointers: Any, seen: Any) -> None:
    if seen.data.nbytes > _POLLABLE:
        return

    def describe() -> str:
        world = current()
        address = int(pointers.data.flat[0])
        place = hex(address) if world is None else world.describe(address)
        more = f" and {pointers.data.size - 1} more" if pointers.data.size > 1 else ""
        return f"a loop around {op}: {place}{more}, which stays {seen.data.reshape(-1)[:4].tolist()}"

    running().poll((op, pointers.data.tobytes()), seen.data.tobytes(), describe)
