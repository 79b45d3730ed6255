"""Results that share memory with operands: which calls are refused, and how prepared calls notice them.

A kernel stores parts of its result while other programs, or peers, still load operands. So a result may not overlap an
operand, but where a function's documentation allows a form of in-place call. Functions check it where they check shapes
and dtypes, on the ordinary path. A prepared call does not: its plan is found under a signature, which holds what
:func:`sharing` returns where tensors share memory. So a plan that was left by a call without overlaps is never found
for one with an overlap of the same shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

__all__ = ["is_part_of", "overlap", "refuse_overlap", "same_place", "sharing", "sharing_of", "span_of"]


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor's memory begins, and behind which byte it ends; an empty one has none."""
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()


def sharing(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Which of these spans meet, by number and by the distance between them.

    Spans of strided tensors hold what lies between their rows, too. Such a pair is a part of the signature although it
    shares nothing, which costs a plan for each distance.
    """
    return tuple(
        (i, j, spans[j][0] - spans[i][0])
        for j in range(len(spans))
        for i in range(j)
        if spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1]
    )


def sharing_of(*tensors: torch.Tensor | None) -> tuple[tuple[int, int, int], ...] | None:
    """:func:`sharing` of tensors, unchecked; None without memory, which is refused elsewhere."""
    try:
        return sharing([span_of(tensor) for tensor in tensors if tensor is not None])
    except (AttributeError, RuntimeError):
        return None


def overlap(result: torch.Tensor, operand: torch.Tensor) -> bool:
    """Whether an element of ``result``, which is contiguous, shares a byte with one of ``operand``, of any strides."""
    begin, end = span_of(result)
    first, behind = span_of(operand)
    if not (begin < behind and first < end):
        return False
    size = operand.element_size()
    dims = [(n, step * size) for n, step in zip(operand.shape, operand.stride(), strict=True) if n > 1 and step]
    return _touch(begin - first, end - first, sorted(dims, key=lambda dim: -dim[1]), size)


def _touch(begin: int, end: int, dims: Sequence[tuple[int, int]], size: int) -> bool:
    """Whether bytes ``begin`` to ``end`` are some of a tensor's, which begins at byte 0.

    Args:
        dims: its sizes and steps, the longest step first. size: bytes of an element.
    """
    if not dims:
        return begin < size and end > 0
    (n, step), *inner = dims
    length = sum((count - 1) * each for count, each in inner) + size  # of what a step leads to
    low = max(0, (begin - length) // step + 1)  # the first that ends behind ``begin``
    high = min(n - 1, (end - 1) // step)  # the last that begins before ``end``
    if high - low > 1:
        return True  # one between them lies within
    return any(_touch(begin - i * step, end - i * step, inner, size) for i in range(low, high + 1))


def same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two contiguous tensors are the same bytes."""
    return a.data_ptr() == b.data_ptr() and a.nbytes == b.nbytes


def is_part_of(part: torch.Tensor, whole: torch.Tensor, rank: int) -> bool:
    """Whether a contiguous ``part`` is number ``rank`` of the equal parts of a contiguous ``whole``."""
    return part.data_ptr() == whole.data_ptr() + rank * part.nbytes


def refuse_overlap(
    function: str,
    results: Mapping[str, torch.Tensor | None],
    operands: Mapping[str, torch.Tensor | float | None],
    but: str = "",
) -> None:
    """Check that no result, which is contiguous, shares memory with an operand. What is no tensor shares none.

    Args:
        but: for the message, which overlap is allowed.

    Raises:
        ValueError: two do; the message names both.
    """
    for name, result in results.items():
        for other, operand in operands.items():
            if result is None or not isinstance(operand, torch.Tensor) or not overlap(result, operand):
                continue
            (begin, end), (first, behind) = span_of(result), span_of(operand)
            raise ValueError(
                f"{function}: {name} and {other} overlap in memory: {name} is at [{begin:#x}, {end:#x}), and {other} at"
                f" [{first:#x}, {behind:#x}); {name} is stored while {other} is still read. Pass another tensor as"
                f" {name}, or a clone of {other}{but}"
            )
