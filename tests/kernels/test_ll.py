"""How many programs exchange messages of the LL protocol, and with which blocks."""

from __future__ import annotations

import pytest

import triton_dist
from triton_dist.kernels.device import NO_LIMIT
from triton_dist.kernels.protocols.ll import LL_PROGRAMS, LL_WORDS, block_of, fits


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
@pytest.mark.parametrize("n_pes", [1, 3, 8, 72])
def test_a_message_that_fits_takes_no_more_programs(monkeypatch: pytest.MonkeyPatch, kind: str, n_pes: int) -> None:
    monkeypatch.setattr(triton_dist, "kind", lambda: kind)
    sizes = {1, 255, 256, 257, *(most + by for most in (32 * 256, 128 * 512, 128 * 1024) for by in (-1, 0, 1))}
    for limit in (1, 2, 7, 31, 32, 33, 127, 128, 131, NO_LIMIT):
        largest = min(limit, LL_PROGRAMS) * block_of(1 << 40, n_pes, limit)
        for n in {*sizes, largest, largest + 1}:
            assert fits(n, n_pes, limit) == (n <= largest), (n, limit)
            if fits(n, n_pes, limit):
                block = block_of(n, n_pes, limit)
                assert -(-n // block) <= min(limit, LL_PROGRAMS) and 2 <= block <= LL_WORDS, (n, limit)


def test_without_a_limit_small_messages_take_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_dist, "kind", lambda: "gpu")
    assert [block_of(n, 4) for n in (1, 8192, 8193, 65536, 65537)] == [256, 256, 512, 512, 1024]
