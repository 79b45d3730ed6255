"""Collectives and GEMMs with communication, as kernels on symmetric tensors."""
