"""Kernels, modules and worlds in every order: one PE's part. PE 0 prints a line per step.

A kernel loaded before there is a world, launched without one, used in two worlds after each other. With the argument
``fail`` the third world ends by an error.
"""

from __future__ import annotations

import os
import sys

import torch
import triton

import triton_dist
import triton_dist.language as dl

N = 1024


@triton.jit
def put_next(dst, src, nbytes):
    dl.putmem(dst, src, nbytes, (dl.my_pe() + 1) % dl.n_pes())


def refused(x: torch.Tensor) -> str:
    """The message with which a launch without a world is refused."""
    try:
        put_next[(1,)](x, x, 16)
    except RuntimeError as error:
        return str(error)
    raise AssertionError("a shmem kernel was launched without a world")


def use(world: triton_dist.World) -> None:
    source = triton_dist.full(N, world.pe + 1, dtype=torch.int32)
    target = triton_dist.zeros(N, dtype=torch.int32)
    put_next[(1,)](target, source, 4 * N)
    triton_dist.barrier_all()
    assert (target == (world.pe - 1) % world.n_pes + 1).all(), f"PE {world.pe} got {target[:4].tolist()}"


def main() -> int:
    gpu = triton_dist.kind() == "gpu"
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if gpu else "cpu"
    x = torch.zeros(N, dtype=torch.int32, device=device)
    if gpu:
        torch.cuda.set_device(device)
        put_next.warmup(x, x, 4 * N, grid=(1,))._init_handles()  # compiled and loaded, not launched
    message = refused(x)
    assert "triton_dist.init()" in message, message
    for turn in range(2):
        with triton_dist.init() as world:
            use(world)
            if world.pe == 0:
                print(f"world {turn}: used", flush=True)
        assert not triton_dist.is_initialized()
        message = refused(x)
        assert "triton_dist.init()" in message, message
        triton_dist.finalize()  # once more changes nothing
    with triton_dist.init() as world:
        world.barrier_all()
        if "fail" in sys.argv:
            raise RuntimeError("lifecycle: failed on purpose")
        leftover = triton_dist.zeros(5)  # finalised with the world, while the tensor lives on
        if world.pe == 0:
            print("lifecycle: passed", flush=True)
    del leftover
    return 0


if __name__ == "__main__":
    sys.exit(main())
