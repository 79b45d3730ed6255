"""GEMMs of a group on several hosts by slices of hosts: which stream gets what."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

import fake_gpu
from prepared_calls.backward import CURRENT, SIDE
from prepared_calls.between_hosts import CALLS, two_hosts
from prepared_calls.calls import A, B
from prepared_calls.world import RECORDER

from triton_dist import kernels
from triton_dist.kernels.protocols.host_exchange import PROGRAMS

SMS = 132


class Launches(list[Any]):
    """Has launches, by their grids, among what streams are given."""

    def append(self, launched: Any) -> None:
        fake_gpu.QUEUED.append((launched[3], "launch", launched[:3]))


def given(call: Any) -> list[tuple[Any, ...]]:
    """What streams are given in a call, in order."""
    fake_gpu.QUEUED.clear()
    with mock.patch.object(RECORDER, "all", Launches()):
        call()
    return [*fake_gpu.QUEUED]


def slices_are_computed_beside_exchanges() -> None:
    """Between a fork and a join the streams have a slice and an exchange, and no wait for each other. The slice leaves
    multiprocessors to the exchange. The sums that are sent are computed in front of the fork, and rows that are awaited
    are multiplied behind the join."""
    fork, join = (SIDE, "wait for", f"event of {CURRENT}"), (CURRENT, "wait for", f"event of {SIDE}")
    with two_hosts() as comm:
        for function, out, _ in CALLS[:3]:
            call = partial(function, A, B, out, group=comm, algorithm="two_level")
            for kind in ("ordinary", "prepared"):
                queued = given(call)
                forks, joins = queued.index(fork), queued.index(join)
                (here, _, grid), (side, _, programs) = queued[forks + 1 : joins]
                assert (here, side) == (CURRENT, SIDE) and programs == [PROGRAMS, 1, 1], (kind, queued)
                assert grid[0] <= SMS - PROGRAMS and grid[1:] == [1, 1], (kind, queued)
                others = [*queued[:forks], *queued[joins + 1 :]]
                assert {(stream, what) for stream, what, *_ in others} == {(CURRENT, "launch")}, (kind, queued)
                # The admission, and the slice of the other host, which cuBLAS may compute; the sums are finished last.
                before, behind = forks, len(queued) - joins - 1
                assert 1 <= before <= 2 if function is not kernels.all_gather_gemm else before == 1, (kind, queued)
                assert behind <= 1 if function is not kernels.gemm_all_reduce else behind == 2, (kind, queued)
