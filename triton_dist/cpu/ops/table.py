"""The ops of this world: functions of the table's names, and what schedules know of each op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton_dist._C.op_table import OPS, Effect, Op
from triton_dist.cpu.ops import atomics, collectives, ordering, query, rma, signal, sync, token
from triton_dist.cpu.schedule import Access

__all__ = ["IMPLEMENTATIONS", "intention"]

_MODULES = (atomics, collectives, ordering, query, rma, signal, sync, token)

IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    name: getattr(module, name) for module in _MODULES for name in module.__all__ if name in OPS
}
"""By the op's name; called with its operands and then its attributes, in the table's order."""

_INTENTIONS = {
    Effect.NO_EFFECT: Access.NOTHING,
    **dict.fromkeys((Effect.GET, Effect.GET_ELEMENT, Effect.LOOK, Effect.AWAIT), Access.READ),
    **dict.fromkeys((Effect.PUT, Effect.FENCE), Access.WRITE),
}


def intention(op: Op) -> Access:
    """What a program that calls ``op`` is about to do, in a schedule's eyes."""
    return _INTENTIONS.get(op.effect, Access.PUBLISH)
