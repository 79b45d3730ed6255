"""Waiting for numbers of launches that wrap around, with flags that are there without a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest

from triton_dist.kernels.gemm.hopper import flags


@pytest.mark.parametrize("number", [1, 2**31 - 1, -(2**31), -(2**31) + 1, -1, 0, 1 - 2**31])
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_flag_is_awaited_until_it_has_come_to_the_number(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As the GPU computes, in 32 bits. One too low does not do, one more does."""
    monkeypatch.setattr("triton_dist.triton_api.is_interpreting", lambda: True)  # its ops know no other host
    for ahead in (0, 1):
        seen = [int(numpy.int64(number - 1 + i).astype(numpy.int32)) for i in range(2 + ahead)]
        looks = [seen[0], seen[0], seen[-1]]
        monkeypatch.setattr(flags, "gl", SimpleNamespace(atomic_add=lambda *_, **__: numpy.int32(looks.pop(0))))  # noqa: B023
        flags.acquire.fn("flag", numpy.int32(number), "sys")
        assert not looks, f"it went on with {seen[0]} for {number}"
