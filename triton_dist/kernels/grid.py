"""A group as a grid: a row for each host, in which members load from and store to each other, and a column for each
local number, whose members are on different hosts and have messages only.
"""

from __future__ import annotations

from typing import NamedTuple

from triton_dist.kernels.protocols.members import Members
from triton_dist.world import World

__all__ = ["Grid", "grid_of"]


class Grid(NamedTuple):
    """The members of a group by hosts.

    Ranks are numbered host by host, or round-robin over the hosts, as launchers do.
    """

    hosts: int
    per_host: int
    row: Members
    """The members on this PE's host, a constant of kernels that is the same on all of them."""
    column: Members
    """The members with this PE's number on their hosts, likewise."""

    @property
    def is_by_hosts(self) -> bool:
        """Whether ranks are numbered host by host."""
        return self.row.stride <= self.column.stride

    def place_of(self, rank: int) -> tuple[int, int]:
        """The host of a rank, and its number there."""
        if self.is_by_hosts:
            return divmod(rank, self.per_host)
        local, host = divmod(rank, self.hosts)
        return host, local


def grid_of(world: World, pes: range) -> Grid:
    """The members ``pes`` by hosts. PEs of a host that do not map each other's memory count as a host each.

    Raises:
        RuntimeError: hosts have different numbers of members, or ranks are in another order.
    """
    hosts = [[pe for pe in pes if pe in host.pes] for host in world.hosts]
    hosts = [found for found in hosts if found]
    mine = next(found for found in hosts if world.pe in found)
    if not all(world.is_reachable(pe) for pe in mine):
        hosts = [[pe] for pe in pes]
    names = {pe: host.name for host in world.hosts for pe in host.pes}
    first = hosts[0]
    for other in hosts:
        if len(other) != len(first):
            more, fewer = sorted((first, other), key=len, reverse=True)
            raise RuntimeError(
                f"the group has {len(more)} PEs on host {names[more[0]]} and {len(fewer)} on host {names[fewer[0]]}: PE"
                f" {more[len(fewer)]} on host {names[more[0]]} has no partner on {names[fewer[0]]}, to which it would"
                " send. A group over several hosts has as many PEs on each"
            )
    n_hosts, per_host = len(hosts), len(first)
    for down, across in ((per_host, 1), (1, n_hosts)):
        if hosts == [[pes[down * i + across * j] for j in range(per_host)] for i in range(n_hosts)]:
            row = Members(pes.start, pes.step * across, per_host, True)
            return Grid(n_hosts, per_host, row, Members(pes.start, pes.step * down, n_hosts, True))
    by_host = [pe for host in hosts for pe in host]
    at = next(i for i, pe in enumerate(pes) if pe != by_host[i])
    raise RuntimeError(
        f"the group's rank {at} is PE {pes[at]} on host {names[pes[at]]}: the PEs of a group over several hosts are"
        " numbered host by host, or round-robin over the hosts"
    )
