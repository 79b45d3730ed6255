"""Compiles receivers of words, by 256 threads, for an H100 that need not be there, and prints their PTX.

Of 32, 64 and 256 words; of 64 in a block that is held once; and of the counts of 2 PEs with 32 experts each.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.moe.dispatch_counts import receive_counts
from triton_dist.kernels.moe.rows import look_at, take_words
from triton_dist.kernels.protocols.members import Members
from triton_dist.language._poll import held_once


@triton.jit
def receive(out, slot, WORDS: tl.constexpr, ONCE: tl.constexpr):
    BLOCK: tl.constexpr = held_once(WORDS) if ONCE else WORDS
    offsets = tl.arange(0, BLOCK)
    places = slot + offsets
    mask = offsets < WORDS
    tl.store(out + offsets, take_words(look_at(places, mask), places, mask, slot, 1, WORDS), mask=mask)


@triton.jit
def receive_of_all(out, counts, number, MEMBERS: tl.constexpr, L: tl.constexpr):
    arrived = receive_counts(counts, number, MEMBERS, L)
    rows = tl.arange(0, arrived.shape[0])[:, None]
    tl.store(out + rows * arrived.shape[1] + tl.arange(0, arrived.shape[1])[None, :], arrived)


def show(kernel: Any, types: dict[str, str], constants: dict[str, Any]) -> None:
    source = ASTSource(kernel, types | dict.fromkeys(constants, "constexpr"), constants)
    with transport.using("p2p"):
        print(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["ptx"])


if __name__ == "__main__":
    for words, once in ((32, False), (64, False), (256, False), (64, True)):
        show(receive, {"out": "*i32", "slot": "*i32"}, {"WORDS": words, "ONCE": once})
    types = {"out": "*i32", "counts": "*i64", "number": "i32"}
    show(receive_of_all, types, {"MEMBERS": Members(0, 1, 2), "L": 32})
