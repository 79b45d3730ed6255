"""Collectives over the team of all: every PE gets what a reference says, in every type, and none comes too early."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops import element_types
from ops.copies import GUARD_BYTE
from ops.element_types import expect_bits, random_bits, random_values
from ops.harness import GPU, check, expect_equal, rounds
from triton_dist import World

SIZES = [1, 3, 33, 1000, 4097, 100_001] if GPU else [1, 33, 1000]
GUARD = 5
UFUNCS = {
    "sum": numpy.add,
    "prod": numpy.multiply,
    "min": numpy.minimum,
    "max": numpy.maximum,
    "and": numpy.bitwise_and,
    "or": numpy.bitwise_or,
    "xor": numpy.bitwise_xor,
}
# Every operation and every type, and all three scopes.
SAMPLE = (
    ("sum", torch.float32, "block"),
    ("xor", torch.int32, "warp"),
    ("min", torch.int8, "block"),
    ("or", torch.uint8, "block"),
    ("prod", torch.int16, "block"),
    ("max", torch.uint16, "block"),
    ("sum", torch.float16, "block"),
    ("max", torch.bfloat16, "block"),
    ("sum", torch.bfloat16, "warp"),
    ("max", torch.int64, "warp"),
    ("min", torch.uint64, "warp"),
    ("prod", torch.float64, "warp"),
    ("and", torch.uint32, "thread"),
)


@triton.jit(do_not_specialize=["n", "root", "how"], do_not_specialize_on_alignment=["dst", "src"])
def exchange(dst, src, n, root, how, SCOPE: tl.constexpr):
    if how == 0:
        dl.broadcast(dl.TEAM_WORLD, dst, src, n, root, scope=SCOPE)
    elif how == 1:
        dl.fcollect(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    else:
        dl.alltoall(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)


# The operation as a name: a function would be part of the kernel's cache key with its address, another in each process.
@triton.jit(do_not_specialize=["n"])
def reduce(dst, src, n, OP: tl.constexpr, SCOPE: tl.constexpr):
    if OP == "sum":
        dl.sum_reduce(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "prod":
        dl.prod_reduce(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "min":
        dl.min_reduce(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "max":
        dl.max_reduce(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "and":
        dl.and_reduce(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "or":
        dl.or_reduce(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    else:
        dl.xor_reduce(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)


@triton.jit(do_not_specialize=["n"])
def reducescatter(dst, src, n, OP: tl.constexpr, SCOPE: tl.constexpr):
    if OP == "sum":
        dl.sum_reducescatter(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "prod":
        dl.prod_reducescatter(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "min":
        dl.min_reducescatter(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "max":
        dl.max_reducescatter(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "and":
        dl.and_reducescatter(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    elif OP == "or":
        dl.or_reducescatter(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)
    else:
        dl.xor_reducescatter(dl.TEAM_WORLD, dst, src, n, scope=SCOPE)


@triton.jit
def many_in_a_row(numbers, sums, copies, all_copies, wrong, turns, BLOCK: tl.constexpr):
    """What a turn stores is reduced, broadcast, collected and checked at once: no turn may see another's."""
    me = dl.my_pe()
    n_pes = dl.n_pes()
    offsets = tl.arange(0, BLOCK).to(tl.int16)
    errors = 0
    for turn in range(turns):
        root = turn % n_pes
        first = (turn * 100 + offsets).to(tl.int16)
        tl.store(numbers + offsets, first + me)
        dl.sum_reduce(dl.TEAM_WORLD, sums, numbers, BLOCK)
        dl.broadcast(dl.TEAM_WORLD, copies, numbers, BLOCK, root)
        dl.fcollect(dl.TEAM_WORLD, all_copies, numbers, BLOCK)
        sum_of_pes = n_pes * (n_pes - 1) // 2
        errors += tl.sum((tl.load(sums + offsets) != (first * n_pes + sum_of_pes).to(tl.int16)).to(tl.int32))
        errors += tl.sum((tl.load(copies + offsets) != first + root).to(tl.int32))
        for pe in range(n_pes):
            theirs = tl.load(all_copies + pe * BLOCK + offsets)
            errors += tl.sum((theirs != first + pe).to(tl.int32))
        dl.sum_reduce(dl.TEAM_WORLD, numbers, numbers, BLOCK)
        errors += tl.sum((tl.load(numbers + offsets) != tl.load(sums + offsets)).to(tl.int32))
        dl.sync(dl.TEAM_WORLD)
    tl.store(wrong, errors)


