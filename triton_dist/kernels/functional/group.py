"""Which PEs an operator works on: today all PEs of the world. Groups of some PEs are to be added here and only here."""

from __future__ import annotations

from typing import Any

from triton_dist import torch_api
from triton_dist.world.current import current_world, find_world

__all__ = ["check", "resolve"]


def resolve(group: Any) -> tuple[int, str]:
    """The size and the name of ``group``, as operators take them: constants of a compiled graph.

    ``group`` is None (all PEs of the world), a ``ProcessGroup``, or the name of one.
    """
    if group is None or isinstance(group, str):
        return _world_size(), group or ""
    return group.size(), group.group_name


@torch_api.constant_in_graphs
def _world_size() -> int:
    """The number of PEs. Without a world 0: the operator says so, and its error comes out of torch.compile."""
    world = find_world()
    return 0 if world is None else world.n_pes


def check(function: str, group_size: int, group_name: str) -> None:
    """The group is the world: its ranks are the PEs, in their order. An empty name is the world's.

    Raises:
        RuntimeError: there is no world. ValueError: the group is another one.
    """
    world = current_world()
    if group_size != world.n_pes:
        raise ValueError(
            f"{function}: the group has {group_size} members, and the world {world.n_pes} PEs. Operators work on all"
            " PEs of the world, and what was compiled or recorded for one world cannot run in a world of another size"
        )
    if not group_name:
        return
    try:
        group = torch_api.process_group(group_name)
    except (RuntimeError, LookupError) as error:
        raise ValueError(f"{function}: there is no process group named {group_name!r}: {error}") from None
    if group.size() != world.n_pes or group.rank() != world.pe:
        raise ValueError(
            f"{function}: the process group {group_name!r} has {group.size()} ranks, of which this process is"
            f" {group.rank()}, and this is PE {world.pe} of {world.n_pes}. Operators work on all PEs of the world, in"
            " their order: make the world of this group with triton_dist.init(group=...), or leave group out"
        )
