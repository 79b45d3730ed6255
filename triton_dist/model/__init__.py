"""What a program costs on a described machine: ``triton-dist-model script.py --machine h200``.

``machine`` reads the description; ``record`` runs the script in the CPU world and keeps what it did; ``graph`` makes of
that log who does what (``nodes``) after what (``writes``); ``hardware`` are SMs and links in simulated time, ``replay``
the programs on them;
``path`` finds what the time was spent on, ``report`` and ``trace`` show it; ``__main__`` is the command.
"""

from triton_dist.model.graph import Graph, UnknownCostError
from triton_dist.model.machine import Machine, MachineError

__all__ = ["Graph", "Machine", "MachineError", "UnknownCostError"]
