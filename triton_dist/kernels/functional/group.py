"""Which PEs an operator works on: a group, by its size and its name, as PyTorch's functional collectives take it."""

from __future__ import annotations

from typing import Any

import torch

from triton_dist import torch_api
from triton_dist.kernels.communicator import (
    Communicator,
    communicator_named,
    communicator_of,
    communicator_of_this_pe,
)
from triton_dist.kernels.grid import grid_of
from triton_dist.world import World
from triton_dist.world.current import current_world, find_world
from triton_dist.world.teams import Team, check_one_dimension, pes_of_group

__all__ = [
    "check",
    "checked",
    "communicator",
    "hosts_of",
    "own_share",
    "rank_of",
    "resolve",
    "resolve_again",
    "this_pe",
]


def resolve(group: Any) -> tuple[int, str]:
    """The size and the name of ``group``, as operators take them: constants of a compiled graph.

    ``group`` is None (all PEs of the world), a ``ProcessGroup`` or the name of one, a ``DeviceMesh`` of one dimension,
    a ``triton_dist.Team``, or a communicator.

    Raises:
        RuntimeError: the communicator was closed. Its name does not tell: a later world may have another of that name.
    """
    if group is None:
        return _size_of(""), ""
    if isinstance(group, str):
        return _size_of(group), group
    if isinstance(group, Communicator):
        group.check_live()
        return group.n_pes, group.name
    if torch.compiler.is_compiling() and isinstance(group, Team):
        name = f"{group.name}"  # a text that the compiler knows, where attributes are read late
        return _size_of_team(name), _name_of_team(name)
    if torch_api.is_mesh(group):
        check_one_dimension(group)
        group = group.get_group()
    if torch_api.is_process_group(group):
        return group.size(), group.group_name
    found = communicator_of(group)
    return found.n_pes, found.name


def resolve_again(function: str, group: Any, made_in: tuple[int, str]) -> tuple[int, str]:
    """:func:`resolve` for an operation on what one in ``made_in`` has returned: by default the same group.

    Raises:
        ValueError: ``group`` has other PEs.
    """
    if group is None:
        return made_in
    found = resolve(group)
    if found != made_in and not (found[0] == made_in[0] and are_alike(found[1], made_in[1])):
        raise ValueError(
            f"{function}: group= has other PEs than the group in which its routing was made, whose rows it would look"
            " for: leave group= out, or give that group"
        )
    return found


@torch_api.constant_in_graphs
def _size_of_team(name: str) -> int:
    return _of_team(name).n_pes


@torch_api.constant_in_graphs
def _name_of_team(name: str) -> str:
    return _of_team(name).name


def _of_team(name: str) -> Communicator:
    """The communicator of the team of that name, which the compiler would not make. *Collective* over it the first
    time."""
    for team in current_world().teams.values():
        if team.name == name:
            return communicator_of(team)
    raise RuntimeError(f"team {name!r} was destroyed, or its world was finalized")


@torch_api.constant_in_graphs
def are_alike(name: str, other: str) -> bool:
    """Whether groups of two names have the same PEs in the same order. Of a group that is gone the operator tells."""
    try:
        return _pes_of(name) == _pes_of(other)
    except ValueError:
        return True


def _pes_of(name: str) -> range:
    if not name:
        return range(current_world().n_pes)
    found = communicator_named(name)
    return found.pes if found is not None else pes_of_group(current_world(), _process_group("", name))


def own_share(size: Any, group_size: int, group_name: str) -> Any:
    """How much of ``size`` this PE has, if the members of a group cannot share it equally; None, if they can.

    A compiled graph holds it, so one PE's is never taken for another's. ``size`` may be symbolic.
    """
    if not group_size or size % group_size == 0:
        return None
    each = (size + group_size - 1) // group_size
    first = rank_of(group_name) * each
    if first >= size:
        return 0
    return each if first + each <= size else size - first


@torch_api.constant_in_graphs
def rank_of(name: str) -> int:
    """This PE's number in a group, which exists."""
    if not name:
        return current_world().pe
    found = communicator_named(name)
    return found.my_rank if found is not None else int(_process_group("", name).rank())


@torch_api.constant_in_graphs
def this_pe() -> str:
    """The name of the group of this PE alone. Empty without a world, of which the operator tells."""
    return communicator_of_this_pe().name if find_world() is not None else ""


@torch_api.constant_in_graphs
def hosts_of(group_size: int, group_name: str) -> int:
    """On how many hosts a group of this size is. 1 without a world or such a group, of which the operator tells."""
    world = find_world()
    if world is None or group_size == 0:
        return 1
    found = communicator_named(group_name)
    if found is not None:
        return found.grid.hosts
    known, key = world.own(_Hosts).of_groups, (group_name, group_size)
    if key not in known:
        known[key] = grid_of(world, _pes_of(group_name)).hosts
    return known[key]


class _Hosts:
    """On how many hosts the groups of a world are, by name and size."""

    def __init__(self, world: World) -> None:
        self.of_groups: dict[tuple[str, int], int] = {}

    def close(self) -> None:
        self.of_groups.clear()


@torch_api.constant_in_graphs
def _size_of(name: str) -> int:
    """How many PEs a group has. 0 without a world or such a group: the operator says so, and its error comes out of
    torch.compile."""
    world = find_world()
    if world is None:
        return 0
    if not name:
        return world.n_pes
    try:
        return _size("", name)
    except ValueError:
        return 0


def _size(function: str, name: str) -> int:
    if not name:
        return current_world().n_pes
    found = communicator_named(name)
    return found.n_pes if found is not None else int(_process_group(function, name).size())


def _process_group(function: str, name: str) -> Any:
    try:
        return torch_api.process_group(name)
    except (RuntimeError, LookupError) as error:
        raise ValueError(f"{function}: there is no process group named {name!r}: {error}") from None


def check(function: str, group_size: int, group_name: str) -> None:
    """There is a group of this name and size. An empty name is the world's. Not collective: tracing does it, too.

    Raises:
        RuntimeError: there is no world. ValueError: there is no such group, or it has another size.
    """
    world = current_world()
    size = _size(function, group_name) if group_name else world.n_pes
    if group_size != size:
        what = f"the group {group_name!r} has {size}" if group_name else f"the world has {size}"
        raise ValueError(
            f"{function}: the group has {group_size} members, and {what} PEs: what was compiled or recorded for a group"
            " of one size cannot run in one of another size"
        )


def communicator(function: str, group_size: int, group_name: str) -> Communicator:
    """The communicator of the group. *Collective* over it the first time; errors as of :func:`check`."""
    check(function, group_size, group_name)
    return checked(function, group_name)


def checked(function: str, group_name: str) -> Communicator:
    """:func:`communicator` after :func:`check`."""
    if not group_name:
        return communicator_of()
    return communicator_named(group_name) or communicator_of(_process_group(function, group_name))
