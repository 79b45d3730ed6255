"""The CUDA driver, through ``cuda-bindings``, which the GPU world has anyway (nvshmem4py needs it)."""

from __future__ import annotations

from typing import Any

__all__ = ["check", "driver"]


def driver() -> Any:
    """The bindings. Imported when they are first needed: the CPU world has none."""
    from cuda.bindings import driver

    return driver


def check(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call of the driver returned, behind its status.

    Raises:
        RuntimeError: the status is not success.
    """
    if int(result[0]) != 0:
        raise RuntimeError(f"the CUDA driver refuses an operation of a stream: {result[0]}")
    return result[1:]
