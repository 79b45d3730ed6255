"""Compiles receivers of 32, 64 and 256 words, by 256 threads, for an H100 that need not be there: prints their PTX."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from triton_dist.compiler import transport
from triton_dist.kernels.moe.rows import look_at, take_words


@triton.jit
def receive(out, slot, WORDS: tl.constexpr):
    offsets = tl.arange(0, WORDS)
    places = slot + offsets
    mask = offsets < WORDS
    tl.store(out + offsets, take_words(look_at(places, mask), places, mask, slot, 1, WORDS))


if __name__ == "__main__":
    for words in (32, 64, 256):
        source = ASTSource(receive, {"out": "*i32", "slot": "*i32", "WORDS": "constexpr"}, {"WORDS": words})
        with transport.using("p2p"):
            print(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["ptx"])
