"""A world of two hosts: what reaches across, and what does not."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from triton_dist import kernels
from triton_dist.kernels import Communicator


@triton.jit
def ask(out, n):
    for pe in range(n):
        tl.store(out + pe, dl.is_reachable(pe).to(tl.int32))


@triton.jit
def across(data, word, signal, pe):
    dl.putmem(data + 1, data, 4, pe)
    dl.fence()
    dl.atomic_add(word, 5, pe)
    dl.signal_op(signal, 1, dl.SIGNAL_ADD, pe)
    dl.signal_wait_until(signal, dl.CMP_GE, 1)


@triton.jit
def store_at(data, pe):
    tl.store(dl.symm_at(data, pe), 1)


@triton.jit
def store_block(data, pe):
    dl.store(data + tl.arange(0, 8), 1, pe)


def refused(world: Any, pe: int) -> str:
    here = next(host for host in world.hosts if world.pe in host.pes)
    there = next(host for host in world.hosts if pe in host.pes)
    return f"PE {world.pe} on host {here} cannot reach the memory of PE {pe} on host {there} by load and store"


def main() -> None:
    with triton_dist.init() as world:
        near = next(host for host in world.hosts if world.pe in host.pes).pes
        step = len(near) if len(world.hosts) > 1 else 1  # on one host, perhaps, without a mapping
        far = (world.pe + step) % world.n_pes
        out = torch.zeros(world.n_pes, dtype=torch.int32)
        ask[(1,)](out, world.n_pes)
        reachable = [world.is_reachable(pe) for pe in range(world.n_pes)]
        assert out.tolist() == reachable, "kernels and hosts are told the same"
        if "mapped" in sys.argv:
            assert reachable == [pe in near for pe in range(world.n_pes)]
        assert reachable[world.pe] and not reachable[far]

        data = triton_dist.full((8,), world.pe, dtype=torch.int32)
        word = triton_dist.zeros(1, dtype=torch.int64)
        signal = triton_dist.zeros(1, dtype=torch.int64)
        across[(1,)](data, word, signal, far)
        triton_dist.barrier_all()
        source = (world.pe - step) % world.n_pes
        assert (data[1].item(), word.item(), signal.item()) == (source, 5, 1), (data, word, signal)
        triton_dist.barrier_all()

        # Copies of hosts, also of views.
        triton_dist.put(data.view(4, 2)[:, 1], torch.arange(4, dtype=torch.int32) + 10 * world.pe, far)
        triton_dist.barrier_all()
        assert data.view(4, 2)[:, 1].tolist() == [10 * source + i for i in range(4)]
        got = torch.zeros(2, 4, dtype=torch.int32)
        triton_dist.get(got.t(), data.view(4, 2), far)
        assert got[1].tolist() == [10 * world.pe + i for i in range(4)]
        everything = triton_dist.zeros(8 * world.n_pes, dtype=torch.int32)
        triton_dist.fcollect(everything, data)
        total = triton_dist.zeros(8, dtype=torch.int32)
        triton_dist.reduce(total, data)
        assert torch.equal(total, everything.view(-1, 8).sum(0, dtype=torch.int32))

        shared = triton_dist.team_shared()
        assert shared is triton_dist.team_shared() and tuple(shared.pes) == near
        shared.barrier()
        with pytest.raises(ValueError, match="cannot be destroyed: it ends with the world"):
            shared.destroy()
        if "mapped" in sys.argv:
            for pe in near:
                assert triton_dist.peer(data, pe).data_ptr() != 0
            with Communicator(shared) as communicator:
                assert communicator.n_pes == len(near)
        with pytest.raises(RuntimeError, match=refused(world, far)):
            triton_dist.peer(data, far)
        x = torch.full((5,), float(world.pe))  # between hosts by puts and signals
        everything = torch.zeros(5 * world.n_pes)
        kernels.all_gather(everything, x)
        assert everything.view(-1, 5)[:, 2].tolist() == list(range(world.n_pes))
        kernels.all_reduce(x)
        assert x.tolist() == [sum(range(world.n_pes))] * 5
        with pytest.raises(RuntimeError, match=refused(world, reachable.index(False))):
            kernels.all_gather_gemm(torch.ones(4, 4), torch.ones(4, 4), algorithm="copy_engine")
        for kernel in (store_at, store_block):
            with pytest.raises(RuntimeError, match=f"{kernel.fn.__name__}.*{refused(world, far)}"):
                kernel[(1,)](data, far)
        triton_dist.barrier_all()
        print("passed", flush=True)


if __name__ == "__main__":
    main()
