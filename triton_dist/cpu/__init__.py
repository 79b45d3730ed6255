"""The CPU world: PEs are processes of one machine, kernels run under Triton's interpreter, memory is really shared.

From the bottom up: ``allocator`` places symmetric tensors; ``bootstrap`` maps every PE's heap into every process;
``world`` is the :class:`~triton_dist.world.base.World` made of them; ``ops`` are the SHMEM operations on it.
A ``program`` of a grid is a coroutine. ``scheduler`` runs the programs, ``executor`` one kernel, and ``interpreter``
makes Triton call it. ``builder`` is Triton's interpreter with what a world needs added to it.
"""
