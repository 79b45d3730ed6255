"""Where in the user's kernel something happens: the innermost frame that is neither Triton's nor ours nor Python's."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

import numpy
import torch
import triton

from triton_dist.bootstrap.source_lines import is_standard_library

__all__ = ["line_of_frame", "of_error", "of_frame"]

_PACKAGE = Path(__file__).parents[1]

# A line of a kernel of our own library says more than none, but less than the user's line that calls into it.
_MACHINERY = (f"{_PACKAGE}/", *(f"{Path(str(module.__file__)).parent}/" for module in (triton, numpy, torch)))
_KERNELS = f"{_PACKAGE / 'kernels'}/"


def of_frame(frame: FrameType | None) -> str:
    """``file:line`` of the kernel code that a suspended program is in."""
    return _shown(line_of_frame(frame))


def line_of_frame(frame: FrameType | None) -> tuple[str, int] | None:
    """The same, as file and line."""
    ours = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_machinery(file):
            return file, frame.f_lineno
        if ours is None and file.startswith(_KERNELS):
            ours = file, frame.f_lineno
        frame = frame.f_back
    return ours


def of_error(error: BaseException) -> str:
    """``file:line`` of the kernel code that raised an exception, itself or in what it called."""

    def inwards() -> Iterator[tuple[str, int]]:
        at: TracebackType | None = error.__traceback__
        while at is not None:
            yield at.tb_frame.f_code.co_filename, at.tb_lineno
            at = at.tb_next

    return _shown(next((line for line in reversed(list(inwards())) if not _is_machinery(line[0])), None))


@functools.cache
def _is_machinery(file: str) -> bool:
    return (file.startswith(_MACHINERY) and not file.startswith(_KERNELS)) or is_standard_library(file)


def _shown(line: tuple[str, int] | None) -> str:
    return "{}:{}".format(*line) if line else "an unknown place"
