"""Traces of kernels: ``events`` is called in kernels, ``recorder`` on the host."""
