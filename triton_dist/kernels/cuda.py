"""The CUDA driver, through ``cuda-bindings``, which the GPU world has anyway (nvshmem4py needs it)."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["check", "driver", "succeed"]


@functools.cache
def driver() -> Any:
    """The bindings. They are imported on first use, since CPU worlds run without them."""
    from cuda.bindings import driver

    return driver


def check(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of a call of the driver, without its status.

    Raises:
        RuntimeError: the status is not success.
    """
    if int(result[0]) != 0:
        raise RuntimeError(f"an operation of a CUDA stream failed: {result[0]}")
    return result[1:]


def succeed(status: int) -> None:
    """As :func:`check`, of the number of a status."""
    if status:
        check((driver().CUresult(status),))
