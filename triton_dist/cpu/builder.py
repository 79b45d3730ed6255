"""Triton's interpreter with what a world adds: shmem ops, and programs that let others run while they poll."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from triton_dist._C.op_table import Effect, Op
from triton_dist.cpu import effects
from triton_dist.cpu.accesses import may_touch
from triton_dist.cpu.atomics import AtomicsBuilder
from triton_dist.cpu.bfloat16 import Bfloat16Builder
from triton_dist.cpu.float8 import Float8Builder
from triton_dist.cpu.libdevice import implementation
from triton_dist.cpu.ops import IMPLEMENTATIONS, intention
from triton_dist.cpu.ops.address_checks import check_block
from triton_dist.cpu.processor import ProcessorBuilder
from triton_dist.cpu.program import running
from triton_dist.cpu.recorder import Recorder
from triton_dist.cpu.schedule import Access
from triton_dist.cpu.shapes import ShapesBuilder
from triton_dist.cpu.world import current
from triton_dist.triton_api import interpreter

__all__ = ["CpuBuilder", "copied", "fence_proxies", "is_watched"]

_GLANCED = 4096
"""Bytes: a plain load of more than this is data, not something that a program spins on."""


class CpuBuilder(AtomicsBuilder, Float8Builder, Bfloat16Builder, ShapesBuilder, ProcessorBuilder):
    """The class of :func:`triton_dist.triton_api.interpreter.builder` in the CPU world."""

    num_ctas = 1
    num_stages = 0
    """The launch options of the running kernel; 0 stages: not given."""

    def shmem_op(self, op: Op, operands: Sequence[Any], attributes: Sequence[IntEnum], result: tl.dtype | None) -> Any:
        """Do one op of the dialect; see :mod:`triton_dist.cpu.ops`. Its result as ``result``, if it has one."""
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
        value = IMPLEMENTATIONS[op.name](*arguments)
        if world is not None and recorder is not None:
            effects.after(op, recorder, world, arguments)
        if result is None:
            return None
        if result.is_int_unsigned():
            value %= 1 << result.primitive_bitwidth  # an op answers with a signed number
        return getattr(self, f"get_{result.name}")(value)

    def check_block(self, pointers: Any, mask: Any) -> None:
        """See :func:`triton_dist.cpu.ops.address_checks.check_block`."""
        if current() is not None:
            check_block(pointers.data, None if mask is None else mask.data.astype(bool))

    def create_extern_elementwise(
        self, lib_name: str, lib_path: str, symbol: str, operands: Sequence[Any], result: Any, pure: bool
    ) -> Any:
        function, kind = implementation(symbol), result.scalar
        value = np.asarray(function(*(operand.data for operand in operands)))
        return interpreter.TensorHandle(value.astype(interpreter.numpy_dtype(kind), copy=False), kind)

    def create_dot(self, a: Any, b: Any, d: Any, *options: Any) -> Any:
        world = current()
        if world is not None and world.recorder is not None:
            size = max(1, int(a.dtype.scalar.primitive_bitwidth) // 8)
            world.recorder.dot(2 * int(np.prod(d.data.shape)) * int(a.data.shape[-1]), size, self.num_stages)
        return super().create_dot(a, b, d, *options)

    def create_maxnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.fmax)  # of a NaN and a number the number, as when compiled

    def create_minnumf(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_clampf(self, arg: Any, low: Any, high: Any, propagate_nan: Any) -> Any:
        of_numbers = propagate_nan.name == "NONE"
        clamped = (lambda x, a, b: np.fmin(np.fmax(x, a), b)) if of_numbers else np.clip
        return self.ternary_op(arg, low, high, clamped)

    def create_print(self, prefix: str, hex: bool, values: Sequence[Any], is_signed: Sequence[bool]) -> Any:
        if hex:  # of the bits
            bits = [np.ascontiguousarray(value.data).view(f"u{value.data.itemsize}") for value in values]
            values = [interpreter.TensorHandle(each, getattr(tl, each.dtype.name)) for each in bits]
        return super().create_print(prefix, hex, values, is_signed)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the CPU world does not interpret this operation ({name} of Triton's compiler)")

    # ---- a program that sees again and again what it saw before waits for another one: let that one run

    # `policy` is a cache modifier and an eviction policy in Triton 3.7 and 3.8, and one object in 3.9.

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *policy: Any, **named: Any) -> Any:
        is_volatile = named["is_volatile"] if "is_volatile" in named else policy[-1]
        _touching(Access.READ, ptrs)
        if recorder := _recorder(ptrs.data):
            how, what = ("volatile", "volatile tl.load") if is_volatile else ("plain", "tl.load")
            if running().copies_by_tma:
                how, what = "tma", "a descriptor load"
            recorder.block(what, ptrs.data, mask.data, _size(ptrs), False, how)
        loaded = super().create_masked_load(ptrs, mask, other, *policy, **named)
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

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *policy: Any) -> Any:
        _touching(Access.WRITE, ptrs)
        if recorder := _recorder(ptrs.data):
            how, what = ("tma", "a descriptor store") if running().copies_by_tma else ("plain", "tl.store")
            recorder.block(what, ptrs.data, mask.data, _size(ptrs), True, how)
        running().steps += 1
        return super().create_masked_store(ptrs, value, mask, *policy)

    # ---- descriptors, which Triton's interpreter loads and stores by pointers

    def create_descriptor_load(self, *arguments: Any, **named: Any) -> Any:
        with _by_tma():
            return super().create_descriptor_load(*arguments, **named)

    def create_descriptor_store(self, *arguments: Any, **named: Any) -> Any:
        with _by_tma():
            return super().create_descriptor_store(*arguments, **named)

    # ---- atomics that Triton has since 3.9

    def create_atomic_load(self, ptr: Any, mask: Any, sem: Any, scope: Any) -> Any:
        loaded = self._atomically_loaded("tl.atomic_load", ptr, mask, sem, scope)
        _polled("tl.atomic_load", ptr, loaded)
        return loaded

    def _atomically_loaded(self, op: str, ptr: Any, mask: Any, sem: Any, scope: Any) -> Any:
        _touching(Access.READ, ptr)
        finish = _recorded_atomic(op, ptr, mask.data, sem, scope, writes=False)
        loaded = super().create_masked_load(ptr, mask, None, None, True)
        finish()
        return loaded

    def create_atomic_store(self, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        _touching(Access.PUBLISH, ptr)
        _recorded_atomic("tl.atomic_store", ptr, mask.data, sem, scope)  # what it returns is for reads
        running().steps += 1
        return super().create_masked_store(ptr, val, mask, None)

    def create_atomic_poll(self, ptr: Any, expected: Any, timeout_ns: Any, sem: Any, scope: Any) -> Any:
        every = interpreter.TensorHandle(np.ones_like(ptr.data, dtype=bool), tl.int1)
        limited = isinstance(timeout_ns, interpreter.TensorHandle)  # no timeout is an empty value of the compiler's
        end = time.perf_counter_ns() + timeout_ns.data.item() if limited else float("inf")
        matched = np.zeros(ptr.data.shape, dtype=bool)
        while True:
            seen = self._atomically_loaded("tl.atomic_poll", ptr, every, sem, scope)
            matched |= seen.data == expected.data
            if matched.all() or time.perf_counter_ns() >= end:
                running().steps += 1
                return interpreter.TensorHandle(matched, tl.int1)
            _polled("tl.atomic_poll", ptr, seen)


def is_watched() -> bool:
    """Whether the world wants to know of accesses to memory of all PEs: under triton-dist-check."""
    world = current()
    return world is not None and (world.turns is not None or world.recorder is not None)


def copied(what: str, pointers: NDArray[Any], size: int, *, writes: bool) -> None:
    """TMA loads the elements of ``size`` bytes at these addresses for the running program, or has stored them."""
    _before(Access.WRITE if writes else Access.READ, pointers)
    if recorder := _recorder(pointers):
        recorder.block(what, pointers, np.array(True), size, writes, "complete tma" if writes else "tma")


def fence_proxies() -> None:
    """What the running program has acquired holds for its loads by TMA, too."""
    world = current()
    if world is not None and world.recorder is not None:
        world.recorder.proxy_fence()


@contextmanager
def _by_tma() -> Iterator[None]:
    """What the running program loads and stores is TMA's."""
    program = running()
    program.copies_by_tma = True
    try:
        yield
    finally:
        program.copies_by_tma = False


