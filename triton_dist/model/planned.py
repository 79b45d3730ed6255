"""The graph of kernels that do not run in the CPU world, made from their plans instead of from a log.

Who makes it knows what each warp of each program does, in order; waits name the steps that they wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from triton_dist.model.graph import Graph
from triton_dist.model.nodes import Launch, Node

__all__ = ["PlannedGraph"]


class PlannedGraph(Graph):
    """Of one launch on each PE."""

    def __init__(self, launches: Sequence[Launch], side_streams: Mapping[int, list[Node]] | None = None) -> None:
        """``side_streams``: by PE, the copies that its host issues beside the launch, and what they wait for.

        Raises ValueError if a step waits for one that no program and no stream takes: it would wait for ever.
        """
        self.n_pes = len(launches)
        self.hosts = [[launch] for launch in launches]
        self.side_streams = dict(side_streams or {})
        lists = [nodes for launch in launches for _, nodes in launch.programs]
        lists += [nodes for launch in launches for warps in launch.warps.values() for nodes in warps]
        lists += self.side_streams.values()
        steps = {node for nodes in lists for node in nodes}
        self.n_nodes = len(steps)
        for node in steps:
            for cause in node.causes:
                if cause not in steps:
                    who = f"PE {node.pe}, program {node.program}"
                    raise ValueError(f"{who}: a {node.action.value} waits for what no program and no stream does")
                cause.awaited = True
