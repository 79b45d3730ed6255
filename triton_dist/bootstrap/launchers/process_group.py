"""An initialised torch.distributed, and process groups of it: their ranks are the PEs."""

from __future__ import annotations

from typing import Any

from triton_dist.bootstrap.launchers.start import Start
from triton_dist.torch_api import default_store

__all__ = ["find", "from_group"]


def find() -> Start | None:
    """The default group, when torch.distributed is initialised."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    return from_group(distributed.group.WORLD)


def from_group(group: Any) -> Start:
    """The PEs are the ranks of ``group``, which may be some of those that there are.

    Raises:
        TypeError: it is no process group. RuntimeError: this process is not in it.
    """
    from torch import distributed

    if group is distributed.GroupMember.NON_GROUP_MEMBER:
        raise RuntimeError("this process is not in the group: only its ranks call triton_dist.init(group=…)")
    if not isinstance(group, distributed.ProcessGroup):
        raise TypeError(f"expected a process group of torch.distributed, got {type(group).__name__}")
    # The default store serves every group, told apart by the group's name, which is the same on all its ranks.
    store = default_store() if group.size() > 1 else None
    return Start(
        "torch.distributed",
        group.rank(),
        group.size(),
        None if store is None else lambda seconds: store,
        None,
        "the process that holds it",
        f"group/{group.group_name}",
    )
