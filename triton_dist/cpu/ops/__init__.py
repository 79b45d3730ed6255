"""The SHMEM operations on shared memory: one function for each op of the dialect, in a module for each topic.

Arguments are what the language has checked: addresses and numbers as Python numbers, then the op's attributes as
members of their enums. What it cannot check (does a pointer lie in the heap, is a PE in range) is checked here, by
``places`` and ``elements``; the executor adds PE, program and line to the error.

Who acts, the whole program or a part of it, makes no difference to an interpreter, and all PEs share one machine: the
attributes ``scope`` and ``mem_scope`` are taken and not looked at.
"""

from triton_dist.cpu.ops.table import IMPLEMENTATIONS, intention

__all__ = ["IMPLEMENTATIONS", "intention"]
