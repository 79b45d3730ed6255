"""Elements of ``torch.bool``, each a byte in memory: every op that counts elements moves as many of them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops.element_types import expect_bits
from ops.harness import check, random_bytes
from triton_dist import World

N = 77


@triton.jit(do_not_specialize=["n", "to", "of", "how"])
def move(dst, src, n, to, of, how):
    if how == 0:
        dl.put(dst, src, n, to)
    elif how == 1:
        dl.put_nbi(dst, src, n, to)
    elif how == 2:
        dl.get(dst, src, n, of)
    elif how == 3:
        dl.get_nbi(dst, src, n, of)
    elif how == 4:
        dl.copy(dst, src, n, to)
    elif how == 5:
        dl.iput(dst, src, 1, 1, n, to)
    elif how == 6:
        dl.iget(dst, src, 1, 1, n, of)
    elif how == 7:
        for i in range(n):
            dl.p(dst + i, tl.load(src + i), to)
    elif how == 8:
        for i in range(n):
            tl.store(dst + i, dl.g(src + i, of))
    elif how == 9:
        offsets = tl.arange(0, 128)
        dl.store(dst + offsets, tl.load(src + offsets, mask=offsets < n), to, mask=offsets < n)
    elif how == 10:
        offsets = tl.arange(0, 128)
        tl.store(dst + offsets, dl.load(src + offsets, of, mask=offsets < n), mask=offsets < n)
    dl.quiet()


@triton.jit
def write_constants(dst, pe):
    dl.p(dst, True, pe)
    dl.p(dst + 1, False, pe)


@triton.jit(do_not_specialize=["n", "root", "how"])
def exchange(dst, src, n, root, how):
    if how == 0:
        dl.broadcast(dl.TEAM_WORLD, dst, src, n, root)
    elif how == 1:
        dl.fcollect(dl.TEAM_WORLD, dst, src, n)
    else:
        dl.alltoall(dl.TEAM_WORLD, dst, src, n)


def truths(n: int, pe: int) -> torch.Tensor:
    return (random_bytes(n, pe) % 2).bool()


@check(maps_all=True)
def copies_of_bool(world: World) -> None:
    before, behind = (world.pe - 1) % world.n_pes, (world.pe + 1) % world.n_pes
    source = triton_dist.from_tensor(truths(N, world.pe))
    target = triton_dist.zeros(N + 1, dtype=torch.bool)
    from_behind = {2, 3, 6, 8, 10}
    for how in range(11):
        target.fill_(False)
        triton_dist.barrier_all()
        move[(1,)](target, source, N, behind, behind, how)
        triton_dist.barrier_all()
        expected = torch.cat([truths(N, behind if how in from_behind else before), torch.tensor([False])])
        expect_bits(target, expected, f"way {how}")
        triton_dist.barrier_all()
    target.copy_(~target)
    triton_dist.barrier_all()
    write_constants[(1,)](target, behind)
    triton_dist.barrier_all()
    expect_bits(target[:2], torch.tensor([True, False]), "constants")
    triton_dist.barrier_all()
    triton_dist.put(target[:N], source, behind)
    triton_dist.barrier_all()
    expect_bits(target[:N], truths(N, before), "the host's put")
    triton_dist.barrier_all()
    triton_dist.get(target[:N], source, behind)
    expect_bits(target[:N], truths(N, behind), "the host's get")
    triton_dist.free(source)
    triton_dist.free(target)


@check(maps_all=True)
def collectives_of_bool(world: World) -> None:
    n = world.n_pes
    of_all = [truths(n * N, pe) for pe in range(n)]
    mine = slice(world.pe * N, (world.pe + 1) * N)
    root = n - 1
    source = triton_dist.from_tensor(of_all[world.pe])
    target = triton_dist.zeros(n * N, dtype=torch.bool)
    whole = triton_dist.zeros(n * n * N, dtype=torch.bool)
    exchange[(1,)](target, source, n * N, root, 0)
    expect_bits(target, of_all[root], "broadcast")
    triton_dist.barrier_all()  # a peer that is ahead would store into a target that is still compared
    exchange[(1,)](target, source, N, root, 1)
    expect_bits(target, torch.cat([theirs[:N] for theirs in of_all]), "fcollect")
    triton_dist.barrier_all()
    exchange[(1,)](target, source, N, root, 2)
    expect_bits(target, torch.cat([theirs[mine] for theirs in of_all]), "alltoall")
    triton_dist.barrier_all()
    triton_dist.broadcast(target, source, 0)
    expect_bits(target, of_all[0], "the host's broadcast")
    triton_dist.fcollect(whole, source)
    expect_bits(whole, torch.cat(of_all), "the host's fcollect")
    triton_dist.barrier_all()
    triton_dist.alltoall(target, source)
    expect_bits(target, torch.cat([theirs[mine] for theirs in of_all]), "the host's alltoall")
    for tensor in (source, target, whole):
        triton_dist.free(tensor)
