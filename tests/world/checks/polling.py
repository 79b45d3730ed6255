"""Programs that poll: the time limit, the error or warning, and loops that do not count as polling. For one PE."""

from __future__ import annotations

import os
import time
from typing import Any
from unittest import mock

import pytest
import torch
import triton
import triton.language as tl
from harness import main, place, raises

import triton_dist


@triton.jit
def spin_and_count(flag, out, n):
    looked = 0
    while tl.atomic_add(flag, 0) == 0:  # HERE heartbeat
        looked += 1
        tl.store(out, looked)
        if looked == n:
            tl.store(flag, 1)


def check_a_long_loop_that_stores_is_told_of(world: Any) -> None:
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with (
        mock.patch.dict(os.environ, TRITON_DIST_WAIT_TIMEOUT="0.01"),
        pytest.warns(RuntimeWarning, match=rf"{place('heartbeat')} has been for 0.01 s in a loop around tl.atomic_add"),
    ):
        spin_and_count[(1,)](flag, out, 5000)
    assert out.item() == 5000


@triton.jit
def read_often(x, out, n):
    total = 0.0
    i = 0
    while i < n:
        total += tl.load(x)
        i += 1
    for _ in range(n):
        total += tl.load(x)
    tl.store(out, total)


def check_what_is_read_often_is_no_wait(world: Any) -> None:
    """Also where it takes longer than a wait may."""
    out = torch.zeros(1)
    with mock.patch.dict(os.environ, TRITON_DIST_WAIT_TIMEOUT="2"):
        read_often[(1,)](torch.ones(1), out, 3000)
    assert out.item() == 6000


@triton.jit
def spin_on_many(flags, out, N: tl.constexpr):
    words = flags + tl.arange(0, N)
    if tl.program_id(0) == 0:
        looked = 0
        while tl.min(tl.load(words, volatile=True)) == 0:
            looked += 1
        tl.store(out, looked)
    else:
        tl.store(words, 1)


def check_many_words_are_polled_as_well_as_one(world: Any) -> None:
    flags, out = torch.zeros(16384, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    spin_on_many[(2,)](flags, out, len(flags))
    assert flags.all()


@triton.jit
def spin_for_ever(flag, out, n):
    looked = 0
    while tl.load(flag) == 0:  # HERE spin
        looked += tl.load(out + looked % n) + 1
    tl.store(out, looked)


def check_report_of_a_loop_around_plain_loads(world: Any) -> None:
    """It loads something else as often, but what it looks at first is what it waits for."""
    flag = triton_dist.zeros(1, dtype=torch.int32)
    begin = time.monotonic()
    with (
        mock.patch.dict(os.environ, TRITON_DIST_WAIT_TIMEOUT="1.5"),
        raises(
            RuntimeError,
            rf"program \(0, 0, 0\) at \S*{place('spin')} waits in a loop around tl.load: {flag.data_ptr():#x} \("
            r"element 0 of the symmetric tensor \(\(1,\), torch.int32\) on PE 0\), which stays \[0\]; .*volatile=True",
        ),
    ):
        spin_for_ever[(1,)](flag, torch.zeros(1, dtype=torch.int32), 1)
    assert time.monotonic() - begin > 1.4


if __name__ == "__main__":
    main(globals())
