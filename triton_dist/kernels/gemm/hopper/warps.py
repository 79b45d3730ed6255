"""The warps of a program: one loads, one or two groups of four multiply, one stores."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["REGISTERS", "specialize", "specialize_without_store"]

REGISTERS = {1: 232, 2: 168}
"""Registers of a thread at launch, by the number of multiply groups: all that a multiprocessor has."""


@gluon.jit
def specialize(
    multiply: gl.constexpr, multiply_args, load: gl.constexpr, load_args, store: gl.constexpr, store_args,
    CONFIG: gl.constexpr,
):  # fmt: skip
    """Run three functions in warps of their own: ``multiply`` in each group, with the group's number in front.

    The load and store warps have few registers, so that the groups have enough for their sums.
    """
    if CONFIG.groups == 1:
        gl.warp_specialize(
            [
                (_multiply, (0, multiply, multiply_args)),
                (_run, (load, load_args)),
                (_run, (store, store_args)),
            ],
            [1, 1],
            [24, 48],
        )
    else:
        gl.warp_specialize(
            [
                (_multiply, (0, multiply, multiply_args)),
                (_multiply, (1, multiply, multiply_args)),
                (_run, (load, load_args)),
                (_run, (store, store_args)),
            ],
            [4, 1, 1],
            [232, 32, 24],
        )


@gluon.jit
def specialize_without_store(
    multiply: gl.constexpr, multiply_args, load: gl.constexpr, load_args, CONFIG: gl.constexpr
):
    """Run two functions in warps of their own; the groups store what they compute."""
    if CONFIG.groups == 1:
        gl.warp_specialize(
            [
                (_multiply, (0, multiply, multiply_args)),
                (_run, (load, load_args)),
            ],
            [1],
            [40],
        )
    else:
        gl.warp_specialize(
            [
                (_multiply, (0, multiply, multiply_args)),
                (_multiply, (1, multiply, multiply_args)),
                (_run, (load, load_args)),
            ],
            [4, 1],
            [232, 40],
        )


@gluon.jit
def _multiply(GROUP: gl.constexpr, function: gl.constexpr, arguments):
    function(GROUP, *arguments)


@gluon.jit
def _run(function: gl.constexpr, arguments):
    function(*arguments)
