"""Elements on other PEs: strided copies, p and g, tiles, atomics."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from harness import DTYPES, by_load_and_store, main, noise, on_pe, together
from hypothesis import given
from hypothesis import strategies as st

import triton_dist
import triton_dist.language as dl

SIZE = 1000
INTEGERS = (torch.int32, torch.uint32, torch.int64, torch.uint64)


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of each element. (Torch can do little with unsigned integers.)"""
    return tensor.view(torch.uint8).view(-1, tensor.itemsize)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit by bit."""
    return torch.equal(rows(a), rows(b))


def neighbours(world: Any) -> tuple[int, int]:
    return (world.pe - 1) % world.n_pes, (world.pe + 1) % world.n_pes


# ---- strided copies


@triton.jit
def copy_strided(dst, src, dst_stride, src_stride, nelems, pe, GET: tl.constexpr):
    if GET:
        dl.iget(dst, src, dst_stride, src_stride, nelems, pe)
    else:
        dl.iput(dst, src, dst_stride, src_stride, nelems, pe)


@st.composite
def walks(draw: st.DrawFn, count: int) -> range:
    """Places of ``count`` elements that lie in SIZE, at any stride in any direction."""
    longest = (SIZE - 1) // max(1, count - 1)
    stride = draw(st.integers(1, min(longest, 9))) * draw(st.sampled_from((1, -1)))
    begin = draw(st.integers(0, SIZE - 1 - (count - 1) * abs(stride))) if count else 0
    begin += max(0, count - 1) * abs(stride) * (stride < 0)
    return range(begin, begin + count * stride, stride)


@st.composite
def strided_copies(draw: st.DrawFn) -> tuple[range, range]:
    count = draw(st.one_of(st.integers(0, 8), st.integers(9, 100)))
    return draw(walks(count)), draw(walks(count))


def check_strided_copies(world: Any) -> None:
    left, right = neighbours(world)
    here, there = triton_dist.empty(SIZE * 8, dtype=torch.uint8), triton_dist.empty(SIZE * 8, dtype=torch.uint8)

    @together
    @given(strided_copies(), st.sampled_from(DTYPES), st.integers(0, 99), st.booleans())
    def example(walks: tuple[range, range], dtype: torch.dtype, seed: int, get: bool) -> None:
        to, source = walks
        src, dst = here.view(dtype)[:SIZE], there.view(dtype)[:SIZE]
        src.copy_(noise(SIZE, dtype, 1000 * world.pe + seed))
        dst.copy_(noise(SIZE, dtype, seed + 99_999))
        triton_dist.barrier_all()
        copy_strided[(1,)](dst[to.start :], src[source.start :], to.step, source.step, len(to), right, get)
        triton_dist.barrier_all()
        expected = noise(SIZE, dtype, seed + 99_999)
        sent = noise(SIZE, dtype, 1000 * (right if get else left) + seed)
        rows(expected)[list(to)] = rows(sent)[list(source)]
        assert same(dst, expected) and same(src, noise(SIZE, dtype, 1000 * world.pe + seed))

    example()


def check_strided_copies_of_private_memory(world: Any) -> None:
    left, right = neighbours(world)
    dst, back = triton_dist.zeros(10, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    copy_strided[(1,)](dst[1:], torch.arange(9, dtype=torch.int32) + 100 * world.pe, 3, 4, 3, right, False)
    triton_dist.barrier_all()
    assert dst.tolist() == [0, 100 * left, 0, 0, 100 * left + 4, 0, 0, 100 * left + 8, 0, 0]
    copy_strided[(1,)](back[5:], dst[1:], -2, 3, 3, left, True)
    left = (left - 1) % world.n_pes
    assert back.tolist() == [0, 100 * left + 8, 0, 100 * left + 4, 0, 100 * left]


@triton.jit
def copy_blocks(dst, src, dst_stride, src_stride, bsize, nblocks, pe, GET: tl.constexpr):
    if GET:
        dl.ibget(dst, src, dst_stride, src_stride, bsize, nblocks, pe)
    else:
        dl.ibput(dst, src, dst_stride, src_stride, bsize, nblocks, pe)


@st.composite
def block_copies(draw: st.DrawFn) -> tuple[int, int, list[int], list[int]]:
    """The elements of a block, their number, and the places of its first elements in ``dst`` and ``src``."""
    bsize, count = draw(st.integers(0, 20)), draw(st.integers(0, 12))

    def begins(least: int) -> list[int]:
        longest = (SIZE - bsize) // max(1, count)
        stride = draw(st.integers(min(least, longest), min(longest, least + 30)))
        first = draw(st.integers(0, SIZE - bsize - max(0, count - 1) * stride))
        places = [first + stride * block for block in range(count)]
        return places[::-1] if draw(st.booleans()) else places

    return bsize, count, begins(bsize), begins(0)


def check_blocks(world: Any) -> None:
    left, right = neighbours(world)
    here, there = triton_dist.empty(SIZE * 8, dtype=torch.uint8), triton_dist.empty(SIZE * 8, dtype=torch.uint8)

    def stride(places: list[int], bsize: int) -> int:
        return places[1] - places[0] if len(places) > 1 else bsize

    @together
    @given(block_copies(), st.sampled_from(DTYPES), st.integers(0, 99), st.booleans())
    def example(blocks: tuple[int, int, list[int], list[int]], dtype: torch.dtype, seed: int, get: bool) -> None:
        bsize, count, to, source = blocks
        src, dst = here.view(dtype)[:SIZE], there.view(dtype)[:SIZE]
        src.copy_(noise(SIZE, dtype, 1000 * world.pe + seed))
        dst.copy_(noise(SIZE, dtype, seed + 99_999))
        triton_dist.barrier_all()
        begins = [places[0] if places else 0 for places in (to, source)]
        strides = stride(to, bsize), stride(source, bsize)
        copy_blocks[(1,)](dst[begins[0] :], src[begins[1] :], *strides, bsize, count, right, get)
        triton_dist.barrier_all()
        expected = noise(SIZE, dtype, seed + 99_999)
        sent = noise(SIZE, dtype, 1000 * (right if get else left) + seed)
        for into, out_of in zip(to, source, strict=True):
            rows(expected)[into : into + bsize] = rows(sent)[out_of : out_of + bsize]
        assert same(dst, expected) and same(src, noise(SIZE, dtype, 1000 * world.pe + seed))

    example()


# ---- single elements


@triton.jit
def put_and_get(dst, back, src, pe):
    dl.p(dst, tl.load(src), pe)
    dl.quiet()
    tl.store(back, dl.g(dst, pe))


def check_single_elements(world: Any) -> None:
    left, right = neighbours(world)
    for dtype in DTYPES:
        dst, back = triton_dist.zeros(20, dtype=dtype), torch.zeros(20, dtype=dtype)
        mine, theirs = noise(20, dtype, world.pe), noise(20, dtype, left)
        for i in range(1, 19):
            put_and_get[(1,)](dst[i:], back[i:], mine[i:], right)
        triton_dist.barrier_all()
        assert same(back[1:19], mine[1:19]) and same(dst[1:19], theirs[1:19])
        assert not rows(back)[[0, 19]].any() and not rows(dst)[[0, 19]].any(), "neighbours"
        triton_dist.free(dst)


@triton.jit
def exchange_tiles(dst, back, n, pe, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.store(dst + at, dl.my_pe() * 100 + at, pe, mask=at < n)
    dl.barrier(dl.TEAM_WORLD)
    tl.store(back + at, dl.load(dst + at, pe, mask=at < n + 1, other=-2))


@by_load_and_store
def check_tiles(world: Any) -> None:
    left, right = neighbours(world)
    dst, back = triton_dist.full((16,), -1, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    exchange_tiles[(1,)](dst, back, 5, right, 16)
    assert dst.tolist() == [100 * left + i for i in range(5)] + [-1] * 11
    assert back.tolist() == [100 * world.pe + i for i in range(5)] + [-1] + [-2] * 10


@triton.jit
def ask_teams(out):
    tl.store(out, dl.team_my_pe(dl.TEAM_WORLD))
    tl.store(out + 1, dl.team_n_pes(dl.TEAM_WORLD))
    for pe in range(dl.n_pes()):
        tl.store(out + 2 + pe, dl.team_translate_pe(dl.TEAM_WORLD, pe, dl.TEAM_WORLD) * 10 + dl.is_reachable(pe))
    tl.store(out + 2 + dl.n_pes(), dl.team_translate_pe(dl.TEAM_WORLD, dl.n_pes(), dl.TEAM_WORLD))


def check_teams(world: Any) -> None:
    out = torch.zeros(3 + world.n_pes, dtype=torch.int32)
    ask_teams[(1,)](out)
    assert out.tolist() == [world.pe, world.n_pes, *(10 * pe + world.is_reachable(pe) for pe in range(world.n_pes)), -1]


# ---- atomics: what each does, alone


@triton.jit
def update(dst, operand, pe, OP: tl.constexpr, SEM: tl.constexpr):
    OP(dst, tl.load(operand), pe, sem=SEM)


@triton.jit
def fetch_update(dst, operand, before, pe, OP: tl.constexpr, SEM: tl.constexpr):
    tl.store(before, OP(dst, tl.load(operand), pe, sem=SEM))


@triton.jit
def fetch_update_by_one(dst, before, pe, OP: tl.constexpr, SEM: tl.constexpr):
    tl.store(before, OP(dst, pe, sem=SEM))


@triton.jit
def update_by_one(dst, pe):
    dl.atomic_inc(dst, pe)


@triton.jit
def swap_if(dst, cond, value, before, pe, SEM: tl.constexpr):
    tl.store(before, dl.atomic_compare_swap(dst, tl.load(cond), tl.load(value), pe, sem=SEM))


MODELS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "set": lambda old, new: new,
}


def scalar(number: int | float, dtype: torch.dtype) -> torch.Tensor:
    """An integer wraps around."""
    if dtype.is_floating_point:
        return torch.tensor([number], dtype=dtype)
    word = int(number) % (1 << 8 * dtype.itemsize)
    return torch.tensor(list(word.to_bytes(dtype.itemsize, "little")), dtype=torch.uint8).view(dtype)


def numbers(dtype: torch.dtype) -> st.SearchStrategy[Any]:
    if dtype.is_floating_point:
        largest = 2.0**99
        # Triton makes scalars of -0.0 to 0.0.
        return st.floats(-largest, largest, width=8 * dtype.itemsize).map(lambda x: x + 0.0)
    info = torch.iinfo(dtype)
    return st.one_of(st.integers(info.min, info.max), st.sampled_from((info.min, info.max, 0, 1)))


@st.composite
def updates(draw: st.DrawFn) -> tuple[torch.dtype, str, Any, Any]:
    dtype = draw(st.sampled_from((*INTEGERS, torch.float32, torch.float64)))
    names = ("set", "add") if dtype.is_floating_point else tuple(MODELS)
    return dtype, draw(st.sampled_from(names)), draw(numbers(dtype)), draw(numbers(dtype))


ORDERS = st.sampled_from(("relaxed", "acquire", "release", "acq_rel"))


def check_atomics_alone(world: Any) -> None:
    """On an element between two others, which stay, against Python's numbers."""
    right = (world.pe + 1) % world.n_pes
    raw = triton_dist.empty(3 * 8, dtype=torch.uint8)

    @together
    @given(updates(), ORDERS)
    def example(case: tuple[torch.dtype, str, Any, Any], sem: str) -> None:
        dtype, name, old, operand = case
        row, before = raw.view(dtype)[:3], torch.zeros(1, dtype=dtype)
        start, value = scalar(old, dtype), scalar(operand, dtype)
        once = scalar(MODELS[name](start.item(), value.item()), dtype)
        for fetches in (False, True):
            row.view(torch.uint8).fill_(0xA5)
            rows(row)[1] = rows(start)[0]
            triton_dist.barrier_all()
            if fetches:
                op = dl.atomic_swap if name == "set" else getattr(dl, f"atomic_fetch_{name}")
                fetch_update[(1,)](row[1:], value, before, right, op, sem)
                assert same(before, start)
                fetch_update_by_one[(1,)](row[1:], before, right, dl.atomic_fetch, sem)
                assert same(before, once)
            else:
                update[(1,)](row[1:], value, right, getattr(dl, f"atomic_{name}"), sem)
            triton_dist.barrier_all()
            assert same(row[1:2], once)
            assert (rows(row)[[0, 2]] == 0xA5).all()

    example()


