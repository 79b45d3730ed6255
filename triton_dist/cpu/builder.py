"""Triton's interpreter with what a world adds: shmem ops, and programs that let others run while they poll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from triton_dist._C.op_table import Effect, Op
from triton_dist.cpu import effects
from triton_dist.cpu.accesses import may_touch
from triton_dist.cpu.bfloat16 import Bfloat16Builder
from triton_dist.cpu.libdevice import implementation
from triton_dist.cpu.ops import IMPLEMENTATIONS, intention
from triton_dist.cpu.processor import ProcessorBuilder
from triton_dist.cpu.program import running
from triton_dist.cpu.recorder import Recorder
from triton_dist.cpu.schedule import Access
from triton_dist.cpu.world import current
from triton_dist.triton_api import interpreter

__all__ = ["CpuBuilder"]

_POLLABLE = 4096
"""Bytes: a volatile load or an atomic of more than this is data, not something that a program spins on."""


class CpuBuilder(Bfloat16Builder, ProcessorBuilder):
    """The class of :func:`triton_dist.triton_api.interpreter.builder` in the CPU world."""

    num_ctas = 1
    """The launch options of the running kernel."""

    def shmem_op(self, op: Op, operands: Sequence[Any], attributes: Sequence[IntEnum]) -> int | float | None:
        """Do one op of the dialect; see :mod:`triton_dist.cpu.ops`."""
        if self.num_ctas > 1 and op.effect is not Effect.NO_EFFECT:
            raise RuntimeError(
                f"{op.name} in a kernel with num_ctas={self.num_ctas}: it would act once per CTA instead of once per "
                "program; use num_ctas=1"
            )
        world, arguments = current(), (*(operand.data.item() for operand in operands), *attributes)
        if world is not None and world.turns is not None and (access := intention(op)) is not Access.NOTHING:
            running().may_be_interrupted(world.turns, access)
        recorder = None if world is None else world.recorder
        if world is not None and recorder is not None:
            effects.before(op, recorder, world, arguments)
        result: int | float | None = IMPLEMENTATIONS[op.name](*arguments)
        if world is not None and recorder is not None:
            effects.after(op, recorder, world, arguments)
        return result

    def create_extern_elementwise(
        self, lib_name: str, lib_path: str, symbol: str, operands: Sequence[Any], result: Any, pure: bool
    ) -> Any:
        function, kind = implementation(symbol), result.scalar
        value = np.asarray(function(*(operand.data for operand in operands)))
        return interpreter.TensorHandle(value.astype(interpreter.numpy_dtype(kind), copy=False), kind)

    # ---- a program that sees again and again what it saw before waits for somebody: let that one run

    def create_masked_load(
        self, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: bool
    ) -> Any:
        _touching(Access.READ, ptrs)
        if recorder := _recorder(ptrs):
            how, what = ("volatile", "volatile tl.load") if is_volatile else ("plain", "tl.load")
            recorder.block(what, ptrs.data, mask.data, _size(ptrs), False, how)
        loaded = super().create_masked_load(ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)
        if is_volatile:
            _polled("volatile tl.load", ptrs, loaded)
        else:
            _polled("tl.load", ptrs, loaded, plain=True)
        return loaded

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        _touching(Access.PUBLISH, ptr)
        finish = _recorded_atomic(f"tl.atomic_{rmwOp.name.lower()}", ptr, mask.data, sem, scope)
        before = super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)
        finish()
        _polled(f"tl.atomic_{rmwOp.name.lower()}", ptr, before)
        return before

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        _touching(Access.PUBLISH, ptr)
        finish = _recorded_atomic("tl.atomic_cas", ptr, np.array(True), sem, scope)
        before = super().create_atomic_cas(ptr, cmp, val, sem, scope)
        finish()
        if np.array_equal(before.data, np.broadcast_to(cmp.data, before.data.shape)):
            running().steps += 1  # it has what it wanted
        else:
            _polled("tl.atomic_cas", ptr, before)
        return before

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any) -> Any:
        _touching(Access.WRITE, ptrs)
        if recorder := _recorder(ptrs):
            recorder.block("tl.store", ptrs.data, mask.data, _size(ptrs), True, "plain")
        running().steps += 1
        return super().create_masked_store(ptrs, value, mask, cache_modifier, eviction_policy)


def _touching(access: Access, pointers: Any) -> None:
    world = current()
    if world is not None and world.turns is not None and may_touch(world.heap, world.n_pes, pointers.data):
        running().may_be_interrupted(world.turns, access)


def _recorder(pointers: Any) -> Recorder | None:
    world = current()
    return None if world is None or not pointers.data.size else world.recorder


def _size(pointers: Any) -> int:
    return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)


_SEMS = {"RELAXED": "relaxed", "ACQUIRE": "acquire", "RELEASE": "release", "ACQUIRE_RELEASE": "acq_rel"}
_SCOPES = {"CTA": "cta", "GPU": "gpu", "SYSTEM": "sys"}


def _recorded_atomic(what: str, pointers: Any, mask: Any, sem: Any, scope: Any) -> Callable[[], None]:
    """Record what goes before the operation; the function notes what comes after it."""
    recorder = _recorder(pointers)
    if recorder is None:
        return lambda: None
    order, observers = _SEMS[sem.name], _SCOPES[scope.name]
    words = recorder.atomic_block(what, pointers.data, mask, _size(pointers), order, observers, True)
    if not words:
        return lambda: None
    return lambda: recorder.acquire(what, words, relaxed=order not in ("acquire", "acq_rel"), scope=observers)


def _polled(op: str, pointers: Any, seen: Any, *, plain: bool = False) -> None:
    if seen.data.nbytes > _POLLABLE:
        return

    def describe() -> str:
        world = current()
        address = int(pointers.data.flat[0])
        place = hex(address) if world is None else world.describe(address)
        more = f" and {pointers.data.size - 1} more" if pointers.data.size > 1 else ""
        note = (
            "; a GPU may never look at memory again there: poll with volatile=True, an atomic or a wait"
            if plain
            else ""
        )
        return f"a loop around {op}: {place}{more}, which stays {seen.data.reshape(-1)[:4].tolist()}{note}"

    what, value = (op, pointers.data.tobytes()), seen.data.tobytes()
    if plain:
        running().glance(hash(what), hash(value), describe)  # a hash, since blocks may be large
    else:
        running().poll(what, value, describe)
