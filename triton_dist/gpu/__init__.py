"""The GPU world: symmetric memory of NVSHMEM, one GPU a PE.

``heap``, ``register``, ``teams`` and ``host_ops`` are NVSHMEM's host side, through nvshmem4py; ``p2p`` maps the heaps
of peers for direct access; ``module_state`` writes the state that device code reads into each loaded module;
``wait_reports`` prints what kernels wait for. ``world`` is the :class:`~triton_dist.world.base.World` made of them.
"""