@triton.jit
def meet(table, draft, wrong, turns, SYNC: tl.constexpr, SCOPE: tl.constexpr, BLOCK: tl.constexpr):
    """Every PE puts the turn into its row on every PE; between two barriers all rows are of this turn."""
    me = dl.my_pe()
    n_pes = dl.n_pes()
    offsets = tl.arange(0, BLOCK)
    errors = 0
    for turn in range(1, turns + 1):
        tl.store(draft + offsets, turn + offsets)
        for d in range(n_pes):
            dl.putmem_nbi(table + me * BLOCK, draft, BLOCK * 4, (me + d) % n_pes)
        if SYNC:
            dl.quiet()
            dl.sync(dl.TEAM_WORLD, scope=SCOPE)
        else:
            dl.barrier(dl.TEAM_WORLD, scope=SCOPE)
        for pe in range(n_pes):
            errors += tl.sum((tl.load(table + pe * BLOCK + offsets) != turn + offsets).to(tl.int32))
        if SYNC:
            dl.sync(dl.TEAM_WORLD, scope=SCOPE)
        else:
            dl.barrier(dl.TEAM_WORLD, scope=SCOPE)
    tl.store(wrong, errors)


@check
def broadcast_fcollect_alltoall(world: World) -> None:
    n_pes = world.n_pes
    for dtype in (torch.uint8, torch.float64):
        space = n_pes * max(SIZES) + 1
        data = [random_bits(space, dtype, pe) for pe in range(n_pes)]
        source = triton_dist.from_tensor(data[world.pe])
        target = triton_dist.empty(space, dtype=dtype)
        for round_, n in enumerate(SIZES):
            root = round_ % n_pes
            expected = {
                0: data[root][:n],
                1: torch.cat([part[:n] for part in data]),
                2: torch.cat([part[n * world.pe : n * (world.pe + 1)] for part in data]),
            }
            for scope in ("block", "warp", "thread") if dtype == torch.uint8 else ("block",):
                for how, parts in expected.items():
                    target.view(torch.uint8).fill_(GUARD_BYTE)
                    triton_dist.barrier_all()
                    exchange[(1,)](target, source, n, root, how, SCOPE=scope)
                    # No barrier: a collective that returned is done here, whatever the others do.
                    what = f"{('broadcast', 'fcollect', 'alltoall')[how]} of {n} {dtype}, scope {scope}"
                    expect_bits(target[: len(parts)], parts, what)
                    rest = target[len(parts) :].view(torch.uint8)
                    expect_equal(rest, torch.full_like(rest, GUARD_BYTE), f"{what}: what is behind")
        triton_dist.barrier_all()
        triton_dist.free(source)
        triton_dist.free(target)


def _operands(n: int, dtype: torch.dtype, n_pes: int) -> list[torch.Tensor]:
    return [random_values(n, dtype, 31 * pe + n % 1009) for pe in range(n_pes)]


def _expect_reduced(found: torch.Tensor, operands: list[torch.Tensor], op: str, what: str) -> None:
    """Integers as numpy computes them, modulo 2**bits; floats near what float64 gives, whatever the order was."""
    dtype = found.dtype
    if dtype not in element_types.FLOATS:
        exact = numpy.stack([operand.numpy() for operand in operands])
        expect_bits(found, torch.from_numpy(UFUNCS[op].reduce(exact, dtype=exact.dtype)), what)
        return
    exact = numpy.stack([operand.double().numpy() for operand in operands])
    expected = torch.from_numpy(UFUNCS[op].reduce(exact))
    if op in ("min", "max"):
        expect_equal(found, expected.to(dtype), what)
        return
    info = torch.finfo(dtype)
    scale = torch.from_numpy(UFUNCS[op].reduce(numpy.abs(exact)))
    allowed = len(operands) * (info.eps * scale + info.smallest_normal)
    error = (found.cpu().double() - expected).abs()
    at = int((error - allowed).argmax())
    assert bool((error <= allowed).all()), f"{what}: element {at} is {found[at].item()}, expected {expected[at].item()}"


