"""A partition of a program, the warps that run one function: what they have in flight, and how others are started."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import triton.language as tl

from triton_dist.cpu.gluon.chance import Chance
from triton_dist.cpu.program import INTERRUPTED, running
from triton_dist.triton_api import interpreter

__all__ = [
    "Partition",
    "barrier",
    "begin",
    "but_last",
    "constant",
    "num_warps",
    "partition",
    "perhaps_pause",
    "tensor",
    "warp_specialize",
]


T = TypeVar("T")


class Store(Protocol):
    """A bulk copy from shared memory."""

    where: str
    """The line that issues it."""

    @property
    def is_read(self) -> bool:
        """Whether it has read shared memory."""

    def read(self) -> object:
        """Do so."""

    def has_read(self) -> None:
        """It is known to have."""

    def retire(self) -> None:
        """It is known to be complete."""


class Product(Protocol):
    """Of tensor cores."""

    def compute(self) -> None:
        """Add it to its sums."""

    def is_waited_for(self) -> None:
        """It is known to be complete."""


_WIRE_SECONDS = 1e-3
"""How long stores are on their way that nothing waits for: other PEs can see a flag that was set behind them."""


class Partition:
    """What the warps of one partition have in flight."""

    def __init__(self, warps: int, chance: Chance, shared: list[Any], *, is_worker: bool = False) -> None:
        self.warps, self.chance, self.is_worker = warps, chance, is_worker
        self.shared = shared
        """The program's allocations of shared memory."""
        self.groups: list[list[Store]] = []
        """Groups of bulk copies from shared memory that have not completed, the oldest first."""
        self.products: list[Product] = []
        """Of tensor cores, that have not completed, the oldest first."""
        self.has_fenced = False
        """Whether a fence is behind all that this partition has stored, so that what it stores from now on releases."""

    def end(self) -> None:
        """The partition's function has returned."""
        late = list(itertools.chain(*self.groups))
        if late:
            time.sleep(_WIRE_SECONDS)
        for store in late:
            if not store.is_read:
                raise RuntimeError(
                    f"the TMA store at {store.where} may still read shared memory when its partition ends: call"
                    " tma.store_wait(0) before"
                )
            store.retire()
        self.groups.clear()


def begin(warps: int, chance: Chance) -> contextlib.AbstractContextManager[None]:
    """The running program is one of a Gluon kernel, and its warps are those of the launch."""
    return _runs(Partition(warps, chance, []))


@contextlib.contextmanager
def _runs(of: Partition) -> Iterator[None]:
    running().partition = of
    yield
    of.end()


def partition() -> Partition:
    """The one that runs now."""
    found = running().partition
    assert isinstance(found, Partition), "no Gluon kernel runs"
    return found


def perhaps_pause() -> None:
    """Other partitions, and programs, may go first here."""
    program = running()
    program.steps += 1
    if partition().chance.happens(8):
        program.suspend(INTERRUPTED)


def num_warps() -> int:
    """``gl.num_warps``: of this partition."""
    return partition().warps


def barrier(*, cluster: bool = False) -> None:
    """``gl.barrier``: of this partition's threads, which run as one here."""
    if cluster:
        raise NotImplementedError("the CPU world has no clusters of programs")


def warp_specialize(
    functions_and_args: Sequence[tuple[Callable[..., Any], Sequence[Any]]],
    worker_num_warps: Sequence[int],
    worker_num_regs: Sequence[int] | None = None,
) -> Any:
    """``gl.warp_specialize``: the first function in the warps of the launch, each other one in warps of its own."""
    program, here = running(), partition()
    (function, arguments), *workers = functions_and_args
    if here.is_worker:
        raise RuntimeError("gl.warp_specialize in a partition: they cannot be nested")
    if len(workers) != len(worker_num_warps) or (worker_num_regs and len(workers) != len(worker_num_regs)):
        raise ValueError(
            f"gl.warp_specialize: {len(workers)} functions behind the first, but {len(worker_num_warps)} numbers of"
            f" warps and {len(worker_num_regs or worker_num_warps)} of registers"
        )
    children = []
    for number, ((work, given), warps) in enumerate(zip(workers, worker_num_warps, strict=True), 1):
        its = Partition(int(warps), here.chance, here.shared, is_worker=True)
        children.append(
            program.start(functools.partial(_work, work, given, its), f", partition {number} ({work.__name__})")
        )
    result = function(*arguments)
    program.wait_until(lambda: all(child.dead for child in children), lambda: "gl.warp_specialize: for its workers")
    return result


def _work(function: Callable[..., Any], arguments: Sequence[Any], its: Partition) -> None:
    with _runs(its):
        function(*arguments)


def but_last(items: Sequence[T], number: int) -> Sequence[T]:
    """All of these but the last few."""
    return items[: max(0, len(items) - number)]


def constant(value: Any) -> Any:
    """A number of the host from a constant or a tensor of one element."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.tensor):
        return value.handle.data.reshape(-1)[0].item()
    return value


def tensor(data: Any, dtype: tl.dtype) -> tl.tensor:
    """A block, or a number, of a kernel."""
    array = np.asarray(data)
    kind = tl.block_type(dtype, list(array.shape)) if array.shape else dtype
    return tl.tensor(interpreter.handle(array if array.shape else array.reshape(1), dtype), kind)
