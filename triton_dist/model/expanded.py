"""The graph of a run of some programs of each launch: those between two that did the same did that, too.

The first and the last program of a launch were run, and those whose numbers were asked for. Of two neighbours among
them all steps are compared: they are of the same kind, on the same line, with as many bytes for the same PE, and after
the same steps of programs with their own number. Where they are equal, the programs between them get the same steps;
where not, there are no programs between them. Programs still compete for SMs, memory and links.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from triton_dist.check.run import Run
from triton_dist.model.graph import Graph, UnknownCostError
from triton_dist.model.nodes import Launch, Node

__all__ = ["ExpandedGraph"]

_Place = tuple[int, int, int, int]
"""Of a step: the PE, the number of its launch, that of its program, and its own in that."""


class ExpandedGraph(Graph):
    """All programs, of a run of some."""

    def __init__(self, run: Run, programs: tuple[int, ...] = ()) -> None:
        """``programs``: the numbers that were run besides the first and the last.

        Raises UnknownCostError as ``Graph``, and where programs with others between them differ, or wait for others.
        """
        super().__init__(run)
        self._launches = [[item for item in host if isinstance(item, Launch)] for host in self.hosts]
        self._places: dict[Node, _Place] = {
            node: (pe, i, p, k)
            for pe, launches in enumerate(self._launches)
            for i, launch in enumerate(launches)
            for p, (_, nodes) in enumerate(launch.programs)
            for k, node in enumerate(nodes)
        }
        copies: list[tuple[Node, int]] = []
        for launches in self._launches:
            for launch in launches:
                last = len(launch.programs) - 1
                were_run = sorted({0, last, *(p for p in programs if p < last)})
                for one, other in pairwise(were_run):
                    if other - one > 1:
                        copies += self._fill(launch, one, other)
        for node, p in copies:
            node.causes = tuple(self._of_program(p, cause) for cause in node.causes)
        self.n_nodes += len(copies)

    def _fill(self, launch: Launch, one: int, other: int) -> list[tuple[Node, int]]:
        """Give the programs between two the steps of the second: these steps, with the numbers of their programs.

        What both load is in the cache for the second.
        """
        steps = launch.programs[other][1]
        if [self._what(node, other) for node in steps] != [self._what(node, one) for node in launch.programs[one][1]]:
            raise UnknownCostError(f"programs {one} and {other} of {launch.kernel} differ")
        copies: list[tuple[Node, int]] = []
        for p in range(one + 1, other):
            nodes = launch.programs[p][1]
            assert not nodes, "it was not run"
            nodes.extend(replace(node, program=node.program + p - other) for node in steps)
            copies += ((node, p) for node in nodes)
        return copies

    def _what(self, node: Node, p: int) -> tuple[object, ...]:
        """All that matters of a step of program ``p``; an error if it waits for a program with another number."""
        causes = []
        for cause in node.causes:
            pe, launch, program, k = self._places.get(cause, (0, 0, -1, 0))
            if program != p:
                raise UnknownCostError(f"{node.place}: a program waits for one with another number, or for a host")
            causes.append((pe, launch, k))
        same = node.action, node.place, node.target, node.nbytes, node.flops, node.size, node.releases, node.blocks
        # In no order: a wait ends with the last of its causes, and the log has them as their PEs came to them.
        return (*same, node.stages, node.awaited, node.pes, node.adds, tuple(sorted(causes)))

    def _of_program(self, p: int, cause: Node) -> Node:
        """What corresponds to ``cause`` in program ``p``."""
        pe, launch, _, k = self._places[cause]
        nodes = self._launches[pe][launch].programs[p][1]
        if k >= len(nodes) or nodes[k].place != cause.place:
            raise UnknownCostError(f"{cause.place}: program {p} does not do what the one beside it waits for")
        return nodes[k]
