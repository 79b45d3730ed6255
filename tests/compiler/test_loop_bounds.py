"""Bounds of loops that a loop around them carries reach the machine code: Triton 3.7.1 alone forgets them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import amd
import pytest
import triton.language as tl

import triton_dist.language as dl
from triton_dist.compiler import transport

Compile = Callable[..., Any]
SIGNATURE = {"lengths": "*i32", "places": "*i32", "signal": "*i64", "n": "i32"}


def rows_of_any_length(lengths, places, signal, n):
    length = tl.load(lengths)
    for i in range(n):
        for j in range(length):
            tl.store(places + i * 64 + j, j)
        length = tl.load(lengths + i + 1)
    dl.signal_op(signal, 1, dl.SIGNAL_SET, 0)


def ends_that_are_computed(lengths, places, signal, n):
    length = tl.load(lengths)
    for i in range(n):
        for j in range(tl.minimum(length, 7) + 1):
            tl.store(places + i * 64 + j, j)
        length = tl.load(lengths + i + 1)
    dl.signal_op(signal, 1, dl.SIGNAL_SET, 0)


def carried_lengths(ttgir: str) -> list[bool]:
    """Of each loop in another one, whether its end comes from what the outer one carries."""
    definitions = dict(re.findall(r"(%\w+) = (.*)", ttgir))
    carried = {name for found in re.findall(r"iter_args\((.*?)\) ->", ttgir) for name in re.findall(r"(%\w+) =", found)}

    def depends(value: str) -> bool:
        return value in carried or any(depends(name) for name in re.findall(r"%\w+", definitions.get(value, "")))

    return [depends(end) for end in re.findall(r"scf\.for %j = %\w+ to (%\w+)", ttgir)]


@pytest.mark.parametrize("kernel", [rows_of_any_length, ends_that_are_computed])
def test_carried_bounds_are_used(compile_kernel: Compile, kernel: Any) -> None:
    compiled = compile_kernel(kernel, SIGNATURE)
    assert carried_lengths(compiled.asm["ttgir"]) == [True]


def test_they_are_used_on_amd_gpus(compile_kernel: Compile) -> None:
    with transport.using("p2p"):
        compiled = compile_kernel(rows_of_any_length, SIGNATURE, amd.target("gfx942"))
    assert carried_lengths(compiled.asm["ttgir"]) == [True] and "s_endpgm" in compiled.asm["amdgcn"]
