"""Flash decode against float64: caches that PEs share in every way, requests of all lengths, windows, fp8 and MLA."""

from __future__ import annotations

import inspect
import itertools
from typing import Any
from unittest import mock

import torch
from harness import main as run
from harness import raises

import triton_dist
from triton_dist.kernels import Communicator
from triton_dist.kernels.attention.flash_decode import flash_decode

LENGTHS = (0, 1, 2, 3, 16, 17, 31, 64, 97, 100, 131)


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Sequences:
    """Keys and values of all requests as one process has them, and how PEs share them."""

    def __init__(
        self, world: Any, lengths: tuple[int, ...], heads: int, dim: int, dim_v: int, dtype: torch.dtype, each: int,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.world, self.lengths, self.each = world, lengths, each
        longest = max(lengths)
        self.k = numbers(len(lengths), longest, heads, dim, seed=seed + 1).to(dtype)
        self.v = numbers(len(lengths), longest, heads, dim_v, seed=seed + 2).to(dtype)
        positions = torch.arange(longest)
        self.mine = positions[positions // each % world.n_pes == world.pe]
        self.capacity = max(1, -(-longest // (each * world.n_pes)) * each)
        self.on_device = torch.tensor(lengths, dtype=torch.int32)

    def dense(self, whole: torch.Tensor) -> torch.Tensor:
        """This PE's part, with noise behind it."""
        b, _, heads, dim = whole.shape
        part = numbers(b, self.capacity, heads, dim, seed=77).to(whole.dtype)
        part[:, : len(self.mine)] = whole[:, self.mine]
        return part

    def paged(self, whole: torch.Tensor, page: int) -> tuple[torch.Tensor, torch.Tensor]:
        """This PE's part in pages, in an order of its own, and the table."""
        part = self.dense(whole)
        b, _, heads, dim = part.shape
        per_request = -(-self.capacity // page)
        order = torch.randperm(b * per_request + 3, generator=torch.Generator().manual_seed(5 + self.world.pe))
        table = order[: b * per_request].view(b, per_request).int()
        pages = numbers(len(order), page, heads, dim, seed=78).to(whole.dtype)
        for request, slot in itertools.product(range(b), range(per_request)):
            some = part[request, slot * page : (slot + 1) * page]
            pages[table[request, slot], : len(some)] = some
        return pages, table


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Any, scale: float, window: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """In float64. Lengths of 0 give zeros."""
    b, heads, _ = q.shape
    group = heads // k.shape[2]
    out, lse = torch.zeros(b, heads, v.shape[3], dtype=torch.float64), torch.full((b, heads), float("-inf")).double()
    for request, length in enumerate(lengths):
        first = max(0, length - window) if window else 0
        if length == 0:
            continue
        keys = k[request, first:length].double().repeat_interleave(group, 1)
        values = v[request, first:length].double().repeat_interleave(group, 1)
        logits = torch.einsum("hd,thd->ht", q[request].double(), keys) * scale
        out[request] = torch.einsum("ht,thd->hd", logits.softmax(1), values)
        lse[request] = logits.logsumexp(1)
    return out, lse


def close(found: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    eps = torch.finfo(found[0].dtype).eps
    for name, one, other in zip(("out", "lse"), found, expected, strict=True):
        assert one.shape == other.shape, f"{name}: {one.shape}, expected {other.shape}"
        tolerance = 4 * (eps if name == "out" else 1e-6) + 1e-6
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)


def check_flash_decode(world: Any) -> None:
    """Query heads for each KV head, batch, head size, dtype, positions in a row on one PE, window, page."""
    cases = (
        (1, 2, 1, 64, torch.float32, None, None, None),
        (3, 1, 8, 64, torch.bfloat16, 16, None, 8),
        (5, 2, 3, 32, torch.float32, 1, 20, None),
        (7, 1, 16, 16, torch.float16, 7, 1, 5),
        (2, 3, 1, 256, torch.float32, None, 100, 16),
    )
    for times, (b, kv_heads, group, dim, dtype, each, window, page) in enumerate(cases):
        lengths = tuple(LENGTHS[-1 - i * 7 % 11] for i in range(b))
        split = each or -(-max(lengths) // world.n_pes)
        s = Sequences(world, lengths, kv_heads, dim, dim, dtype, split, seed=times)
        q = numbers(b, kv_heads * group, dim, seed=times, dtype=dtype)
        options: dict[str, Any] = {"window": window, "interleave": each}
        if page:
            k, options["block_table"] = s.paged(s.k, page)
            v = s.paged(s.v, page)[0]
            options["interleave"] = split
        else:
            k, v = s.dense(s.k), s.dense(s.v)
        expected = reference(q, s.k, s.v, lengths, dim**-0.5, window)
        found = flash_decode(q, k, v, s.on_device, **options)
        close(found, expected)
        if times < 2:
            again = flash_decode(q, k, v, s.on_device, **options)
            assert torch.equal(found[0], again[0]) and torch.equal(found[1], again[1]), "not the same every time"
        if (kv_heads * group) % world.n_pes == 0:
            mine = slice(*(kv_heads * group // world.n_pes * i for i in (world.pe, world.pe + 1)))
            scattered = flash_decode(q, k, v, s.on_device, scatter_heads=True, **options)
            assert torch.equal(scattered[0], found[0][:, mine]) and torch.equal(scattered[1], found[1][:, mine])
        same_everywhere(world, found[0])


def check_a_tree_of_parts(world: Any) -> None:
    """One head that every program has a part of, and several that some have, again and again on the same counters."""
    with mock.patch.object(inspect.getmodule(flash_decode), "sms", return_value=11):  # one program each, of CPU worlds
        for lengths, heads in (((170 * world.n_pes,), 1), ((100 * world.n_pes, 3, 40 * world.n_pes), 2)):
            s = Sequences(world, lengths, heads, 16, 16, torch.float32, max(lengths) // world.n_pes)
            q = numbers(len(lengths), 2 * heads, 16, seed=3)
            expected = reference(q, s.k, s.v, lengths, 0.25, None)
            found = [flash_decode(q, s.dense(s.k), s.dense(s.v), s.on_device) for _ in range(2)]
            close(found[0], expected)
            assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


def check_mla(world: Any) -> None:
    """Values are the first part of keys, which have a second part; heads of more than one tile."""
    b, heads, main, rest = 2, 40, 32, 16
    s = Sequences(world, (97, 0), 1, main + rest, main, torch.float32, 16)
    q = numbers(b, heads, main + rest, seed=3)
    expected = reference(q, s.k, s.k[..., :main], s.lengths, 0.3, None)
    pages, table = s.paged(s.k, 8)
    options: dict[str, Any] = {"block_table": table, "head_dim_v": main, "interleave": 16, "scale": 0.3}
    found = flash_decode(q, pages, None, s.on_device, **options)
    close(found, expected)
    close(flash_decode(q, s.dense(s.k), None, s.on_device, head_dim_v=main, interleave=16, scale=0.3), expected)


def check_fp8_caches(world: Any) -> None:
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        s = Sequences(world, (64, 17), 2, 32, 16, dtype, 4)
        q = numbers(2, 8, 32, seed=3, dtype=torch.bfloat16)
        scales = torch.tensor([0.5, 2.0])
        k, v = s.k.float() * scales[:, None], s.v.float() * 3
        found = flash_decode(q, s.dense(s.k), s.dense(s.v), s.on_device, interleave=4, k_scale=scales, v_scale=3.0)
        close(found, reference(q, k, v, s.lengths, 32**-0.5, None))


def check_lengths_change(world: Any) -> None:
    """The same tensors, as a graph would replay them: no length is known on the host."""
    s = Sequences(world, (131, 131, 131), 1, 16, 16, torch.float32, 8)
    k, v, q = s.dense(s.k), s.dense(s.v), numbers(3, 2, 16, seed=9)
    on_device = torch.zeros(3, dtype=torch.int32)
    for lengths in ((0, 0, 0), (131, 0, 1), (8, 9, 100)):
        on_device.copy_(torch.tensor(lengths))
        close(flash_decode(q, k, v, on_device, interleave=8), reference(q, s.k, s.v, lengths, 0.25, None))
    on_device.copy_(torch.tensor([-5, 7, 2**31 - 1]))  # more than there can be: all that there is
    found = flash_decode(q, k, v, on_device, interleave=8)
    assert found[0].isfinite().all() and (found[0][0] == 0).all()


def check_many_requests_and_shapes_in_turn(world: Any) -> None:
    """Several launches for one call, and layouts of slots that overwrite each other's."""
    many = Sequences(world, tuple(i * 5 % 13 for i in range(7)), 1, 16, 16, torch.float32, 2)
    few = Sequences(world, (50,), 2, 64, 32, torch.float32, 2)
    q, one = numbers(7, 1, 16, seed=4), numbers(1, 6, 64, seed=5)
    k, v = many.dense(many.k), many.dense(many.v)
    module = inspect.getmodule(flash_decode)
    with mock.patch.object(module, "_MOST_REQUESTS", 3):
        for _ in range(2):
            close(flash_decode(q, k, v, many.on_device), reference_by(many, q))
            found = flash_decode(one, few.dense(few.k), few.dense(few.v), few.on_device, interleave=2)
            close(found, reference(one, few.k, few.v, few.lengths, 0.125, None))


def reference_by(s: Sequences, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The reference where sequences are split into one piece for each PE, of tensors that were split otherwise."""
    whole_k, whole_v = (everybodys(s, whole) for whole in (s.k, s.v))
    return reference(q, whole_k, whole_v, s.lengths, q.shape[2] ** -0.5, None)


def everybodys(s: Sequences, whole: torch.Tensor) -> torch.Tensor:
    """The parts of all PEs, one after the other."""
    shared = triton_dist.from_tensor(s.dense(whole))
    triton_dist.barrier_all()
    parts = torch.cat([triton_dist.peer(shared, pe) for pe in range(s.world.n_pes)], 1)
    triton_dist.barrier_all()
    triton_dist.free(shared)
    return parts


def check_groups_decode(world: Any) -> None:
    """All PEs but the first, as a team; its ranks are not the PEs' numbers."""
    if world.n_pes < 3:
        return
    team = world.team_world.split_strided(1, 1, world.n_pes - 1)
    if team:
        generator = torch.Generator().manual_seed(3)
        k, v = (torch.randn(2, 10, 1, 16, generator=generator) for _ in range(2))
        q, lengths = numbers(2, 2, 16, seed=6), torch.tensor([10, 3], dtype=torch.int32)
        mine = slice(5 * (world.pe - 1), 5 * world.pe)
        found = flash_decode(q, k[:, mine].contiguous(), v[:, mine].contiguous(), lengths, group=team)
        close(found, reference(q, k, v, (10, 3), 0.25, None))


def same_everywhere(world: Any, found: torch.Tensor) -> None:
    shared = triton_dist.from_tensor(found)
    triton_dist.barrier_all()
    assert torch.equal(triton_dist.peer(shared, (world.pe + 1) % world.n_pes), shared), "PEs differ"
    triton_dist.barrier_all()
    triton_dist.free(shared)


def check_decode_mistakes(world: Any) -> None:
    q, cache, lengths = torch.zeros(2, 4, 16), torch.zeros(2, 8, 2, 16), torch.zeros(2, dtype=torch.int32)
    table = torch.zeros(2, 3, dtype=torch.int32)
    assert flash_decode(q[:0], cache[:0], cache[:0], lengths[:0])[0].shape == (0, 4, 16)
    with raises(TypeError, "flash_decode: q must be a torch.Tensor, got list"):
        flash_decode([q], cache, cache, lengths)
    with raises(ValueError, "flash_decode: k_cache is the conjugate or the negative"):
        flash_decode(q, torch._neg_view(cache), cache, lengths)
    with raises(ValueError, r"q must have shape \[B, HQ, D\], got \(4, 16\)"):
        flash_decode(q[0], cache, cache, lengths)
    with raises(ValueError, "lengths must be of torch.int32, got torch.int64"):
        flash_decode(q, cache, cache, lengths.long())
    with raises(ValueError, "k_cache must be of torch.float32 or torch.float8_e4m3fn .* got torch.bfloat16"):
        flash_decode(q, cache.bfloat16(), cache, lengths)
    with raises(ValueError, "the 4 heads of q must be a multiple of the 3 of k_cache"):
        flash_decode(q, torch.zeros(2, 8, 3, 16), cache, lengths)
    with raises(ValueError, "heads must have 16, .* got 24"):
        flash_decode(torch.zeros(2, 4, 24), torch.zeros(2, 8, 2, 24), cache, lengths)
    with raises(ValueError, "q has heads of 16 elements, and k_cache of 32"):
        flash_decode(q, torch.zeros(2, 8, 2, 32), cache, lengths)
    with raises(ValueError, "without v_cache, head_dim_v must be 16 for heads of 16, got None"):
        flash_decode(q, cache, None, lengths)
    with raises(ValueError, r"v_cache has shape \(2, 7, 2, 16\), and k_cache \(2, 8, 2, 16\)"):
        flash_decode(q, cache, cache[:, :7], lengths)
    with raises(ValueError, "q has 2 requests, and k_cache 1"):
        flash_decode(q, cache[:1], cache[:1], lengths)
    with raises(ValueError, "q has 2 requests, and lengths 1"):
        flash_decode(q, cache, cache, lengths[:1])
    with raises(ValueError, "q has 2 requests, and block_table 1"):
        flash_decode(q, cache, cache, lengths, block_table=table[:1])
    with raises(ValueError, "contiguous last dimension, got strides"):
        flash_decode(q, cache.transpose(1, 3), cache, lengths)
    with raises(ValueError, "window must be in .1, 2147483648., got 0"):
        flash_decode(q, cache, cache, lengths, window=0)
    with raises(ValueError, "interleave must be in .1, 2147483648., got -1"):
        flash_decode(q, cache, cache, lengths, interleave=-1)
    for name, wrong in itertools.product(
        ("window", "interleave", "head_dim_v"), (2.5, 16.0, True, "4", torch.tensor(4))
    ):
        with raises(TypeError, f"flash_decode: {name} must be an int, got .* of type {type(wrong).__name__}"):
            flash_decode(q, cache, cache, lengths, **{name: wrong})
    with raises(TypeError, "flash_decode: scale must be a number, got str"):
        flash_decode(q, cache, cache, lengths, scale="1")
    with raises(ValueError, "scale must be finite, also times log2.e. in torch.float32, got 1e.300"):
        flash_decode(q, cache, cache, lengths, scale=1e300)
    with raises(ValueError, "scale must be finite"):
        flash_decode(q, cache, cache, lengths, scale=10**400)
    with raises(ValueError, "k_scale is for caches of fp8, got torch.float32"):
        flash_decode(q, cache, cache, lengths, k_scale=1.0)
    small = cache.to(torch.float8_e4m3fn)
    with raises(ValueError, r"v_scale must be float32 on cpu, .* each of 2 KV heads, got shape \(3,\)"):
        flash_decode(q, small, small, lengths, v_scale=torch.ones(3))
    with raises(ValueError, "scale must be finite, .* got inf"):
        flash_decode(q, cache, cache, lengths, scale=float("inf"))
    if 4 % world.n_pes:
        with raises(ValueError, f"scatter_heads: 4 heads cannot be shared equally by {world.n_pes} PEs"):
            flash_decode(q, cache, cache, lengths, scatter_heads=True)


def check_keys_of_minus_infinity(world: Any) -> None:
    """The first and the second block, all keys of a PE, and all: as if they were not there."""
    each = 40
    q, keys = torch.ones(1, 2, 16), torch.ones(1, each * world.n_pes, 1, 16)
    values = numbers(1, each * world.n_pes, 1, 16, seed=3)
    lengths = torch.full((1,), each * world.n_pes, dtype=torch.int32)
    mine = slice(each * world.pe, each * (world.pe + 1))
    for gone in (slice(0, 15), slice(0, 16), slice(16, 32), slice(0, each), slice(each - 16, None), slice(0, None)):
        some = keys.clone()
        some[:, gone] = -torch.inf
        found, lse = flash_decode(q, some[:, mine], values[:, mine].contiguous(), lengths, interleave=each)
        finite = torch.ones(each * world.n_pes, dtype=torch.bool)
        finite[gone] = False
        if finite.any():
            torch.testing.assert_close(found, values[:, finite].mean(1).expand(1, 2, 16), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(lse, 4 + finite.sum().log().expand(1, 2), rtol=1e-5, atol=1e-5)
        else:
            assert (found == 0).all() and (lse == -torch.inf).all(), (found, lse)


def check_block_tables_out_of_range(world: Any) -> None:
    """What is in use of a table must be pages; what is not may be anything. A kernel that failed has sent nothing."""
    q, pages = torch.ones(1, 2, 16), torch.ones(3, 4, 1, 16)
    lengths = torch.full((1,), 8 * world.n_pes, dtype=torch.int32)  # two pages of each PE
    for wrong in (3, -1, 1 << 30):
        table = torch.tensor([[wrong, 0, 0]], dtype=torch.int32)
        with Communicator() as comm:
            with raises(RuntimeError, r"attention/partial\.py:\d+: .*block_table has an entry not in \[0, P\)"):
                flash_decode(q, pages, pages, lengths, block_table=table, interleave=4, group=comm)
            triton_dist.barrier_all()
    table = torch.tensor([[2, 0, -1]], dtype=torch.int32)
    found, _ = flash_decode(q, pages, pages, lengths, block_table=table, interleave=4)
    assert (found == 1).all()


if __name__ == "__main__":
    run(globals())
