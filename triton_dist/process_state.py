"""What belongs to the process, and neither to a world nor to a call: all of it is held here.

State lives in objects. What ends with a world is owned by it (:meth:`triton_dist.world.base.World.own`). Some things
cannot end with a world: what Triton or PyTorch keeps for as long as the process lives, what a later world needs of an
earlier one, and which world there is. Each is a class whose docstring says why there is one for each process, and
:func:`of_process` holds its instance. Modules have no variables of their own; tests/test_state.py lists what is here.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

__all__ = ["of_process"]

_Kind = TypeVar("_Kind")

_instances: dict[type, Any] = {}
_creating = threading.RLock()


def of_process(kind: type[_Kind]) -> _Kind:
    """This process's ``kind``. The first call creates it as ``kind()``. Any thread may call this."""
    found = _instances.get(kind)
    if found is None:
        with _creating:
            if kind not in _instances:
                _instances[kind] = kind()
            found = _instances[kind]
    return found  # type: ignore[no-any-return]
