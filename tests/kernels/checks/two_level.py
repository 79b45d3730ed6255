"""Two-level collectives in worlds of pretended hosts, against PyTorch; and what crosses between the hosts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from harness import main as run
from harness import raises, some

import triton_dist
from triton_dist import environment, kernels
from triton_dist.check.log import Kind, read
from triton_dist.kernels import Communicator, functional
from triton_dist.kernels.communicator import communicator_of
from triton_dist.kernels.protocols import workspace
from triton_dist.world.hosts import Host, Hosts

SIZES = (1, 37, 1009)
"""Less than a block, which is cut further; primes; and in the CPU world several rounds."""
MOVED = (torch.uint8, torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex64)
REDUCED = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
)


def numbers(numel: int, dtype: torch.dtype, pe: int) -> torch.Tensor:
    """Small integers, whose sums are exact in every type."""
    return torch.randint(0, 8, (numel,), generator=torch.Generator().manual_seed(pe)).to(dtype)


def same(found: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    assert torch.equal(found, expected), f"{what}: {found} is not {expected}"


def combined(parts: list[torch.Tensor], op: str) -> torch.Tensor:
    stacked = torch.stack(parts)
    if op in ("max", "min"):
        return stacked.amax(0) if op == "max" else stacked.amin(0)
    total = stacked.double().sum(0) if parts[0].is_floating_point() else stacked.sum(0, dtype=torch.int64)
    return (total / len(parts) if op == "avg" else total).to(parts[0].dtype)


def moves(group: Any, pes: range, me: int, n: int, dtype: torch.dtype, algorithm: str = "auto") -> None:
    """The collectives that move elements, of a group; each root broadcasts one of the sizes."""
    size, rank, how = len(pes), pes.index(me), {"algorithm": algorithm, "group": group}
    everybody = [numbers(n * size, dtype, pe) for pe in pes]
    out = torch.zeros(n * size, dtype=dtype)
    same(
        kernels.all_gather(out, everybody[rank][:n], **how),
        torch.cat([x[:n] for x in everybody]),
        ("all_gather", n, dtype),
    )
    expected = torch.cat([x.view(size, n)[rank] for x in everybody])
    same(kernels.all_to_all(out, everybody[rank], **how), expected, ("all_to_all", n, dtype))
    for root in range(size) if n == SIZES[1] else (n % size,):
        tensor = everybody[rank].clone()
        same(kernels.broadcast(tensor, root, **how), everybody[root], ("broadcast", n, dtype, root))


def reduces(
    group: Any, pes: range, me: int, n: int, dtype: torch.dtype, op: str = "sum", algorithm: str = "auto"
) -> None:
    """The collectives that reduce elements, of a group; n elements are no multiple of its size."""
    size, rank, how = len(pes), pes.index(me), {"algorithm": algorithm, "group": group}
    everybody = [numbers(n * size, dtype, pe) for pe in pes]
    whole = combined(everybody, op)
    found = kernels.reduce_scatter(torch.zeros(n, dtype=dtype), everybody[rank], op, **how)
    close(found, whole.view(size, n)[rank], op, ("reduce_scatter", n, dtype, op))
    tensor = everybody[rank][:n].clone()
    out = torch.zeros(n, dtype=dtype) if n % 2 else None
    close(kernels.all_reduce(tensor, op, out, **how), whole[:n], op, ("all_reduce", n, dtype, op))


def close(found: torch.Tensor, expected: torch.Tensor, op: str, what: object) -> None:
    """Averages are rounded once more, on each host."""
    if op != "avg":
        return same(found, expected, what)
    error = 2.0**-7 if found.dtype == torch.bfloat16 else 2.0**-10
    assert torch.allclose(found, expected, rtol=error, atol=0), f"{what}: {found} is not {expected}"


def check_elements_are_moved(world: Any) -> None:
    for n, dtype in zip(SIZES, MOVED[::2] if world.n_pes == 4 else MOVED[1:3], strict=False):
        moves(None, range(world.n_pes), world.pe, n, dtype)


def check_elements_of_all_types_and_sizes_are_moved(world: Any) -> None:
    for n, dtype in itertools.product(SIZES, MOVED):
        moves(None, range(world.n_pes), world.pe, n, dtype)


def check_elements_are_reduced(world: Any) -> None:
    everybody = range(world.n_pes)
    for n, dtype in zip(itertools.cycle(SIZES), some(REDUCED), strict=False):
        reduces(None, everybody, world.pe, n, dtype)
    for op, dtype in (("max", torch.int8), ("min", torch.bfloat16), ("avg", torch.float16), ("avg", torch.bfloat16)):
        reduces(None, everybody, world.pe, 37, dtype, op)


def check_all_pes_get_the_same_bits(world: Any) -> None:
    """Also of sums that depend on the order."""
    tensor = torch.rand(501, generator=torch.Generator().manual_seed(world.pe)).bfloat16()
    out = triton_dist.zeros(501 * world.n_pes, dtype=torch.bfloat16)
    found = kernels.all_reduce(tensor.clone())
    kernels.all_gather(out, found)
    for other in out.view(world.n_pes, -1):
        same(other, found, "bits")
    same(kernels.all_reduce(tensor.clone()), found, "bits of the next call")


def check_special_numbers(world: Any) -> None:
    """Of a NaN and a number the number; integers wrap around."""
    mine = torch.tensor([torch.nan, torch.nan if world.pe else 1.0, -0.0, torch.inf] * 8)
    for op in ("max", "min"):
        found = kernels.all_reduce(mine.clone(), op).view(8, 4)
        assert found[:, 0].isnan().all() and (found[:, 1] == 1).all() and (found[:, 3] == torch.inf).all(), found
    most = torch.full((5,), 127, dtype=torch.int8)
    same(kernels.all_reduce(most), torch.full((5,), 127 * world.n_pes).to(torch.int8), "sums that wrap around")


def check_groups(world: Any) -> None:
    """Columns; neighbours on two hosts; and one host, whose algorithms are the others, and this one by name."""
    per_host = len(world.hosts[0].pes)
    row, column = world.team_world.split_2d(per_host)
    moves(column, column.pes, world.pe, 37, torch.float32)
    reduces(column, column.pes, world.pe, 37, torch.float32)
    assert communicator_of(column).grid[:2] == (len(world.hosts), 1)
    assert communicator_of(row).grid[:2] == (1, per_host)
    moves(row, row.pes, world.pe, 41, torch.int32, "two_level")
    reduces(row, row.pes, world.pe, 41, torch.int32, algorithm="two_level")
    reduces(row, row.pes, world.pe, 41, torch.int32)
    across = world.team_world.split_strided(per_host - 1, 1, 2)  # the last of a host and the first of the next
    if across:
        moves(across, across.pes, world.pe, 5, torch.float32)
    triton_dist.barrier_all()


def check_two_communicators(world: Any) -> None:
    """With memory of their own."""
    with Communicator() as comm:
        made = kernels.reserve("all_gather", "all_reduce", max_tokens=8, hidden=8, group=comm)
        assert made == {"all_gather": comm.workspace_bytes, "all_reduce": 0} and comm.workspace_bytes > 0
        for n in (3, 300, 3):
            moves(comm, range(world.n_pes), world.pe, n, torch.int16)
            reduces(None, range(world.n_pes), world.pe, n, torch.float32)
        reduces(comm, range(world.n_pes), world.pe, 1009, torch.float64)
        assert comm.workspace_bytes == made["all_gather"], "the memory does not depend on the size"
        with raises(RuntimeError, "norm_all_gather: .*cannot reach"):
            kernels.reserve("norm_all_gather", max_tokens=8, hidden=8, group=comm)


@contextmanager
def round_robin(world: Any) -> Iterator[None]:
    """As if PEs were numbered round-robin over two hosts, as mpirun --map-by node does."""
    hosts = world._hosts
    world._hosts = Hosts(tuple(Host(f"host{i}", tuple(range(i, world.n_pes, 2))) for i in range(2)), True)
    try:
        yield
    finally:
        triton_dist.barrier_all()
        world._hosts = hosts


def check_round_robin_numbers(world: Any) -> None:
    with round_robin(world), Communicator() as comm:
        assert comm.grid.row[:3] == (0, 2, world.n_pes // 2) and comm.grid.column[:3] == (0, 1, 2)
        moves(comm, range(world.n_pes), world.pe, 37, torch.float32)
        reduces(comm, range(world.n_pes), world.pe, 37, torch.float32)


def check_numbers_wrap_around(world: Any) -> None:
    comm = communicator_of()
    kernels.all_reduce(torch.ones(3))  # creates the memory
    for name, words in comm.own(workspace.Workspace).tensors.items():
        if name == "messages between hosts":
            words.fill_(-2)
        elif name == "barrier two-level collectives":
            words.fill_(2**31 - 3)
    triton_dist.barrier_all()
    for n in (300, 3):
        moves(None, range(world.n_pes), world.pe, n, torch.int32)
        reduces(None, range(world.n_pes), world.pe, n, torch.int32)


def check_operators(world: Any) -> None:
    """The functional forms, with gradients."""
    x = torch.full((3, 2), float(world.pe), requires_grad=True)
    y = functional.all_gather(x, 0)
    same(y.detach()[::3, 0], torch.arange(world.n_pes).float(), "all_gather")
    y.sum().backward()
    same(x.grad, torch.full((3, 2), float(world.n_pes)), "its gradient")
    same(functional.all_reduce(torch.ones(4000)), torch.full((4000,), float(world.n_pes)), "all_reduce")


def check_in_place(world: Any) -> None:
    n, me = 40, world.pe
    whole = torch.empty(world.n_pes * n)
    part = whole.view(-1, n)[me]
    for number in range(2):
        whole.fill_(-1)
        part.copy_(torch.arange(n) + 100 * me + number)
        kernels.all_gather(whole, part)
        expected = (torch.arange(n) + 100 * torch.arange(world.n_pes)[:, None] + number).float()
        assert torch.equal(whole.view(-1, n), expected)
        whole.copy_(torch.arange(len(whole)) + number + me)
        expected = sum(torch.arange(len(whole)).float() + number + pe for pe in range(world.n_pes))
        kernels.reduce_scatter(part, whole)
        assert torch.equal(part, expected.view(-1, n)[me])


def check_mistakes(world: Any) -> None:
    mine = next(host for host in world.hosts if world.pe in host.pes)
    far = next(pe for pe in range(world.n_pes) if pe not in mine.pes)
    there = next(host for host in world.hosts if far in host.pes)
    where = f"PE {world.pe} on host {mine} cannot reach the memory of PE {far} on host {there} by load and store"
    with raises(RuntimeError, f"all_reduce by algorithm push .not auto or two_level.: {where}"):
        kernels.all_reduce(torch.ones(3), algorithm="push")
    with raises(RuntimeError, f"norm_all_gather: {where}", r"pass group=triton_dist.team_shared\(\)"):
        kernels.norm_all_gather(torch.ones(4, 4), torch.ones(4))
    with raises(RuntimeError, f"tracing: {where}"), kernels.tracing("nowhere.json"):
        pass
    per_host = len(world.hosts[0].pes)
    uneven = world.team_world.split_strided(0, 1, per_host + 1)
    if uneven and per_host > 1:
        a, b = world.hosts[:2]
        partner = f"PE 1 on host {a} has no partner on {b}"
        with raises(RuntimeError, f"{per_host} PEs on host {a} and 1 on host {b}: {partner}"):
            kernels.all_reduce(torch.ones(3), group=uneven)
    triton_dist.barrier_all()


# ---- what crosses between hosts


def crossing(world: Any) -> int:
    """Bytes that all PEs have put to other hosts so far, by the checker's log."""
    triton_dist.barrier_all()
    world.recorder.flush()
    triton_dist.barrier_all()
    host_of = {pe: host for host in world.hosts for pe in host.pes}
    total = 0
    for pe, log in enumerate(read(world.checking._logs)):
        for event in log.events[log.events["kind"] == Kind.PUT]:
            to, begins, ends = log.ranges(int(event["b"]))
            total += int((ends - begins).sum()) if host_of[to] is not host_of[pe] else 0
    triton_dist.barrier_all()
    return total


