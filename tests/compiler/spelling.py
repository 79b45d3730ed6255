"""PTX instructions as the LLVMs of the supported versions of Triton spell them."""

ATOM_SYS = r"atom\.(?:relaxed\.)?sys\.(?:global\.)?"
"""A relaxed atomic at system scope, as a regular expression: since Triton 3.9 with its order and its state space."""
