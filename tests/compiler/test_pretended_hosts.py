"""Kernels ask who is reached by load and store in worlds with pretended hosts only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton.language as tl

import triton_dist.language as dl
from triton_dist.compiler import transport


def store_to(pointer, pe):  # type: ignore[no-untyped-def]
    tl.store(dl.symm_at(pointer, pe), 1)


def test_only_pretended_hosts_cost_instructions(compile_kernel: Callable[..., Any]) -> None:
    def instructions() -> int:
        return int(compile_kernel(store_to, {"pointer": "*i32", "pe": "i32"}).asm["ptx"].count(";"))

    try:
        transport.choose("p2p", 4)
        plain = instructions()
        transport.choose("p2p", 4, pretends_hosts=True)
        assert instructions() > plain
        transport.choose("p2p", 4)
        assert instructions() == plain
    finally:
        transport.choose(None)