def check_bytes_between_hosts(world: Any) -> None:
    """No byte crosses twice. What a host must get is the least: gathered, a copy of each part of the others; reduced, a
    sum of each other host for each part; exchanged, what is for it; broadcast, one copy."""
    if not environment.get("TRITON_DIST_CHECK"):
        return
    n_pes, hosts = world.n_pes, len(world.hosts)
    far = n_pes // hosts * (hosts - 1)  # PEs that are not on a PE's host
    for n in (1, 131)[n_pes == 4 :]:
        x, part, whole = torch.ones(n), torch.ones(n), torch.ones(n * n_pes)
        least = {
            "all_gather": 4 * n * n_pes * (hosts - 1),
            "reduce_scatter": 4 * n * n_pes * (hosts - 1),
            "all_reduce": 4 * n * 2 * (hosts - 1),
            "all_to_all": 4 * n * n_pes * far,
            "broadcast": 4 * n * (hosts - 1),
        }
        calls = {
            "all_gather": partial(kernels.all_gather, whole, part),
            "reduce_scatter": partial(kernels.reduce_scatter, part, whole),
            "all_reduce": partial(kernels.all_reduce, x),
            "all_to_all": partial(kernels.all_to_all, whole, whole.clone()),
            "broadcast": partial(kernels.broadcast, x, n_pes - 1),
        }
        for name, call in calls.items():
            call()
            before = crossing(world)
            call()
            crossed = crossing(world) - before
            assert crossed == least[name], f"{name} of {n}: {crossed} bytes crossed, and {least[name]} must"


if __name__ == "__main__":
    run(globals())
