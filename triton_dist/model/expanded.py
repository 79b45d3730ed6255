"""The graph of a run in which the first and the last program of each launch were run: the others did what these did.

A program's steps are those of the first one, if the last one, which was run, has the same: of the same kind, on the
same line, with as many bytes for the same PE, and after the same steps of programs with its own number. So programs of
different numbers are symmetric; they still compete for SMs, memory and links.
"""

from __future__ import annotations

from dataclasses import replace

from triton_dist.check.run import Run
from triton_dist.model.graph import Graph, UnknownCostError
from triton_dist.model.nodes import Launch, Node

__all__ = ["ExpandedGraph"]

_Numbers = dict[Node, tuple[int, int, int]]
"""Where a step of a program is: the PE, the number of its launch, and that of the step in its program."""


class ExpandedGraph(Graph):
    """All programs, of a run of the first and the last."""

    def __init__(self, run: Run) -> None:
        """Raises UnknownCostError as ``Graph``, and where these two differ or wait for each other."""
        super().__init__(run)
        self._launches = [[item for item in host if isinstance(item, Launch)] for host in self.hosts]
        firsts, lasts = self._numbers(0), self._numbers(-1)
        for launches in self._launches:
            for launch in launches:
                if len(launch.programs) > 1:
                    _compare(launch, firsts, lasts)
                self.n_nodes += len(launch.programs[0][1]) * max(len(launch.programs) - 2, 0)
                for p, (_, nodes) in enumerate(launch.programs[1:-1], 1):
                    nodes.extend(replace(node, program=node.program + p) for node in launch.programs[0][1])
        for launches in self._launches:
            for launch in launches:
                for p, (_, nodes) in enumerate(launch.programs[1:-1], 1):
                    for node in nodes:
                        node.causes = tuple(self._of_program(p, *firsts[cause]) for cause in node.causes)

    def _numbers(self, program: int) -> _Numbers:
        return {
            node: (pe, i, k)
            for pe, launches in enumerate(self._launches)
            for i, launch in enumerate(launches)
            for k, node in enumerate(launch.programs[program][1])
        }

    def _of_program(self, p: int, pe: int, launch: int, k: int) -> Node:
        return self._launches[pe][launch].programs[p][1][k]


def _compare(launch: Launch, firsts: _Numbers, lasts: _Numbers) -> None:
    one = [_what(node, firsts) for node in launch.programs[0][1]]
    if one != [_what(node, lasts) for node in launch.programs[-1][1]]:
        raise UnknownCostError(f"the first and the last program of {launch.kernel} differ")


def _what(node: Node, numbers: _Numbers) -> tuple[object, ...]:
    """All that matters of a step; an error if it waits for a program with another number."""
    if any(cause not in numbers for cause in node.causes):
        raise UnknownCostError(f"{node.place}: a program waits for one with another number, or for a host")
    causes = tuple(numbers[cause] for cause in node.causes)
    same = node.action, node.place, node.target, node.nbytes, node.flops, node.size, node.releases, node.blocks
    return (*same, node.awaited, node.pes, node.adds, causes)
