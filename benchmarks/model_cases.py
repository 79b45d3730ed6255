"""The calls that model_error.py replays, each once to allocate and once between two barriers.

    model_cases.py NAME:ALGORITHM:BYTES …
    model_cases.py NAME:ALGORITHM:MxNxK …

As in collectives.py, bytes are those of one PE's input, of bfloat16. M, N and K are those of a PE's GEMM.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

import triton_dist
from triton_dist import kernels

__all__ = ["TIMED", "call_of", "gemm_of"]

TIMED = "end of the timed call"
"""What stands on the line where a timed call ends."""


def call_of(name: str, algorithm: str, nbytes: int) -> tuple[Callable[[], object], list[torch.Tensor]]:
    n, n_pes = nbytes // 2, triton_dist.n_pes()
    n_in = 0 if name == "broadcast" else n
    n_out = {"all_gather": n * n_pes, "reduce_scatter": n // n_pes}.get(name, n)
    tensors = [triton_dist.zeros(count, dtype=torch.bfloat16) for count in (n_out, n_in) if count]
    function = getattr(kernels, name)
    if name == "all_reduce":
        return lambda: function(tensors[1], out=tensors[0], algorithm=algorithm), tensors
    return lambda: function(*tensors, algorithm=algorithm), tensors


def gemm_of(name: str, algorithm: str, m: int, n: int, k: int) -> tuple[Callable[[], object], list[torch.Tensor]]:
    """With operands in symmetric memory, since the log says of others only how many bytes are loaded."""
    n_pes = triton_dist.n_pes()
    of_a = (m // n_pes if name == "all_gather_gemm" else m, k)
    of_c = (m // n_pes if name == "gemm_reduce_scatter" else m, n)
    tensors = [triton_dist.zeros(shape, dtype=torch.bfloat16) for shape in (of_a, (k, n), of_c)]
    function = getattr(kernels, name)
    return lambda: function(*tensors, algorithm=algorithm), tensors


def main() -> None:
    with triton_dist.init():
        for case in sys.argv[1:]:
            name, algorithm, size = case.split(":")
            made = gemm_of if "x" in size else call_of
            call, tensors = made(name, algorithm, *map(int, size.split("x")))
            if made is call_of:  # a GEMM's first call is as its later ones: workspaces are made before the launch
                call()
            triton_dist.barrier_all()
            call()
            triton_dist.barrier_all()  # end of the timed call
            del call
            for tensor in tensors:
                triton_dist.free(tensor)


if __name__ == "__main__":
    main()