def check_increments_wrap_around(world: Any) -> None:
    right = (world.pe + 1) % world.n_pes
    for dtype in INTEGERS:
        word, before = triton_dist.zeros(1, dtype=dtype), torch.zeros(1, dtype=dtype)
        word.copy_(scalar(torch.iinfo(dtype).max, dtype))
        triton_dist.barrier_all()
        fetch_update_by_one[(1,)](word, before, right, dl.atomic_fetch_inc, "acq_rel")
        update_by_one[(1,)](word, right)
        triton_dist.barrier_all()
        assert before.item() == torch.iinfo(dtype).max and word.item() == torch.iinfo(dtype).min + 1


def check_compare_swap(world: Any) -> None:
    right = (world.pe + 1) % world.n_pes
    raw = triton_dist.empty(8, dtype=torch.uint8)

    @together
    @given(st.sampled_from(INTEGERS), st.data(), ORDERS)
    def example(dtype: torch.dtype, data: st.DataObject, sem: str) -> None:
        word, before = raw.view(dtype)[:1], torch.zeros(1, dtype=dtype)
        old, new = scalar(data.draw(numbers(dtype)), dtype), scalar(data.draw(numbers(dtype)), dtype)
        cond = data.draw(st.sampled_from((old, new)))
        word.copy_(old)
        triton_dist.barrier_all()
        swap_if[(1,)](word, cond, new, before, right, sem)
        triton_dist.barrier_all()
        assert same(before, old)
        assert same(word, new if same(cond, old) else old)

    example()


