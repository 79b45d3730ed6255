"""Persistent, warp-specialised GEMMs for Hopper in Gluon, a file for each fused operation on shared parts.

``local_gemm`` is the plain kernel and the place to start. The shared parts: ``work`` (the list of work units),
``buffers`` (operand ring and tile buffer in shared memory), ``load``, ``multiply`` and ``store`` (what the warps do),
``warps`` (which warps do it), ``ring`` (ring reduction), ``epochs`` and ``flags`` (launches and signals between PEs),
``pacing`` (throttled stores to peers), ``layout`` (the words that host and kernel share), ``launch`` (the host's side).
"""
