"""Collectives that move data: every PE takes what it needs from the others, between two barriers.

After the first barrier all sources are ready; after the second no PE reads them any more. Only then does a PE write
its ``dst``, so that ``dst`` may be ``src``, or overlap it, in all of them.

The PEs pass the same symmetric addresses (OpenSHMEM 1.5, section 9.9), by which a transport reaches the others' data.
Here that is checked. Only the smaller buffer of fcollect and reducescatter may lie elsewhere on each PE, as a PE's part
of the larger one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triton_dist._C.op_table import ElementType, Reduction, ThreadScope
from triton_dist.cpu.ops.address_checks import count_of, offset, the_world
from triton_dist.cpu.ops.elements import ELEMENTS, Element
from triton_dist.cpu.ops.ordering import meet
from triton_dist.cpu.ops.query import the_team
from triton_dist.cpu.world import CpuWorld
from triton_dist.world.teams import Team

__all__ = ["alltoall", "broadcast", "fcollect", "reduce", "reducescatter"]

_REDUCTIONS: dict[Reduction, Callable[[Any, Any], Any]] = {
    Reduction.SUM: np.add,
    Reduction.PROD: np.multiply,
    Reduction.MIN: np.fmin,  # of a NaN and a number the number, as on GPUs
    Reduction.MAX: np.fmax,
    Reduction.AND: np.bitwise_and,
    Reduction.OR: np.bitwise_or,
    Reduction.XOR: np.bitwise_xor,
}

_BITWISE = (Reduction.AND, Reduction.OR, Reduction.XOR)


class _Collective:
    """What one PE reads and writes in a collective whose PEs contribute ``src_bytes`` and get ``dst_bytes``."""

    def __init__(
        self, team: Team, call: str, dst: int, dst_bytes: int, src: int, src_bytes: int, align: int = 1
    ) -> None:
        world = the_world()
        self.team = team
        self.world: CpuWorld = world
        # With nothing to do the addresses may be anything, but the PEs meet all the same.
        self._dst = offset(world, "dst", dst, dst_bytes, align) if dst_bytes else 0
        self._src = offset(world, "src", src, src_bytes, align) if src_bytes else 0
        places = [f"dst at byte {self._dst}"] if dst_bytes >= src_bytes else []
        places += [f"src at byte {self._src}"] if src_bytes >= dst_bytes else []
        self._call = f"{call}, {' and '.join(places)} of the heap" if dst_bytes else call

    def source(self, member: int, begin: int, count: int) -> NDArray[np.uint8]:
        """A copy of ``count`` bytes of what the team's ``member`` contributes."""
        taken = np.empty(count, np.uint8)
        self.world.heap.read(self.team.pes[member], self._src + begin, taken.ctypes.data, count)
        return taken

    def run(self, take: Callable[[], NDArray[Any]]) -> None:
        """``take`` makes this PE's result out of sources."""
        meet(self.team, self._call)
        result = np.ascontiguousarray(take())
        meet(self.team, self._call)
        self.world.heap.write(self.world.pe, self._dst, result.ctypes.data, result.nbytes)


def broadcast(team: int, dst: int, src: int, nbytes: int, root: int, scope: ThreadScope) -> None:
    members, nbytes = the_team("team", team), count_of("nbytes", nbytes)
    if not 0 <= root < members.n_pes:
        raise ValueError(f"root {root} is out of range [0, {members.n_pes})")
    collective = _Collective(members, f"broadcast({nbytes} bytes of PE {root})", dst, nbytes, src, nbytes)
    collective.run(lambda: collective.source(root, 0, nbytes))


def fcollect(team: int, dst: int, src: int, nbytes: int, scope: ThreadScope) -> None:
    members, nbytes = the_team("team", team), count_of("nbytes", nbytes)
    collective = _Collective(members, f"fcollect({nbytes} bytes)", dst, members.n_pes * nbytes, src, nbytes)
    collective.run(lambda: np.concatenate([collective.source(member, 0, nbytes) for member in range(members.n_pes)]))


def alltoall(team: int, dst: int, src: int, nbytes: int, scope: ThreadScope) -> None:
    members, nbytes = the_team("team", team), count_of("nbytes", nbytes)
    total, mine = members.n_pes * nbytes, members.my_pe * nbytes
    collective = _Collective(members, f"alltoall({nbytes} bytes)", dst, total, src, total)
    collective.run(lambda: np.concatenate([collective.source(member, mine, nbytes) for member in range(members.n_pes)]))


def reduce(team: int, dst: int, src: int, nelems: int, op: Reduction, type: ElementType, scope: ThreadScope) -> None:
    members, element = the_team("team", team), ELEMENTS[type]
    nbytes = count_of("nelems", nelems) * element.size
    call = _reduction("reduce", op, element, nelems)
    collective = _Collective(members, call, dst, nbytes, src, nbytes, element.size)
    collective.run(lambda: _combined(collective, 0, nbytes, op, element))


def reducescatter(
    team: int, dst: int, src: int, nelems: int, op: Reduction, type: ElementType, scope: ThreadScope
) -> None:
    members, element = the_team("team", team), ELEMENTS[type]
    nbytes = count_of("nelems", nelems) * element.size
    call = _reduction("reducescatter", op, element, nelems)
    collective = _Collective(members, call, dst, nbytes, src, members.n_pes * nbytes, element.size)
    collective.run(lambda: _combined(collective, members.my_pe * nbytes, nbytes, op, element))


def _reduction(kind: str, op: Reduction, element: Element, nelems: int) -> str:
    name = f"{op.name.lower()}_{kind}"
    if op in _BITWISE and not element.is_integer:
        raise ValueError(f"{name}: and, or and xor are for integers, not {element.name}")
    return f"{name}({nelems} of {element.name})"


def _combined(collective: _Collective, begin: int, count: int, op: Reduction, element: Element) -> NDArray[Any]:
    """Member by member in their order, so that all PEs, and all runs, get the same; rounded once, at the end."""

    def contribution(member: int) -> NDArray[Any]:
        return element.widened(collective.source(member, begin, count).view(element.stored))

    total = contribution(0)
    for member in range(1, collective.team.n_pes):
        total = _REDUCTIONS[op](total, contribution(member))
    return element.narrowed(total)
