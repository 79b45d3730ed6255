"""What an H200's processors and links do in a second, from measurements: what models and kernels count with.

They decide only which way is taken, or tried, for a shape. A GPU of another model has other rates; the order of
algorithms depends on their ratios.
"""

from __future__ import annotations

import torch

__all__ = ["COPY_ENGINE", "NVLINK_RATE", "PULL", "ROWS", "ROW_BYTES", "STORES", "WIRE", "flops"]

STORES = 350e9
"""Bytes that stores of a collective send."""
WIRE = 365e9
"""Bytes that stores of a GEMM's whole tiles send."""
PULL = 320e9
"""Bytes that move where loads from peers take part, or blocks wait for each other."""
COPY_ENGINE = 385e9
"""Bytes that a copy engine sends."""
ROWS = 371e9, 362e9
"""Bytes of rows by TMA that a link takes evenly of all multiprocessors, to one peer and to several."""
ROW_BYTES = 512
"""What a row costs the link besides its bytes: of 4 KB it takes 330e9, of 14 KB 358e9."""
NVLINK_RATE = 320e9
"""Bytes that NVLink takes of programs that also compute without slowing their loads by more than a few percent.
Programs that only send reach 10 to 15 % more."""
_FLOPS = 700e12
"""What is computed with 16-bit floats."""


def flops(dtype: torch.dtype) -> float:
    """What is computed with operands of this dtype in a second, if it is twice as much for half as many bits."""
    return _FLOPS * 2 / dtype.itemsize
