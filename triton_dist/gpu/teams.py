"""Teams of a GPU world: NVSHMEM makes them, and what it calls them our own device library does too.

NVSHMEM numbers the teams of a PE, with the same number on all members of one: that is the handle. Disjoint teams may
share a number. The device library has a table by the same numbers, in the state of every module. Where NVSHMEM makes no
teams, because PEs share a GPU, PEs agree on numbers by themselves.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from triton_dist.gpu import p2p
from triton_dist.world.teams import Team, agree_on_handle

__all__ = ["GpuTeams"]


class GpuTeams:
    """This PE's teams. ``sync`` holds the device library's barrier states (``p2p.sync_bytes()``), symmetric.

    ``bindings`` are nvshmem4py's, or None where NVSHMEM makes no teams.
    """

    def __init__(self, bindings: Any | None, sync: torch.Tensor) -> None:
        self._bindings = bindings
        self._places = sync.view(p2p.max_teams(), -1)
        self.table: dict[int, range] = {}
        """The PEs of each team but that of all, by handle."""

    def make(self, parent: Team, team: Team) -> int:
        """The handle; -1 on those that are not in it. *Collective* over ``parent``; no kernel may run."""
        if self._bindings is None:
            free = set(range(1, p2p.max_teams())) - self.table.keys()
            handle = agree_on_handle(parent, team, free, p2p.max_teams())
            handle = handle if parent.world.pe in team.pes else -1
        else:
            handle = self._made_by_nvshmem(self._bindings, parent, team)
        if handle != -1:
            self._places[handle].zero_()  # an earlier team may have met there
            torch.cuda.synchronize(self._places.device)
            self.table[handle] = team.pes
        return handle

    @staticmethod
    def _made_by_nvshmem(bindings: Any, parent: Team, team: Team) -> int:
        made = ctypes.c_int32(-1)
        start, stride = parent.pes.index(team.pes[0]), team.pes.step // parent.pes.step
        try:
            bindings.team_split_strided(parent.handle, start, stride, team.n_pes, 0, 0, ctypes.addressof(made))
        except Exception as error:  # its class differs between versions of nvshmem4py
            raise RuntimeError(
                f"NVSHMEM could not make {team}: {error}. If there are as many as it can have, destroy() one, or set"
                " NVSHMEM_MAX_TEAMS"
            ) from error
        handle = made.value
        if handle >= p2p.max_teams():
            bindings.team_destroy(handle)
            raise RuntimeError(f"{team} would be number {handle}, and a PE can have {p2p.max_teams()} teams")
        return handle

    def unmake(self, team: Team) -> None:
        del self.table[team.handle]
        if self._bindings is not None:
            self._bindings.team_destroy(team.handle)
