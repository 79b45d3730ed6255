"""How much of a GPU a kernel may count on whose programs wait for each other."""

from __future__ import annotations

__all__ = ["multiprocessors_to_fill"]


def multiprocessors_to_fill(multiprocessors: int, *, shared: bool) -> int:
    """How many of so many, as CUDA tells this process, kernels fill.

    Where PEs share a GPU, an eighth is left out: CUDA's Multi-Process Service tells each of two processes with halves
    of an H200 that it has 66 of the 132, but runs no more programs than 126 hold, so that some of a grid that fills its
    half wait for the end of the other process's kernel, which may be waiting for them.
    """
    return multiprocessors - multiprocessors // 8 if shared else multiprocessors
