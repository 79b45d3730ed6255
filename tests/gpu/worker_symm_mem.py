"""Tensors of torch's symmetric memory in our world: one PE's part. For GPUs.

    torchrun --nproc-per-node 2 tests/gpu/worker_symm_mem.py [torch|ours|cuda]

With the NVSHMEM backend the argument says who starts NVSHMEM. Both use one library in the process, so what the other
allocates is found. With the CUDA backend such tensors are ordinary ones, and an error names the backend elsewhere.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed._symmetric_memory as symm_mem
import triton
from torch import distributed

import triton_dist
import triton_dist.language as dl
from triton_dist import kernels
from triton_dist.compiler import transport

N = 1024


@triton.jit
def put_next(dst, src, nbytes):
    dl.putmem(dst, src, nbytes, (dl.my_pe() + 1) % dl.n_pes())


def of_cuda(device: torch.device) -> int:
    if symm_mem.get_backend(device) != "CUDA":  # the default has no name in torch 2.11, where this cannot be set
        symm_mem.set_backend("CUDA")
    theirs = symm_mem.empty(1 << 22, dtype=torch.float32, device=device).fill_(1)
    symm_mem.rendezvous(theirs, group=distributed.group.WORLD.group_name)
    with triton_dist.init() as world:
        total = torch.full((8,), float(world.n_pes), device=device)
        assert torch.equal(kernels.all_reduce(theirs[:8], out=torch.empty_like(total)), total)
        assert torch.equal(kernels.functional.all_reduce(theirs)[:8], total)
        assert torch.equal(kernels.all_reduce(theirs[8:16]), total), "a small result"
        ours = triton_dist.zeros(theirs.shape)
        kernels.all_reduce(theirs, out=ours)
        assert ours[-1] == theirs[-1] * world.n_pes
        tells = hasattr(torch._C._distributed_c10d._SymmetricMemory, "is_symm_mem_tensor")  # torch 2.11 does not
        whose = "torch's symmetric memory with the backend CUDA" if tells else "symmetric"
        for whole in (theirs, theirs[1 << 20 :]):
            for call in (
                lambda x=whole: kernels.all_reduce(x, algorithm="direct"),
                lambda x=whole: triton_dist.peer(x, 0),
                lambda x=whole: put_next[(1,)](x, ours, 4),
            ):
                with pytest.raises(ValueError, match=whose):
                    call()
        torch.cuda.synchronize()
        if world.pe == 0:
            print("symm_mem: passed", flush=True)
    distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


def main() -> int:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", device_id=device)
    if sys.argv[1:] == ["cuda"]:
        return of_cuda(device)
    symm_mem.set_backend("NVSHMEM")
    theirs = symm_mem.empty(N, dtype=torch.int32, device=device) if sys.argv[1:] == ["torch"] else None
    world = triton_dist.init()
    if theirs is None:
        theirs = symm_mem.empty(N, dtype=torch.int32, device=device)
    handle = symm_mem.rendezvous(theirs, group=distributed.group.WORLD.group_name)
    ours = triton_dist.full(N, world.pe + 1, dtype=torch.int32)
    before = (world.pe - 1) % world.n_pes
    for name in world.transports:
        theirs.zero_()
        triton_dist.barrier_all()
        with transport.using(name):
            put_next[(1,)](theirs, ours, 4 * N)
        triton_dist.barrier_all()
        assert (theirs == before + 1).all(), f"{name}: {theirs[:4].tolist()}"
    mirrored = triton_dist.peer(theirs, before)
    assert torch.equal(mirrored, handle.get_buffer(before, (N,), torch.int32))
    triton_dist.barrier_all()
    triton_dist.reduce(theirs, ours)
    torch.cuda.synchronize()
    assert (theirs == world.n_pes * (world.n_pes + 1) // 2).all()
    triton_dist.put(theirs[: N // 2], ours[: N // 2], before)
    triton_dist.barrier()
    torch.cuda.synchronize()
    assert (theirs[: N // 2] == (world.pe + 1) % world.n_pes + 1).all()
    libraries = set(re.findall(r"\S*libnvshmem_host\S*", Path("/proc/self/maps").read_text()))
    assert len(libraries) == 1, f"two NVSHMEMs in one process: {libraries}"
    with pytest.raises(ValueError, match="not in the symmetric heap"):
        triton_dist.peer(torch.zeros(4, device=device), 0)
    triton_dist.finalize()
    if world.pe == 0:
        print("symm_mem: passed", flush=True)
    distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # torch's NVSHMEM objects are not always taken down cleanly at exit


if __name__ == "__main__":
    sys.exit(main())
