"""What goes by TMA in rounds, and how a multiprocessor works then: dispatches (``rounds_hopper.py``) and combines
(``combine_hopper.py``), and those of tokens that go once to each PE (``tokens_hopper.py``)."""

from __future__ import annotations

from typing import NamedTuple

from triton_dist.kernels.device import is_hopper
from triton_dist.kernels.rates import ROW_BYTES, ROWS

__all__ = [
    "LINE_BYTES",
    "CombinePlan",
    "Plan",
    "TokensPlan",
    "combine_plan_for",
    "combine_plan_of",
    "depth_for",
    "early_rounds_for",
    "lanes_of",
    "lines_in_memory",
    "plan_for",
    "plan_of",
    "row_time_for",
    "stages_of",
    "sums_plan_for",
    "sums_plan_of",
    "tokens_plan_for",
    "tokens_plan_of",
    "unit_for",
]

LINE_BYTES = 128
_SHARED = 232448 - 4096
"""Bytes of a multiprocessor's shared memory for rows; the rest is for barriers and what Triton needs."""
_LINES = 8, 256
"""A row's, at least and at most. With less, rings hold no more than registers; a box of TMA has no more."""
_STAGES = 5, 24
"""Rows of a lane's rings, at least and at most."""
_MOST_PES = 8
_MOST_CHOICES = 16
"""Of a token: each is a store of its own, with an address in a register."""
_SPLIT = 64
"""From so many multiprocessors on a quarter of them only sends."""
_OF_A_COMBINE = 232448 - 2048
"""As ``_SHARED``."""
_DEPTHS = 8, 16
_IN_FLIGHT = 10 << 20
"""Bytes, of all lanes to all peers."""
_THROTTLED = 4 << 10
"""Bytes of a row whose stores are throttled, at least."""
_EARLY = 2 << 20
"""Bytes that the link moves while a kernel exchanges tables, 6 µs."""
_OF_BATCHES = 4 << 10
"""Bytes of a row of which a batch is claimed at a time, at most."""
_SUMMED_LINES = 128
"""Of a box whose sums four warps hold in registers, at most."""


class Plan(NamedTuple):
    """How a multiprocessor works.

    Attributes:
        lanes: 1 or 2, each with a warp that sends and one that receives.
        batch: tokens of a lane in a round.
        senders: how many multiprocessors do nothing but send, by 2 · ``lanes`` warps, so that what NVLink does not take
            at once is not in front of local copies; 0: all do both.
        headers: tokens of a round of the kernel in front, which exchanges headers and scales.
    """

    lanes: int = 2
    batch: int = 8
    senders: int = 0
    headers: int = 32


def plan_of(n_pes: int, top_k: int, row_bytes: int, num_sms: int) -> Plan | None:
    """The plan of a dispatch by ``num_sms`` multiprocessors; None if load and store take it. The same on all PEs of
    equal GPUs.

    TMA takes it on Hopper GPUs, for 2 to 8 PEs, up to 16 choices, and rows of 1 KB to 32 KB, multiples of 128 bytes.
    """
    return plan_for(n_pes, top_k, row_bytes, num_sms) if num_sms and is_hopper() else None


def plan_for(n_pes: int, top_k: int, row_bytes: int, num_sms: int) -> Plan | None:
    """As :func:`plan_of`, on a Hopper GPU."""
    if not _takes(n_pes, top_k, row_bytes):
        return None
    lines = row_bytes // LINE_BYTES
    senders = num_sms // 4 if num_sms >= _SPLIT else 0
    for lanes in (2, 1):
        if stages_of(lines, lanes) >= _STAGES[0]:
            return Plan(lanes, senders=senders)
    return None


class CombinePlan(NamedTuple):
    """How a multiprocessor works in a combine.

    Attributes:
        box: lines of a row that TMA loads at a time. sent, received: pairs of boxes of the rings.
        batch: tokens of a round. Each choice of them, and each PE, has a bit of 64.
    """

    box: int
    sent: int
    received: int
    batch: int


def combine_plan_of(n_pes: int, top_k: int, row_bytes: int) -> CombinePlan | None:
    """The plan of a combine in rounds; None if load and store take it. TMA takes what :func:`plan_of` says."""
    return combine_plan_for(n_pes, top_k, row_bytes) if is_hopper() else None