# ---- atomics: of all PEs on one element


@triton.jit
def count_together(words, floats, tickets, times):
    for i in range(times):
        ticket = dl.atomic_fetch_inc(words, 0)
        tl.store(tickets + tl.program_id(0) * times + i, ticket)
        dl.atomic_add(words + 1, 3, 0)
        dl.atomic_inc(words + 2, 0, sem="relaxed")
        dl.atomic_fetch_add(words + 3, -1, 0)
        dl.atomic_add(floats, 0.5, 0)


def check_counts_are_exact(world: Any) -> None:
    programs, times = 3, 100
    total = programs * times * world.n_pes
    for dtype, kind in ((torch.int32, torch.float32), (torch.uint64, torch.float64)):
        words, floats = triton_dist.zeros(4, dtype=dtype), triton_dist.zeros(1, dtype=kind)
        tickets = triton_dist.zeros(programs * times, dtype=torch.int64)
        count_together[(programs,)](words, floats, tickets, times)
        triton_dist.barrier_all()
        if world.pe == 0:
            assert words.tolist() == [total, 3 * total, total, -total % (1 << 64) if dtype == torch.uint64 else -total]
            assert floats.item() == total / 2
            drawn = torch.cat([on_pe(tickets, pe) for pe in range(world.n_pes)])
            assert sorted(drawn.tolist()) == list(range(total)), "each ticket is drawn once"
        triton_dist.barrier_all()


