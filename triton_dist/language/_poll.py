"""What loops in kernels do that wait by looking at memory themselves, so that a wait that lasts too long is reported.

    polls = no_polls()
    seen = tl.load(flag, volatile=True)
    while seen < number:
        polls = poll(polls, flag, dl.CMP_GE, number, seen, pe)
        seen = tl.load(flag, volatile=True)

A loop that looks at a block of words has to find one that is missing before it can name it, which it does when
:func:`is_due` says so. All of it is for the compiler: the CPU world knows who waits for what without being told.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit
from triton_dist.language.constants import Cmp

__all__ = ["POLLS", "is_due", "no_polls", "poll"]

POLLS = 4096
"""Every so many polls the device library looks at the clock: ``kPolls`` of runtime/device/State.h."""


@builtin
def no_polls(_semantic: Any = None) -> tl.tensor:
    """What to begin a loop with, an int32."""
    return _semantic.scalar_constant(0, tl.int32)


@builtin
def is_due(polls: tl.tensor, _semantic: Any = None) -> Any:
    """Whether the next :func:`poll` may report; until then adding 1 to ``polls`` does the same."""
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
    """``polls`` after one more look at the word at ``at``, which did not end the wait.

    Every thread of some warps of the program calls it, each warp as a whole.

    Args:
        polls: an int32, what :func:`no_polls` or the last :func:`poll` returned.
        at: a scalar pointer to the word.
        cmp: how the word is to compare with ``expected``, ``CMP_EQ``, …, as the report says it.
        expected, seen: int32.
        pe: who will write the word, where that is known; else -1.
    """
    if hasattr(_semantic.builder, "shmem_op"):
        return polls
    operands = [
        polls,
        _check.pointer("poll", "at", at),
        _check.number("poll", "expected", expected, _semantic),
        _check.number("poll", "seen", seen, _semantic),
        _check.number("poll", "pe", pe, _semantic),
    ]
    return emit(_semantic, "poll", operands, [_check.constant("poll", "cmp", cmp, Cmp)], result=tl.int32)
