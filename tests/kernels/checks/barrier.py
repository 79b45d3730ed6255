"""Barriers of programs, one after the other, and the workspace that holds their state."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
import triton
import triton.language as tl
from harness import main

import triton_dist
import triton_dist.language as dl
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.protocols import workspace
from triton_dist.kernels.protocols.barrier import barrier
from triton_dist.kernels.protocols.members import group_size


@triton.jit
def exchange(state, slots, seen, rounds, MEMBERS: tl.constexpr):
    """In each round program i writes to slot i of every PE and, once all have, stores what its own slots hold."""
    N_PES: tl.constexpr = group_size(MEMBERS)
    i = tl.program_id(0)
    here = slots + i * N_PES
    for round in range(rounds):
        for pe in tl.static_range(N_PES):
            tl.store(dl.symm_at(here + dl.my_pe(), pe), round * 100 + dl.my_pe())
        barrier(state, i, MEMBERS)
        total = 0
        for pe in tl.static_range(N_PES):
            total += tl.load(here + pe)
        tl.store(seen + i * rounds + round, total)
        barrier(state, i, MEMBERS)  # the next round is written when all have read this one


def check_barriers(world: Any) -> None:
    """Of grids of several sizes, one after the other with one state."""
    n = world.n_pes
    state = workspace.barrier_state(communicator_of())
    for programs in (1, 5, 2, 5):
        slots = triton_dist.zeros(programs * n, dtype=torch.int32)
        seen = torch.zeros(programs, 4, dtype=torch.int32)
        exchange[(programs,)](state, slots, seen, 4, communicator_of().members)
        assert seen.tolist() == [[n * round * 100 + n * (n - 1) // 2 for round in range(4)]] * programs


def check_numbers_may_wrap(world: Any) -> None:
    state = workspace.barrier_state(communicator_of(), "about to wrap")
    state.fill_(2**31 - 3)  # the flags and the counters
    triton_dist.barrier_all()
    slots = triton_dist.zeros(world.n_pes, dtype=torch.int32)
    seen = torch.zeros(1, 4, dtype=torch.int32)
    exchange[(1,)](state, slots, seen, 4, communicator_of().members)
    assert seen[0, 3] == world.n_pes * 300 + world.n_pes * (world.n_pes - 1) // 2


def check_the_workspace(world: Any) -> None:
    """Is made once, grows by being made anew, and tells what is symmetric."""
    comm = communicator_of()
    place = workspace.symmetric_workspace(comm, "a place", 10, torch.int64)
    assert workspace.symmetric_workspace(comm, "a place", 4, torch.int64).data_ptr() == place.data_ptr()
    more = workspace.symmetric_workspace(comm, "a place", 20, torch.int64)
    assert more.numel() == 20 and not more.any()
    assert workspace.is_symmetric(comm, place[3:]) and not workspace.is_symmetric(comm, torch.zeros(4))
    assert workspace.barrier_state(comm).data_ptr() != workspace.barrier_state(comm, "other").data_ptr()


def check_distances_to_peers(world: Any) -> None:
    """Are known in a capture of what took the place of a smaller tensor, and refused of what no call has asked for."""
    comm = communicator_of()
    small = workspace.symmetric_workspace(comm, "far", 10)
    workspace.peer_distances(comm, small)
    large, unasked = workspace.symmetric_workspace(comm, "far", 20), workspace.symmetric_workspace(comm, "unasked", 5)
    with mock.patch.object(workspace, "is_capturing", return_value=True):
        found = workspace.peer_distances(comm, large)
        with pytest.raises(RuntimeError, match=r"not on the GPU yet, .* run the same call once before"):
            workspace.peer_distances(comm, unasked)
    assert found.tolist() == [comm.peer(large, rank).data_ptr() - large.data_ptr() for rank in range(comm.n_pes)]


if __name__ == "__main__":
    main(globals())