def _touching(access: Access, pointers: Any) -> None:
    _before(access, pointers.data)


def _before(access: Access, addresses: NDArray[Any]) -> None:
    world = current()
    if world is not None and world.turns is not None and may_touch(world.heap, world.n_pes, addresses):
        running().may_be_interrupted(world.turns, access)


def _recorder(addresses: NDArray[Any]) -> Recorder | None:
    world = current()
    return None if world is None or not addresses.size else world.recorder


def _size(pointers: Any) -> int:
    return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)


_SEMS = {"RELAXED": "relaxed", "ACQUIRE": "acquire", "RELEASE": "release", "ACQUIRE_RELEASE": "acq_rel"}
_SCOPES = {"CTA": "cta", "GPU": "gpu", "SYSTEM": "sys"}


def _recorded_atomic(
    what: str, pointers: Any, mask: Any, sem: Any, scope: Any, *, writes: bool = True
) -> Callable[[], None]:
    """Record what goes before the operation; the function notes what comes after it."""
    recorder = _recorder(pointers.data)
    if recorder is None:
        return lambda: None
    order, observers = _SEMS[sem.name], _SCOPES[scope.name]
    words = recorder.atomic_block(what, pointers.data, mask, _size(pointers), order, observers, writes)
    if not words:
        return lambda: None
    return lambda: recorder.acquire(what, words, relaxed=order not in ("acquire", "acq_rel"), scope=observers)


def _polled(op: str, pointers: Any, seen: Any, *, plain: bool = False) -> None:
    if plain and seen.data.nbytes > _GLANCED:
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

    look = running().glance if plain else running().poll
    look(hash((op, pointers.data.tobytes())), hash(seen.data.tobytes()), describe)  # a hash, since blocks may be large
