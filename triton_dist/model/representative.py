"""The graph of a run of symmetric PEs (:mod:`triton_dist.check.symmetry`), of which one was run.

It stands for all: its steps are the graph. A wait for what another PE sends is a wait for what the representative
sends to the PE to which it is that other, and arrives when that arrives.

That is exact where PEs differ in nothing that others feel. A reduce-scatter's PEs end at different times, since they
await the hosts in another order; behind one of several rounds, the next kernel's begin is not symmetric any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from triton_dist.check.log import Flag, Kind
from triton_dist.check.run import Run
from triton_dist.check.symmetry import Symmetry
from triton_dist.model.expanded import ExpandedGraph
from triton_dist.model.graph import UnknownCostError
from triton_dist.model.nodes import Action, Node

__all__ = ["RepresentativeGraph"]


class RepresentativeGraph(ExpandedGraph):
    """Of one PE for all."""

    symmetric = True

    def __init__(self, run: Run, symmetry: Symmetry) -> None:
        """Raises UnknownCostError as ``ExpandedGraph``."""
        self._symmetry = symmetry
        self._originals: dict[Node, Node] = {}
        """By what another PE does to the representative: what that does to a peer."""
        super().__init__(run)

    def _more_bounds(self) -> Iterable[tuple[int, NDArray[np.int64]]]:
        for _, e in self._run:
            if e.kind in (Kind.UPDATE, Kind.SENT) and e.a != e.pe:
                yield e.pe, self._image(e.a, e.b, e.b + e.size)
            elif e.kind == Kind.ACCESS and e.flags & Flag.ATOMIC and e.flags & Flag.WRITES:
                space, begins, ends = self._run.ranges(e.pe, e.a)
                if space not in (e.pe, -1 - e.pe):
                    yield e.pe, self._image(space, int(begins[0]), int(ends[0]))

    def _image(self, target: int, begin: int, end: int) -> NDArray[np.int64]:
        offset = self._symmetry.image(target, begin, end - begin)
        return np.array([offset, offset + end - begin], np.int64)

    def _write(self, node: Node, space: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        if space in (node.pe, -1 - node.pe):
            super()._write(node, space, begins, ends)
        elif node.action is Action.ATOMIC:  # nothing else of a peer's is awaited
            if begins.size > 1:
                raise UnknownCostError(f"{node.place}: {begins.size} words of PE {space} at a time")
            image = replace(node, pe=self._symmetry.source(space))
            self._originals[image] = node
            bounds = self._image(space, int(begins[0]), int(ends[0]))
            super()._write(image, node.pe, bounds[:1], bounds[1:])

    def _wait(self, node: Node, writers: NDArray[np.int64]) -> None:
        super()._wait(node, writers)
        node.causes = tuple(self._originals.get(cause, cause) for cause in node.causes)
        for cause in node.causes:
            cause.awaited = True
