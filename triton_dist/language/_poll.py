"""Wait reports for polling loops in kernels: each iteration calls :func:`poll`.

    polls = no_polls()
    seen = tl.load(flag, volatile=True)
    while seen < number:
        polls = poll(polls, flag, dl.CMP_GE, number, seen, pe)
        seen = tl.load(flag, volatile=True)

A loop that polls a block of words must select one unsatisfied word for the report. It does so only if :func:`is_due` is
true. These functions do nothing in the CPU world, which detects waits by itself.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist._C.op_table import Cmp
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit

__all__ = ["POLLS", "is_due", "no_polls", "poll"]

POLLS = 4096
"""The device library reads the clock every ``POLLS`` polls: ``kPolls`` of runtime/device/State.h."""


@builtin
def no_polls(_semantic: Any = None) -> tl.tensor:
    """The initial state of a loop, an int32."""
    return _semantic.scalar_constant(0, tl.int32)


@builtin
def is_due(polls: tl.tensor, _semantic: Any = None) -> Any:
    """Whether the next :func:`poll` may report. If not, ``polls + 1`` is equivalent to it."""
    if hasattr(_semantic.builder, "shmem_op"):
        return False
    last = _semantic.scalar_constant(POLLS - 1, tl.int32)
    return _semantic.equal(_semantic.and_(polls, last), last)


@builtin
def poll(
    polls: tl.tensor,
    at: tl.tensor,
    cmp: tl.constexpr,
    expected: tl.tensor,
    seen: tl.tensor,
    pe: tl.tensor = -1,
    _semantic: Any = None,
) -> tl.tensor:
    """The state after one more poll of the word at ``at``, which did not end the wait.

    All threads of each calling warp call it.

    Args:
        polls: the state, an int32, from :func:`no_polls` or the last :func:`poll`.
        at: a scalar pointer to the word.
        cmp: the awaited comparison of the word with ``expected``, ``CMP_EQ``, …, for the report.
        expected, seen: int32.
        pe: the PE that writes the word; -1 if unknown.
    """
    if hasattr(_semantic.builder, "shmem_op"):
        return polls
    return emit(
        _semantic,
        op_table.POLL,
        polls=polls,
        at=_check.pointer("poll", "at", at),
        cmp=_check.constant("poll", "cmp", cmp, Cmp),
        expected=_check.number("poll", "expected", expected, _semantic),
        seen=_check.number("poll", "seen", seen, _semantic),
        writer=_check.number("poll", "pe", pe, _semantic),
        result=tl.int32,
    )
