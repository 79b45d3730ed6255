"""The world of this process, for all that mean *the* world: the public functions, kernels, the interpreter."""

from __future__ import annotations

from collections.abc import Callable

from triton_dist.bootstrap.launch import Launch
from triton_dist.process_state import of_process
from triton_dist.world.base import World

__all__ = ["Current", "current_world", "find_world", "refuse_forked"]


class Current:
    """The world of this process, and how it was launched. One for each process, since a process is one PE of a world.

    :mod:`triton_dist.api` sets the attributes.
    """

    world: World | None = None
    launch: Launch | None = None
    """Outlives its world: until the process ends or joins another world, a failure is still told to the other PEs."""
    join: Callable[[], World] | None = None
    """What :func:`triton_dist.init` calls where PEs are coroutines of a process, which knows them."""
    process: int = 0
    """The process that has arranged for its end. A child that it forks has no part in the world."""

    def leave(self) -> None:
        """In a child of ``fork()``: it would act as the PE that its parent is."""
        if self.world is not None and not self.world.finalized:
            self.world.finalized = self.world.forked = True


def refuse_forked(world: World | None) -> None:
    """RuntimeError where the last world of this process is that of a PE which has forked it."""
    if world is not None and world.forked:
        world.check_live()


def find_world() -> World | None:
    """The world; None before :func:`triton_dist.init` and after its end."""
    world = of_process(Current).world
    return None if world is None or world.finalized else world


def current_world() -> World:
    """The world.

    Raises:
        RuntimeError: there is none, or this process was forked from one of its PEs.
    """
    world = of_process(Current).world
    if world is None or world.finalized:
        refuse_forked(world)
        raise RuntimeError("there is no world: call triton_dist.init() first")
    return world
