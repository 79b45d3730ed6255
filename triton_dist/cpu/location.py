"""Where in the user's kernel something happens: the innermost frame that is neither Triton's nor ours nor Python's."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType

import numpy
import torch
import triton

from triton_dist.bootstrap.source_lines import is_ours, is_standard_library

__all__ = ["line_of_frame", "of_error", "of_frame"]

# A line of a kernel of our own library says more than none, but less than the user's line that calls into it.
_MACHINERY = tuple(f"{Path(str(module.__file__)).parent}/" for module in (triton, numpy, torch))
_KERNELS = f"{Path(__file__).parents[1] / 'kernels'}/"


def of_frame(frame: FrameType | None) -> str:
    """``file:line`` of the kernel code that a suspended program is in."""
    return _shown(line_of_frame(frame))


def line_of_frame(frame: FrameType | None) -> tuple[str, int] | None:
    """The same, as file and line."""

    def outwards() -> Iterator[tuple[str, int]]:
        at = frame
        while at is not None:
            yield at.f_code.co_filename, at.f_lineno
            at = at.f_back

    return _of_kernel(outwards())


def of_error(error: BaseException) -> str:
    """``file:line`` of the kernel code that raised an exception, itself or in what it called."""

    def inwards() -> Iterator[tuple[str, int]]:
        at: TracebackType | None = error.__traceback__
        while at is not None:
            yield at.tb_frame.f_code.co_filename, at.tb_lineno
            at = at.tb_next

    return _shown(_of_kernel(reversed(list(inwards()))))


def _of_kernel(lines: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """The first of ``lines``, from the innermost, that is of a user's kernel, else of one of our library."""
    ours = None
    for line in lines:
        if not _is_machinery(line[0]):
            return line
        if ours is None and line[0].startswith(_KERNELS):
            ours = line
    return ours


@functools.cache
def _is_machinery(file: str) -> bool:
    # A dataclass's __init__, as of a layout, is in "<string>".
    return file == "<string>" or is_ours(file) or file.startswith(_MACHINERY) or is_standard_library(file)


def _shown(line: tuple[str, int] | None) -> str:
    return "{}:{}".format(*line) if line else "an unknown place"
