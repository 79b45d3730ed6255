"""Gluon in the CPU world: warp partitions, shared memory, mbarriers, TMA and WGMMA of one program, as Hopper has them.

A kernel runs as its Python source, as kernels in plain Triton do. Calls of Gluon's functions are calls of what
:mod:`~triton_dist.cpu.gluon.language` has in their place. Registers have no layout here, and a partition is one thread
of control. What is asynchronous is done at once or as late as the kernel allows, by chance: a wait or a fence that
lacks gives wrong results, or an error that names it.
"""
