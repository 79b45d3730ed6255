"""Kernels ask who is reached by load and store in worlds with pretended hosts only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import triton.language as tl

import triton_dist.language as dl
from triton_dist.compiler import transport


def store_to(pointer, pe):  # type: ignore[no-untyped-def]
    tl.store(dl.symm_at(pointer, pe), 1)


def store_or_put(pointer, source, signal, pe):  # type: ignore[no-untyped-def]
    """What two-level collectives do, in one kernel: load and store inside a host, and NVSHMEM's calls between hosts."""
    if dl.is_reachable(pe):
        tl.store(dl.symm_at(pointer, pe), tl.load(source))
    else:
        dl.putmem_signal(pointer, source, 4, signal, 1, dl.SIGNAL_ADD, pe)
    dl.signal_wait_until(signal, dl.CMP_GE, 1)


@pytest.fixture
def pretending() -> Iterator[Callable[[str, bool], None]]:
    """Sets the transport of compilations, and whether hosts are pretended."""
    yield lambda name, pretends: transport.choose(name, 4, pretends_hosts=pretends)
    transport.choose(None)


def test_kernels_of_nvshmem_ask_our_library(
    compile_kernel: Callable[..., Any], pretending: Callable[[str, bool], None]
) -> None:
    """It has the bits of pretended hosts. Puts and signals stay NVSHMEM's, which reach all PEs."""
    signature = {"pointer": "*i32", "source": "*i32", "signal": "*i64", "pe": "i32"}
    states = ("triton_dist_p2p_state", "nvshmemi_device_state_d")
    for pretends in (False, True, False):
        pretending("nvshmem", pretends)
        kernel = compile_kernel(store_or_put, signature)
        assert [state in kernel.asm["ptx"] for state in states] == [pretends, True]
        assert kernel.asm["cubin"]


def test_only_pretended_hosts_cost_instructions(
    compile_kernel: Callable[..., Any], pretending: Callable[[str, bool], None]
) -> None:
    def instructions(pretends: bool) -> int:
        pretending("p2p", pretends)
        return int(compile_kernel(store_to, {"pointer": "*i32", "pe": "i32"}).asm["ptx"].count(";"))

    plain = instructions(False)
    assert instructions(True) > plain
    assert instructions(False) == plain
