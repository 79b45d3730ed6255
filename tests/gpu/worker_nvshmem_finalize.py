"""A script of Triton-distributed ends NVSHMEM itself: one PE's part.

    torchrun --nproc-per-node 2 tests/gpu/worker_nvshmem_finalize.py [exit | finalize]

With "finalize" it also ends our world behind that. Either way the process ends with status 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import nvshmem.core
import torch
import triton

import triton_dist
import triton_dist.language as dl


@triton.jit
def put_next(dst, src, nbytes):
    dl.putmem(dst, src, nbytes, (dl.my_pe() + 1) % dl.n_pes())


def message_of(call: Callable[[], None]) -> str:
    try:
        call()
    except RuntimeError as error:
        return str(error)
    raise AssertionError(f"{call.__name__} of a world whose NVSHMEM is gone")


def main() -> None:
    world = triton_dist.init()
    source = triton_dist.full(16, world.pe + 1, dtype=torch.int32)
    target = triton_dist.zeros(16, dtype=torch.int32)
    put_next[(1,)](target, source, 64)
    triton_dist.barrier_all()
    assert (target == (world.pe - 1) % world.n_pes + 1).all()
    nvshmem.core.finalize()
    assert "nvshmem.core.finalize()" in message_of(triton_dist.barrier_all)
    if "finalize" in sys.argv[1:]:
        triton_dist.finalize()
    print(f"PE {world.pe}: nvshmem_finalize passed", flush=True)


if __name__ == "__main__":
    main()
