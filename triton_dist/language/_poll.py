"""Wait reports for polling loops in kernels: each iteration calls :func:`poll`.

    polls = no_polls()
    missing = True
    while missing:
        seen = tl.load(flag, volatile=True)
        polls = poll(polls, flag, dl.CMP_GE, number, pe)
        missing = seen < number

Called between a load and the use of what it loads, it takes no time: the load is in flight. These functions do nothing
in the CPU world, which detects waits by itself.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist._C import op_table
from triton_dist._C.op_table import Cmp
from triton_dist.language import _check
from triton_dist.language._builtin import builtin
from triton_dist.language._emit import emit

__all__ = ["copies_may_differ", "held_once", "no_polls", "poll"]


@builtin
def copies_may_differ(numel: tl.constexpr, _semantic: Any = None) -> tl.constexpr:
    """Whether a loop that polls a block of so many elements may end before all threads have seen what it waited for.

    A program with more threads than a block has elements holds the block several times, and each thread loads its copy
    for itself. A reduction over more elements than a warp has lanes goes by some of the copies. So other threads may
    leave the loop with what they saw earlier, and must load once more: what one thread of the program has seen, all see
    after the reduction. (Up to a warp's elements, each warp decides by its own copy.)
    """
    options = _semantic.builder.options
    if hasattr(_semantic.builder, "shmem_op"):
        return tl.constexpr(False)
    return tl.constexpr(options.warp_size < int(numel) < options.warp_size * options.num_warps)


@builtin
def held_once(rows: tl.constexpr, columns: tl.constexpr = 1, _semantic: Any = None) -> tl.constexpr:
    """How many rows a block of so many columns must have, at least ``rows``, so that its copies cannot differ.

    All are powers of two. A block whose mask leaves out the further rows has at least as many elements as the program
    has threads. No thread holds a copy of another one's, and :func:`copies_may_differ` is false: no load comes after
    the loop. Where copies do not differ anyway, it is ``rows``.
    """
    rows, columns = (int(getattr(n, "value", n)) for n in (rows, columns))
    if not getattr(copies_may_differ(rows * columns, _semantic=_semantic), "value", False):
        return tl.constexpr(rows)
    options = _semantic.builder.options
    return tl.constexpr(options.warp_size * options.num_warps // columns)


@builtin
def no_polls(_semantic: Any = None) -> tl.tensor:
    """The initial state of a loop, an int32."""
    return _semantic.scalar_constant(0, tl.int32)


@builtin
def poll(
    polls: tl.tensor,
    words: tl.tensor,
    cmp: tl.constexpr,
    expected: tl.tensor,
    writer: tl.tensor = -1,
    rows: tl.tensor = 1,
    columns: tl.tensor = 1,
    row_step: tl.tensor = 0,
    column_step: tl.tensor = 0,
    writer_step: tl.constexpr = 1,
    _semantic: Any = None,
) -> tl.tensor:
    """The state after one more poll of int32 words: ``[rows, columns]``, by default one.

    All threads of each calling warp call it. A report names the first word that is not as expected.

    Args:
        polls: the state, an int32, from :func:`no_polls` or the last :func:`poll`.
        words: a pointer to the first word.
        cmp: the awaited comparison of each word with ``expected``, ``CMP_EQ``, …: of their difference with 0, since
            numbers wrap around.
        expected: int32.
        writer: the PE that writes the first row, less than 2¹⁶; -1 if unknown.
        row_step, column_step: the distances between rows and between columns, in words.
        writer_step: the distance, in PEs, between the writers of neighbouring rows, a constant from 1 to 2¹⁵.
    """
    if hasattr(_semantic.builder, "shmem_op"):
        return polls
    step = int(getattr(writer_step, "value", writer_step))
    if step > 1:  # the op takes both in one operand, so that a wait of few registers holds no more of them
        writer = _semantic.add(_check.number("poll", "writer", writer, _semantic), step - 1 << 16, False)
    return emit(
        _semantic,
        op_table.POLL,
        polls=polls,
        words=_check.pointer("poll", "words", words),
        cmp=_check.constant("poll", "cmp", cmp, Cmp),
        expected=_check.number("poll", "expected", expected, _semantic),
        writer=_check.number("poll", "writer", writer, _semantic),
        rows=_check.number("poll", "rows", rows, _semantic),
        columns=_check.number("poll", "columns", columns, _semantic),
        row_step=_check.number("poll", "row_step", row_step, _semantic),
        column_step=_check.number("poll", "column_step", column_step, _semantic),
        result=tl.int32,
    )
