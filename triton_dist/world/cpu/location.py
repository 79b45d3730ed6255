"""Where in the user's kernel something happens: the innermost frame that is neither Triton's nor ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

import numpy
import triton

__all__ = ["of_error", "of_frame"]

_PACKAGE = Path(__file__).parents[2]

# Kernels of our own library (triton_dist.kernels) are kernels; what runs them and what they call into is not.
_MACHINERY = tuple(
    f"{directory}/"
    for directory in (
        Path(triton.__file__).parent,
        Path(numpy.__file__).parent,
        _PACKAGE / "language",
        _PACKAGE / "world",
    )
)


def of_frame(frame: FrameType | None) -> str:
    """``file:line`` of the kernel code that a suspended program is in."""

    def outwards() -> Iterator[tuple[str, int]]:
        at = frame
        while at is not None:
            yield at.f_code.co_filename, at.f_lineno
            at = at.f_back

    return _pick(outwards())


def of_error(error: BaseException) -> str:
    """``file:line`` of the kernel code that raised an exception, itself or in what it called."""

    def inwards() -> Iterator[tuple[str, int]]:
        at: TracebackType | None = error.__traceback__
        while at is not None:
            yield at.tb_frame.f_code.co_filename, at.tb_lineno
            at = at.tb_next

    return _pick(reversed(list(inwards())))


def _pick(innermost_first: Iterator[tuple[str, int]]) -> str:
    for file, line in innermost_first:
        if not file.startswith(_MACHINERY):
            return f"{file}:{line}"
    return "an unknown place"
