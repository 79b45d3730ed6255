"""Who am I, how many are we, and where is a peer's copy of an object."""

from __future__ import annotations

from triton_dist.cpu.ops.address_checks import offset, the_world
from triton_dist.world.teams import Team

__all__ = [
    "heap_distance",
    "is_reachable",
    "my_pe",
    "n_pes",
    "symm_offset",
    "team_my_pe",
    "team_n_pes",
    "team_translate_pe",
    "the_team",
]


_TEAM_INVALID = -1


def the_team(name: str, handle: int) -> Team:
    """The team that a kernel calls ``handle``."""
    world = the_world()
    team = world.teams.get(handle)
    if team is None:
        raise ValueError(
            f"{name} is {handle}: PE {world.pe} has no such team; pass the handle of one that it is in, or TEAM_WORLD"
        )
    return team


def my_pe() -> int:
    return the_world().pe


def n_pes() -> int:
    return the_world().n_pes


def team_my_pe(team: int) -> int:
    return -1 if team == _TEAM_INVALID else the_team("team", team).my_pe


def team_n_pes(team: int) -> int:
    return -1 if team == _TEAM_INVALID else the_team("team", team).n_pes


def team_translate_pe(src_team: int, src_pe: int, dest_team: int) -> int:
    """-1, as the standard has it, for a PE that is not there and for no team."""
    if _TEAM_INVALID in (src_team, dest_team):
        return -1
    return the_team("src_team", src_team).translate_pe(src_pe, the_team("dest_team", dest_team))


def symm_offset(ptr: int, pe: int) -> int:
    """How far PE ``pe``'s copy of what is at ``ptr`` lies from this PE's, in bytes."""
    world = the_world()
    offset(world, "ptr", ptr, 0)
    return heap_distance(pe)


def heap_distance(pe: int) -> int:
    world = the_world()
    pe = world.check_pe(pe)
    world.check_reachable(pe)
    return world.heap.base(pe) - world.heap.base(world.pe)


def is_reachable(pe: int) -> int:
    return int(the_world().is_reachable(pe))
