"""What a program, or a host, does: one step of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from triton_dist.check.log import Place

__all__ = ["Action", "Launch", "Node", "owner"]


class Action(enum.Enum):
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    WAIT = "wait"
    GET = "get"
    FENCE = "fence"
    DOT = "dot"
    BARRIER = "barrier"
    COPY = "copy"
    """By the host."""
    HAND_OVER = "hand over"
    """From one warp of a program to another: what it waits for has arrived, and what was computed is complete."""


@dataclass(eq=False)
class Node:
    """One step of a program, or of a host."""

    pe: int
    program: int
    action: Action
    place: Place | None
    target: int = 0
    """The PE whose memory it is."""
    nbytes: int = 0
    flops: int = 0
    size: int = 0
    """Bytes of an operand's element."""
    stages: int = 0
    """Of the software pipeline, if the launch says so."""
    cached: bool = False
    """A load of a block that a program of the same launch has loaded before."""
    releases: bool = False
    """The program's stores arrive before it does."""
    blocks: bool = False
    """The program goes on when it has arrived."""
    causes: tuple[Node, ...] = ()
    """What must have arrived before it can end."""
    awaited: bool = False
    """It is a cause."""
    pes: tuple[int, ...] = ()
    """Of a barrier."""
    sends_to: int = -1
    """Of a put that returns before its source has been read: the PE to which it goes."""
    adds: bool = False
    """It adds to what it changes."""
    interval: float = 0.0
    """Of a store that is throttled: µs until the warp issues its next step, at least."""
    in_flight: int = 0
    """Of a store: how many of the warp's are in flight then, at most; 0: any number."""
    value: int | None = None
    """What it leaves in its word, if that is known."""
    seen: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)
    """Of a wait: by space, the pieces that it looked at, and which updates of them earlier waits had been for."""


@dataclass
class Launch:
    """The programs of one kernel, each a list of steps."""

    kernel: str
    programs: list[tuple[tuple[int, int, int], list[Node]]] = field(default_factory=list)
    warps: dict[int, list[list[Node]]] = field(default_factory=dict)
    """By place of a program: what its other warps do beside its list, on the same SM, each in order."""


def owner(space: int) -> int:
    """The PE whose memory a space is."""
    return space if space >= 0 else -1 - space