def _check_reduction(world: World, op: str, dtype: torch.dtype, scope: str, *, scatter: bool = False) -> None:
    parts = world.n_pes if scatter else 1
    sizes = SIZES if scope == "block" else SIZES[:4]
    space = parts * max(sizes) + GUARD
    source = triton_dist.empty(space, dtype=dtype)
    target = triton_dist.empty(space, dtype=dtype)
    for round_, n in enumerate(sizes):
        operands = _operands(parts * n, dtype, world.n_pes)
        mine = [operand[world.pe * n : (world.pe + 1) * n] if scatter else operand for operand in operands]
        in_place = not scatter and round_ % 3 == 1
        source[: parts * n].copy_(operands[world.pe])
        target.view(torch.uint8).fill_(GUARD_BYTE)
        triton_dist.barrier_all()
        result = source if in_place else target
        kernel = reducescatter if scatter else reduce
        kernel[(1,)](result, source, n, OP=op, SCOPE=scope)
        # No barrier: a reduction that returned is done here, and its source is free, whatever the others do.
        what = f"{op} {kernel.__name__} of {n} {dtype}{', in place' * in_place}, scope {scope}"
        _expect_reduced(result[:n], mine, op, what)
        if not in_place:
            rest = target[n:].view(torch.uint8)
            expect_equal(rest, torch.full_like(rest, GUARD_BYTE), f"{what}: what is behind")
            expect_bits(source[: parts * n], operands[world.pe], f"{what}: its source")
    triton_dist.barrier_all()
    triton_dist.free(source)
    triton_dist.free(target)


def _every_operation_on(*dtypes: torch.dtype) -> Iterator[tuple[str, torch.dtype, str]]:
    for dtype in dtypes:
        for op in list(UFUNCS)[: 4 if dtype in element_types.FLOATS else 7]:
            yield op, dtype, "block"


def reductions_to_check() -> list[tuple[str, torch.dtype, str]]:
    dtypes = element_types.ALL if GPU else (torch.int32, torch.bfloat16)
    return list(dict.fromkeys([*SAMPLE, *_every_operation_on(*dtypes)]))


def reducescatters_to_check() -> list[tuple[str, torch.dtype, str]]:
    by_block = _every_operation_on(torch.int32, torch.bfloat16, torch.float64)
    return [*by_block, ("sum", torch.float32, "warp"), ("max", torch.uint16, "thread")]


@check
def reductions(world: World) -> None:
    for op, dtype, scope in reductions_to_check():
        _check_reduction(world, op, dtype, scope)


@check
def reducescatters(world: World) -> None:
    for op, dtype, scope in reducescatters_to_check():
        _check_reduction(world, op, dtype, scope, scatter=True)


@check
def hundreds_of_collectives_in_a_row(world: World) -> None:
    block, turns = 512, rounds(300, 4)
    for warps in (1, 8):
        numbers, sums, copies = (triton_dist.zeros(block, dtype=torch.int16) for _ in range(3))
        all_copies = triton_dist.zeros(world.n_pes * block, dtype=torch.int16)
        wrong = torch.full((1,), -1, dtype=torch.int32, device=world.device)
        many_in_a_row[(1,)](numbers, sums, copies, all_copies, wrong, turns, BLOCK=block, num_warps=warps)
        expect_equal(wrong, torch.zeros(1, dtype=torch.int32), f"wrong elements in {turns} turns with {warps} warps")
        triton_dist.barrier_all()
        for tensor in (numbers, sums, copies, all_copies):
            triton_dist.free(tensor)


@check
def barrier_and_sync_of_the_team(world: World) -> None:
    block, turns = 1024, rounds(500, 4)
    for sync in (False, True):
        for scope in ("block", "warp", "thread"):
            table = triton_dist.zeros(world.n_pes, block, dtype=torch.int32)
            draft = triton_dist.zeros(block, dtype=torch.int32)
            wrong = torch.full((1,), -1, dtype=torch.int32, device=world.device)
            meet[(1,)](table, draft, wrong, turns, SYNC=sync, SCOPE=scope, BLOCK=block)
            triton_dist.barrier_all()
            what = f"elements of another turn, {'sync' if sync else 'barrier'} with scope {scope}"
            expect_equal(wrong, torch.zeros(1, dtype=torch.int32), what)
            triton_dist.free(table)
            triton_dist.free(draft)
