"""Order of a program's operations, and waiting for all PEs."""

from __future__ import annotations

from triton_dist._C.op_table import ThreadScope
from triton_dist.cpu.ops.address_checks import the_world
from triton_dist.cpu.ops.query import the_team
from triton_dist.cpu.program import running
from triton_dist.cpu.runtime import atomics
from triton_dist.world.teams import Team

__all__ = ["barrier", "barrier_all", "fence", "meet", "pe_fence", "pe_quiet", "quiet", "sync", "sync_all"]


def fence() -> None:
    world = the_world()
    running().outstanding.fence()
    world.heap.fence()
    atomics.fence()


def quiet() -> None:
    world = the_world()
    running().outstanding.arrive()
    world.heap.quiet()
    atomics.fence()


def pe_fence(pe: int) -> None:
    world = the_world()
    running().outstanding.fence(world.check_pe(pe))
    world.heap.fence()
    atomics.fence()


def pe_quiet(pe: int) -> None:
    world = the_world()
    running().outstanding.arrive(world.check_pe(pe))
    world.heap.quiet()
    atomics.fence()


def barrier_all(scope: ThreadScope) -> None:
    meet(the_world().team_world, "barrier_all")


def sync_all(scope: ThreadScope) -> None:
    meet(the_world().team_world, "sync_all")


def barrier(team: int, scope: ThreadScope) -> None:
    meet(the_team("team", team), "barrier")


def sync(team: int, scope: ThreadScope) -> None:
    meet(the_team("team", team), "sync")


def meet(team: Team, call: str) -> None:
    """Wait for one program of each PE of ``team``, which does the same. What each wrote before, all see after."""
    quiet()
    world = the_world()
    which = "" if team is world.team_world else f" of the {str(team).strip('<>')} with handle {team.handle}"
    with world.kernel_barrier(team, call) as passed:
        running().wait_until(passed, lambda: f"{call}{which}: not all {team.n_pes} PEs have come", pes=tuple(team.pes))
