"""The GPU world: symmetric memory of NVSHMEM, one GPU a PE.

``nvshmem_api`` starts nvshmem4py, through which ``heap``, ``register``, ``teams`` and ``host_ops`` call NVSHMEM;
``p2p`` maps the heaps of peers for direct access; ``module_state`` writes the state that device code reads into each
loaded module; ``wait_reports`` prints what kernels wait for. ``world`` is the
:class:`~triton_dist.world.base.World` made of them.
"""
