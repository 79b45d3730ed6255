"""The hosts of a world: which PEs share memory, by load and store, and which have messages only.

``TRITON_DIST_TOPOLOGY`` divides the PEs of real hosts into pretended hosts: programs for several hosts run on one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass

from triton_dist import environment
from triton_dist.bootstrap.launch import Launch
from triton_dist.bootstrap.rendezvous import Member

__all__ = ["Host", "Hosts", "find_hosts"]

_VARIABLE = "TRITON_DIST_TOPOLOGY"


@dataclass(frozen=True)
class Host:
    """One host of a world."""

    name: str
    """Its node name; a pretended host adds its number, as in ``"node7/1"``."""

    pes: tuple[int, ...]
    """Its PEs, in ascending order."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Hosts:
    """All hosts, in the order of their first PEs."""

    all: tuple[Host, ...]
    pretended: bool
    """Whether ``TRITON_DIST_TOPOLOGY`` divides PEs that could reach each other."""

    def of(self, pe: int) -> Host:
        """The host of a PE of the world."""
        return next(host for host in self.all if pe in host.pes)


def find_hosts(launch: Launch, domain: Callable[[Member], str]) -> Hosts:
    """The hosts of a launch. *Collective.*

    Args:
        domain: PEs whose members have it in common are on one host.

    Raises:
        RuntimeError: ``TRITON_DIST_TOPOLOGY`` differs between PEs, has another number of PEs than there are, or puts
            PEs of different hosts on one.
    """
    real = _real_hosts(launch, domain)
    topology: tuple[int, int] | None = environment.get(_VARIABLE)
    said = launch.exchange("topology", "x".join(map(str, topology or ())))
    for pe, theirs in enumerate(said):
        if theirs != said[0]:
            raise RuntimeError(
                f"{_VARIABLE} is {said[0] or 'not set'} on PE 0 and {theirs or 'not set'} on PE {pe}: set it alike on"
                " all PEs"
            )
    if topology is None:
        return Hosts(real, False)
    n_hosts, each = topology
    if n_hosts * each != launch.n_pes:
        raise RuntimeError(
            f"{_VARIABLE}={n_hosts}x{each} is {n_hosts} hosts of {each} PEs, {n_hosts * each} in all, and this world"
            f" has {launch.n_pes} PEs: every host has the same number of PEs, and every PE a host"
        )
    pretended = []
    for number in range(n_hosts):
        pes = tuple(range(number * each, (number + 1) * each))
        homes = {pe: host for host in real for pe in host.pes if pe in pes}
        for pe in pes:
            if homes[pe] is not homes[pes[0]]:
                raise RuntimeError(
                    f"{_VARIABLE}={n_hosts}x{each} puts PE {pes[0]}, which is on {homes[pes[0]]}, and PE {pe}, which is"
                    f" on {homes[pe]}, on one host"
                )
        pretended.append(Host(f"{homes[pes[0]]}/{number}", pes))
    if [host.pes for host in pretended] == [host.pes for host in real]:
        return Hosts(real, False)
    return Hosts(tuple(pretended), True)


def _real_hosts(launch: Launch, domain: Callable[[Member], str]) -> tuple[Host, ...]:
    if not launch.members:
        return (Host(platform.node(), (0,)),)
    pes: dict[str, list[int]] = {}
    for member in launch.members:
        pes.setdefault(domain(member), []).append(member.pe)
    return tuple(Host(launch.members[found[0]].host, tuple(found)) for found in pes.values())