def combine_plan_for(n_pes: int, top_k: int, row_bytes: int) -> CombinePlan | None:
    """As :func:`combine_plan_of`, on a Hopper GPU."""
    if not _takes(n_pes, top_k, row_bytes):
        return None
    box = min(lines_in_memory(row_bytes // LINE_BYTES), _SUMMED_LINES)
    pairs = min(_OF_A_COMBINE // (2 * box * LINE_BYTES), 2 * _STAGES[1])
    return CombinePlan(box, pairs - pairs // 2, pairs // 2, 4 if top_k > 8 else 8)


class TokensPlan(NamedTuple):
    """How a multiprocessor moves tokens that go once to each PE, or their sums: rows of its rings, of what this PE has
    and of what comes."""

    sent: int
    received: int


def tokens_plan_of(n_pes: int, top_k: int, row_bytes: int) -> TokensPlan | None:
    """The plan of tokens that go once to each PE; None if load and store take them. TMA takes what :func:`plan_of`
    says."""
    return tokens_plan_for(n_pes, top_k, row_bytes) if is_hopper() else None


def tokens_plan_for(n_pes: int, top_k: int, row_bytes: int) -> TokensPlan | None:
    """As :func:`tokens_plan_of`, on a Hopper GPU."""
    if not _takes(n_pes, top_k, row_bytes):
        return None
    return _rings_of(row_bytes, 3)


def depth_for(n_pes: int, lanes: int, batch: int, row_bytes: int) -> int:
    """For how many rounds lanes have slots, of so many rows from each PE: half of these are in flight.

    Some 20 µs pass from a row's store to the flag that says that the peer has received it, and the link should not be
    idle meanwhile. More rounds than that help no dispatch, and combines take longer: then sends are farther ahead of
    the sums that are left in the end.
    """
    of_round = _sent_in_a_round(n_pes, lanes, batch, row_bytes)
    return next((depth for depth in _DEPTHS if depth // 2 * of_round >= _IN_FLIGHT), _DEPTHS[-1])


def early_rounds_for(n_pes: int, lanes: int, batch: int, row_bytes: int) -> int:
    """How many rounds are sent while tables are exchanged, at least one, and none that waits for what has come."""
    sizes = n_pes, lanes, batch, row_bytes
    return max(1, min(round(_EARLY / _sent_in_a_round(*sizes)), depth_for(*sizes) // 2))


def unit_for(row_bytes: int) -> int:
    """Tokens that a program claims at a time (``token_claims.py``): of small rows a batch, as a claim takes time."""
    return 4 if row_bytes > _OF_BATCHES else 8


def row_time_for(n_pes: int, lanes: int, batch: int, row_bytes: int) -> float:
    """Nanoseconds in which the link takes a row, if it is not full; 0 where stores are not throttled.

    Throttled lanes all send the last row of a round at its end, and a peer moves none of a round before that. In rounds
    of many bytes this costs more than throttling gains: combines of 7168 by 64 SMs of 4 H200s, with rounds of 23 MB,
    take 500 µs throttled and 491 otherwise. Throttled rows of less than 4 KB have not been measured.
    """
    if _sent_in_a_round(n_pes, lanes, batch, row_bytes) > _IN_FLIGHT or row_bytes < _THROTTLED:
        return 0.0
    return 1e9 * (row_bytes + ROW_BYTES) / ROWS[n_pes > 2]


def _sent_in_a_round(n_pes: int, lanes: int, batch: int, row_bytes: int) -> int:
    """Bytes, of all lanes to all peers, at most."""
    return lanes * batch * (n_pes - 1) * row_bytes


def _rings_of(row_bytes: int, sevenths: int) -> TokensPlan:
    """Rings of as many rows as there is room for, of which so many sevenths send."""
    stages = min(_SHARED // (lines_in_memory(row_bytes // LINE_BYTES) * LINE_BYTES), 2 * _STAGES[1])
    sent = max(stages * sevenths // 7, 2)
    return TokensPlan(sent, stages - sent)


def sums_plan_of(n_pes: int, row_bytes: int) -> TokensPlan | None:
    """How TMA brings back rows of tokens that went once to each PE, up to 16 KB; None if load and store do."""
    return sums_plan_for(n_pes, row_bytes) if is_hopper() else None


def sums_plan_for(n_pes: int, row_bytes: int) -> TokensPlan | None:
    """As :func:`sums_plan_of`, on a Hopper GPU."""
    if not _takes(n_pes, 1, row_bytes) or row_bytes > _SUMMED_LINES * LINE_BYTES:
        return None
    plan = _rings_of(row_bytes, 2)  # of a token a row comes from each of its PEs, and one is sent
    assert plan.received >= n_pes, "all rows of a token are released together"
    return plan


def _takes(n_pes: int, top_k: int, row_bytes: int) -> bool:
    if not 2 <= n_pes <= _MOST_PES or top_k > _MOST_CHOICES or row_bytes % LINE_BYTES:
        return False
    return _LINES[0] <= row_bytes // LINE_BYTES <= _LINES[1]


def lines_in_memory(lines: int) -> int:
    """Lines of a box, a power of two, for a row of so many lines."""
    return 1 << max(lines - 1, 0).bit_length()


def stages_of(lines: int, lanes: int) -> int:
    """How many rows the rings of a lane hold."""
    return min(_SHARED // (lines_in_memory(lines) * LINE_BYTES) // lanes, _STAGES[1])


def lanes_of(plan: Plan, programs: int) -> int:
    """How many lanes all programs have."""
    return (programs - plan.senders) * 2 * plan.lanes if plan.senders else programs * plan.lanes
