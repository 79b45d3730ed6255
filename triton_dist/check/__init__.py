"""Finding bugs in programs that use SHMEM, in the CPU world: ``triton-dist-check script.py --pes 4``.

From the bottom up: ``log`` is what a checked run writes down and ``run`` the logs of all PEs; ``clocks``, ``threads``,
``shadow`` and ``signals`` say what is ordered, ``races`` looks at accesses, ``analysis`` at everything, ``reporting``
makes text of it, ``__main__`` is the command.
Nothing here knows a world: the CPU world records (``triton_dist.cpu.recorder``) and asks for the analysis.
"""

from triton_dist.check.analysis import analyse
from triton_dist.check.findings import CLASSES, Finding
from triton_dist.check.reporting import report

__all__ = ["CLASSES", "Finding", "analyse", "report"]