@triton.jit
def own_bits(words, times):
    mine = 1 << dl.my_pe()
    for i in range(times):
        dl.atomic_or(words, mine, 0)
        dl.atomic_and(words + 1, -1 - mine, 0)
        dl.atomic_xor(words + 2, mine, 0)
        seen = dl.atomic_fetch_xor(words + 3, mine, 0)
        tl.device_assert((seen & mine) == (i % 2) * mine, "another PE changed my bit")


def check_bits_of_all_pes(world: Any) -> None:
    words = triton_dist.zeros(4, dtype=torch.int64)
    words[1] = -1
    triton_dist.barrier_all()
    own_bits[(1,)](words, 101)
    triton_dist.barrier_all()
    every = (1 << world.n_pes) - 1
    if world.pe == 0:
        assert words.tolist() == [every, ~every, every, every]


@triton.jit
def swap_many(word, got, times):
    for i in range(times):
        tl.store(got + i, dl.atomic_swap(word, dl.my_pe() * times + i + 1, 0))


def check_swaps_lose_nothing(world: Any) -> None:
    times = 200
    word, got = triton_dist.zeros(1, dtype=torch.int32), triton_dist.zeros(times, dtype=torch.int32)
    swap_many[(1,)](word, got, times)
    triton_dist.barrier_all()
    if world.pe == 0:
        everything = torch.cat([word, *(on_pe(got, pe) for pe in range(world.n_pes))])
        assert sorted(everything.tolist()) == list(range(world.n_pes * times + 1))
    triton_dist.barrier_all()


@triton.jit
def count_under_a_lock(lock, counter, times, SWAP: tl.constexpr):
    for _ in range(times):
        if SWAP:
            while dl.atomic_swap(lock, 1, 0) == 1:
                pass
        else:
            while dl.atomic_compare_swap(lock, 0, 1, 0) == 1:
                pass
        dl.p(counter, dl.g(counter, 0) + 1, 0)
        dl.quiet()
        dl.atomic_set(lock, 0, 0)


def check_locks(world: Any) -> None:
    """Several programs of each PE, so that one which spins must let the lock's holder go on."""
    for swap in (False, True):
        lock, counter = triton_dist.zeros(1, dtype=torch.int64), triton_dist.zeros(1, dtype=torch.int32)
        count_under_a_lock[(3,)](lock, counter, 20, swap)
        triton_dist.barrier_all()
        assert on_pe(counter, 0).item() == 60 * world.n_pes


if __name__ == "__main__":
    main(globals())
