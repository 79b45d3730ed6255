"""CPU worlds whose PEs are coroutines of one process: hundreds of them, for recordings that a model replays.

PEs that are processes cost memory each, and every step of one wakes others. Here the PE that cannot go on switches to
the next one, and all share what Triton's interpreter has learned of a kernel. PEs take turns anyway in a checked run,
so the log is of the same kind. What a process has once, such as the environment, a module's variables and the modes of
PyTorch, all PEs share; a script has globals of its own on each.
"""
