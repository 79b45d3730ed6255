"""Single elements, blocks of pointers, copies by a warp or a thread, and what a kernel can ask about its team."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from ops import element_types
from ops.copies import GUARD, GUARD_BYTE, OFFSETS
from ops.element_types import expect_bits, random_values
from ops.harness import GPU, check, expect_equal, random_bytes, rounds
from triton_dist import World


@triton.jit(do_not_specialize=["n"])
def put_and_get_one_by_one(dst, src, out, n):
    me = dl.my_pe()
    for i in range(n):
        dl.p(dst + i, tl.load(src + i), (me + 1) % dl.n_pes())
    dl.p(dst + n, 3, (me + 1) % dl.n_pes())
    for i in range(n):
        tl.store(out + i, dl.g(src + i, (me + 2) % dl.n_pes()))


@triton.jit
def exchange_tiles(dst, src, out, rows, columns, width, BLOCK: tl.constexpr):
    """Some elements of a matrix whose rows are ``width`` apart: to the next PE, and from the one behind it."""
    me = dl.my_pe()
    row = tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    at = row * width + column
    mask = (row < rows) & (column < columns) & ((row + column) % 3 != 1)
    mine = tl.load(src + at, mask=mask, other=0)
    dl.store(dst + at, mine, (me + 1) % dl.n_pes(), mask=mask)
    theirs = dl.load(src + at, (me + 2) % dl.n_pes(), mask=mask, other=5)
    tl.store(out + row * BLOCK + column, theirs)


@triton.jit
def exchange_scalars_and_rows(dst, src, out, BLOCK: tl.constexpr):
    """Without a mask: one pointer, and a block of them."""
    me = dl.my_pe()
    offsets = tl.arange(0, BLOCK)
    dl.store(dst, tl.load(src), (me + 1) % dl.n_pes())
    dl.store(dst + 1 + offsets, tl.load(src + 1 + offsets), (me + 1) % dl.n_pes())
    tl.store(out, dl.load(src, (me + 2) % dl.n_pes()))
    tl.store(out + 1 + offsets, dl.load(src + 1 + offsets, (me + 2) % dl.n_pes()))


@triton.jit
def copy_and_flag(dst, src, n, flag):
    following = (dl.my_pe() + 1) % dl.n_pes()
    dl.copy(dst, src, n, following)
    tl.store(src, -1.0)  # it has arrived: the source is free, and the flag needs no fence
    dl.signal_op(flag, 1, dl.SIGNAL_SET, following)


@triton.jit
def wait_and_copy_out(out, inbox, n, flag, BLOCK: tl.constexpr):
    token = dl.signal_wait_until(flag, dl.CMP_EQ, 1)
    inbox = dl.consume_token(inbox, token)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        tl.store(out + offsets, tl.load(inbox + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def ask(out):
    me = dl.my_pe()
    n_pes = dl.n_pes()
    tl.store(out, dl.team_my_pe(dl.TEAM_WORLD))
    tl.store(out + 1, dl.team_n_pes(dl.TEAM_WORLD))
    for pe in range(n_pes):
        tl.store(out + 2 + pe, dl.team_translate_pe(dl.TEAM_WORLD, pe, dl.TEAM_WORLD))
        tl.store(out + 2 + n_pes + pe, dl.is_reachable(pe).to(tl.int32))
    tl.store(out + 2 + 2 * n_pes, dl.is_reachable(me).to(tl.int32))


@triton.jit(do_not_specialize=["team"])
def ask_about_no_team(out, team):
    tl.store(out, dl.team_my_pe(dl.TEAM_INVALID))
    tl.store(out + 1, dl.team_n_pes(dl.TEAM_INVALID))
    tl.store(out + 2, dl.team_translate_pe(dl.TEAM_INVALID, 0, dl.TEAM_WORLD))
    tl.store(out + 3, dl.team_translate_pe(dl.TEAM_WORLD, 0, dl.TEAM_INVALID))
    tl.store(out + 4, dl.team_my_pe(team))
    tl.store(out + 5, dl.team_n_pes(team))
    tl.store(out + 6, dl.team_translate_pe(team, 0, dl.TEAM_WORLD))
    tl.store(out + 7, dl.team_translate_pe(dl.TEAM_WORLD, 0, team))


@triton.jit(do_not_specialize=["nbytes", "distance", "how"], do_not_specialize_on_alignment=["dst", "src"])
def narrow_copy(dst, src, nbytes, distance, how):
    pe = (dl.my_pe() + distance) % dl.n_pes()
    if how == 0:
        dl.putmem(dst, src, nbytes, pe, scope="thread")
    elif how == 1:
        dl.putmem(dst, src, nbytes, pe, scope="warp")
    elif how == 2:
        dl.putmem_nbi(dst, src, nbytes, pe, scope="thread")
    elif how == 3:
        dl.putmem_nbi(dst, src, nbytes, pe, scope="warp")
    elif how == 4:
        dl.getmem(dst, src, nbytes, pe, scope="thread")
    elif how == 5:
        dl.getmem(dst, src, nbytes, pe, scope="warp")
    elif how == 6:
        dl.getmem_nbi(dst, src, nbytes, pe, scope="thread")
    else:
        dl.getmem_nbi(dst, src, nbytes, pe, scope="warp")
    dl.quiet()


@check
def p_and_g_of_every_type(world: World) -> None:
    n = 67 if GPU else 9
    for dtype in element_types.ALL:
        source = triton_dist.from_tensor(random_values(n, dtype, world.pe))
        target = triton_dist.zeros(n + 2, dtype=dtype)
        out = torch.empty(n, dtype=dtype, device=world.device)
        put_and_get_one_by_one[(1,)](target, source, out, n)
        triton_dist.barrier_all()
        expect_bits(target[:n], random_values(n, dtype, (world.pe - 1) % world.n_pes), f"p of {dtype}")
        expect_bits(target[n:], torch.tensor([3, 0]).to(dtype), f"p of the number 3 as {dtype}, and what is behind it")
        expect_bits(out, random_values(n, dtype, (world.pe + 2) % world.n_pes), f"g of {dtype}")
        triton_dist.free(source)
        triton_dist.free(target)


@check(maps_all=True)
def tiles_of_a_peer(world: World) -> None:
    rows, columns, width, block = 27, 30, 41, 32
    row, column = torch.arange(block)[:, None], torch.arange(block)[None, :]
    mask = (row < rows) & (column < columns) & ((row + column) % 3 != 1)
    for dtype in (torch.int8, torch.bfloat16, torch.int32, torch.float64):

        def matrix(pe: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return random_values(block * width, dtype, pe % world.n_pes).view(block, width)

        source = triton_dist.from_tensor(matrix(world.pe))
        target = triton_dist.full((block, width), 7, dtype=dtype)
        out = torch.empty(block, block, dtype=dtype, device=world.device)
        exchange_tiles[(1,)](target, source, out, rows, columns, width, BLOCK=block)
        triton_dist.barrier_all()
        expected = torch.full((block, width), 7, dtype=dtype)
        expected[:, :block][mask] = matrix(world.pe - 1)[:, :block][mask]
        expect_bits(target, expected, f"masked store of {dtype}")
        behind = matrix(world.pe + 2)[:, :block]
        expect_bits(out, torch.where(mask, behind, torch.tensor(5, dtype=dtype)), f"masked load of {dtype}")
        triton_dist.free(source)
        triton_dist.free(target)


@check(maps_all=True)
def scalars_and_rows_of_a_peer(world: World) -> None:
    n = 129
    for dtype in (torch.float16, torch.int64):
        source = triton_dist.from_tensor(random_values(n, dtype, world.pe))
        target = triton_dist.full(n + 1, 7, dtype=dtype)
        out = torch.empty(n, dtype=dtype, device=world.device)
        exchange_scalars_and_rows[(1,)](target, source, out, BLOCK=n - 1)
        triton_dist.barrier_all()
        expect_bits(target[:n], random_values(n, dtype, (world.pe - 1) % world.n_pes), f"store of {dtype}")
        expect_bits(target[n:], torch.full((1,), 7, dtype=dtype), "the element behind them")
        expect_bits(out, random_values(n, dtype, (world.pe + 2) % world.n_pes), f"load of {dtype}")
        triton_dist.free(source)
        triton_dist.free(target)


@check
def copy_has_arrived_when_it_returns(world: World) -> None:
    n = rounds(1_000_003, 1003)
    for turn in range(rounds(20, 2)):
        values = [random_values(n, torch.float32, 100 * turn + pe) for pe in range(world.n_pes)]
        source = triton_dist.from_tensor(values[world.pe])
        inbox = triton_dist.zeros(n)
        flag = triton_dist.zeros(1, dtype=torch.int64)
        out = torch.zeros(n, device=world.device)
        copy_and_flag[(1,)](inbox, source, n, flag)
        wait_and_copy_out[(1,)](out, inbox, n, flag, BLOCK=1024)
        expect_equal(out, values[(world.pe - 1) % world.n_pes], f"turn {turn}")
        triton_dist.barrier_all()
        for tensor in (source, inbox, flag):
            triton_dist.free(tensor)


@check
def the_team_of_all(world: World) -> None:
    n = world.n_pes
    out = torch.full((2 * n + 3,), -7, dtype=torch.int32, device=world.device)
    ask[(1,)](out)
    expect_equal(out[:2], torch.tensor([world.pe, n], dtype=torch.int32), "team_my_pe, team_n_pes")
    expect_equal(out[2 : 2 + n], torch.arange(n, dtype=torch.int32), "team_translate_pe")
    reachable = [*(world.is_reachable(pe) for pe in range(n)), True]
    expect_equal(out[2 + n :], torch.tensor(reachable, dtype=torch.int32), "is_reachable")


@check
def no_team(world: World) -> None:
    out = torch.zeros(8, dtype=torch.int32, device=world.device)
    ask_about_no_team[(1,)](out, -1)
    expect_equal(out, torch.full((8,), -1, dtype=torch.int32), "questions about TEAM_INVALID")


@check
def copies_by_a_warp_or_a_thread(world: World) -> None:
    sizes = [1, 3, 16, 31, 1000, 4099] if GPU else [1, 31, 1000]
    space = max(sizes) + 2 * GUARD
    source = triton_dist.from_tensor(random_bytes(space, world.pe))
    target = triton_dist.empty(space, dtype=torch.uint8)
    for round_, nbytes in enumerate(sizes):
        for how in range(8):
            to, start = OFFSETS[(round_ + how) % len(OFFSETS)]
            distance = (round_ + how) % world.n_pes
            other = (world.pe + (distance if how >= 4 else -distance)) % world.n_pes
            target.fill_(GUARD_BYTE)
            triton_dist.barrier_all()
            narrow_copy[(1,)](target[GUARD + to :], source[start:], nbytes, distance, how, num_warps=(1, 4)[round_ % 2])
            triton_dist.barrier_all()
            expected = torch.full((space,), GUARD_BYTE, dtype=torch.uint8)
            expected[GUARD + to : GUARD + to + nbytes] = random_bytes(space, other)[start : start + nbytes]
            op = f"{'put' if how < 4 else 'get'}mem{'_nbi' * (how // 2 % 2)}, scope {('thread', 'warp')[how % 2]}"
            expect_equal(target, expected, f"{op}: {nbytes} bytes to +{to} from +{start}")
    triton_dist.free(source)
    triton_dist.free(target)
