"""The calls that model_error.py replays, each once to allocate and once between two barriers.

    model_cases.py NAME:ALGORITHM:BYTES …

As in collectives.py, bytes are those of one PE's input, of bfloat16.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

import triton_dist
from triton_dist import kernels

__all__ = ["TIMED", "call_of"]

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


def main() -> None:
    with triton_dist.init():
        for case in sys.argv[1:]:
            name, algorithm, nbytes = case.split(":")
            call, tensors = call_of(name, algorithm, int(nbytes))
            call()
            triton_dist.barrier_all()
            call()
            triton_dist.barrier_all()  # end of the timed call
            del call
            for tensor in tensors:
                triton_dist.free(tensor)


if __name__ == "__main__":
    main()
