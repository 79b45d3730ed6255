"""Flash decode of heads that PEs share, with the output projection and its all-reduce, against float64."""

from __future__ import annotations

import inspect
from typing import Any
from unittest import mock

import torch
from decode import LENGTHS, Sequences, numbers, reference, same_everywhere
from harness import main as run
from harness import raises

from triton_dist.kernels.attention.flash_decode import flash_decode
from triton_dist.kernels.attention.projection import flash_decode_projection


def projected(world: Any, attention: list[torch.Tensor], weights: list[torch.Tensor], *added: Any) -> torch.Tensor:
    """In float64: the sum of every PE's attention times its part of the weight, and what is added to it."""
    pairs = zip(attention, weights, strict=True)
    total = sum(one.flatten(1).double() @ weight.double() for one, weight in pairs)
    return total + sum(one.double() for one in added if one is not None)


def check_projection(world: Any) -> None:
    """Heads split over the PEs: batch, KV heads and query heads of each on a PE, head size, dtype, page, columns of
    the weight, bias, residual, window; requests of all lengths, in launches of some of them."""
    cases = (
        (1, 2, 4, 32, torch.float32, None, 24, False, False, None),
        (5, 1, 2, 16, torch.bfloat16, 8, 37, True, True, 20),
        (7, 2, 1, 64, torch.float32, 5, 16, False, True, None),
    )
    for times, (b, kv_heads, group, dim, dtype, page, n, biased, added, window) in enumerate(cases):
        lengths = tuple(LENGTHS[-1 - i * 7 % 11] for i in range(b))
        alone = mock.Mock(n_pes=1, pe=0)
        parts = [
            Sequences(alone, lengths, kv_heads, dim, dim, dtype, max(lengths), seed=100 * times + 10 * pe)
            for pe in range(world.n_pes)
        ]
        heads = kv_heads * group
        queries = [numbers(b, heads, dim, seed=50 + pe, dtype=dtype) for pe in range(world.n_pes)]
        weights = [numbers(heads * dim, n, seed=60 + pe, dtype=dtype) / 16 for pe in range(world.n_pes)]
        bias = numbers(n, seed=70) if biased else None
        residual = numbers(b, n, seed=71, dtype=dtype) if added else None
        attention = [
            reference(q, s.k, s.v, lengths, dim**-0.5, window)[0].to(dtype) for q, s in zip(queries, parts, strict=True)
        ]
        expected = projected(world, attention, weights, bias, residual)
        mine, weight = parts[world.pe], weights[world.pe]
        options: dict[str, Any] = {"window": window, "bias": bias, "residual": residual}
        k, v = mine.dense(mine.k), mine.dense(mine.v)
        if page:
            k, options["block_table"] = mine.paged(mine.k, page)
            v = mine.paged(mine.v, page)[0]
            weight = weight.t().contiguous().t()
        with mock.patch.object(inspect.getmodule(flash_decode), "_MOST_REQUESTS", 3):
            found, again = (
                flash_decode_projection(queries[world.pe], k, v, mine.on_device, weight, **options) for _ in range(2)
            )
        assert torch.equal(found, again), "not the same every time"
        # Partial sums are rounded, and so is attention: by one unit more or less than the reference's.
        tolerance = 1e-5 if dtype == torch.float32 else 2**-6
        torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance * 4)
        same_everywhere(world, found)


def check_projection_of_mla_and_fp8(world: Any) -> None:
    """Each PE has query heads of its own for the one KV head of MLA; and caches of fp8 with scales."""
    main, rest = 32, 16
    s = Sequences(mock.Mock(n_pes=1, pe=0), (97, 0, 3), 1, main + rest, main, torch.float32, 97)
    queries = [numbers(3, 4, main + rest, seed=pe) for pe in range(world.n_pes)]
    weights = [numbers(4 * main, 16, seed=20 + pe) for pe in range(world.n_pes)]
    attention = [reference(q, s.k, s.k[..., :main], s.lengths, 0.3, None)[0] for q in queries]
    pages, table = s.paged(s.k, 8)
    found = flash_decode_projection(
        queries[world.pe], pages, None, s.on_device, weights[world.pe], block_table=table, head_dim_v=main, scale=0.3
    )
    torch.testing.assert_close(found.double(), projected(world, attention, weights), rtol=1e-5, atol=1e-4)
    assert (found[1] == 0).all()

    s = Sequences(mock.Mock(n_pes=1, pe=0), (64, 17), 2, 32, 16, torch.float8_e4m3fn, 64)
    queries = [numbers(2, 8, 32, seed=pe, dtype=torch.float16) for pe in range(world.n_pes)]
    weights = [numbers(8 * 16, 16, seed=20 + pe, dtype=torch.float16) / 16 for pe in range(world.n_pes)]
    scales = torch.tensor([0.5, 2.0])
    k, v = s.k.float() * scales[:, None], s.v.float() * 3
    attention = [reference(q, k, v, s.lengths, 32**-0.5, None)[0] for q in queries]
    found = flash_decode_projection(
        queries[world.pe], s.dense(s.k), s.dense(s.v), s.on_device, weights[world.pe], k_scale=scales, v_scale=3.0
    )
    torch.testing.assert_close(found.double(), projected(world, attention, weights), rtol=2e-3, atol=2e-2)


def check_projection_of_many_requests_and_a_group(world: Any) -> None:
    """More rows than a small-M GEMM takes; none; and all PEs but the first."""
    b = 130
    for team in (None, world.team_world.split_strided(1, 1, world.n_pes - 1) if world.n_pes > 2 else None):
        if (team is None and b == 1) or (team is not None and not world.pe):
            continue
        first = 0 if team is None else 1
        s = Sequences(mock.Mock(n_pes=1, pe=0), tuple(i % 4 for i in range(b)), 1, 16, 16, torch.float32, 3)
        queries = [numbers(b, 1, 16, seed=pe) for pe in range(first, world.n_pes)]
        weights = [numbers(16, 8, seed=20 + pe) for pe in range(first, world.n_pes)]
        attention = [reference(q, s.k, s.v, s.lengths, 0.25, None)[0] for q in queries]
        q, weight = queries[world.pe - first], weights[world.pe - first]
        residual = numbers(b, 8, seed=9)
        found = flash_decode_projection(
            q, s.dense(s.k), s.dense(s.v), s.on_device, weight, residual=residual, group=team
        )
        torch.testing.assert_close(found.double(), projected(world, attention, weights, residual), rtol=1e-5, atol=1e-4)
        none = flash_decode_projection(q[:0], s.k[:0], s.v[:0], s.on_device[:0], weight, group=team)
        assert none.shape == (0, 8)
        b = 1


def check_projection_mistakes(world: Any) -> None:
    q, cache, lengths = torch.zeros(2, 4, 16), torch.zeros(2, 8, 2, 16), torch.zeros(2, dtype=torch.int32)
    weight = torch.zeros(64, 8)
    with raises(ValueError, r"flash_decode_projection: q must have shape \[B, HQ, D\], got \(4, 16\)"):
        flash_decode_projection(q[0], cache, cache, lengths, weight)
    with raises(
        ValueError, "flash_decode_projection: attention of shape .2, 64. cannot be multiplied by weight of shape"
    ):
        flash_decode_projection(q, cache, cache, lengths, weight[:48])
    with raises(ValueError, "attention is of torch.float32, and weight of torch.float16"):
        flash_decode_projection(q, cache, cache, lengths, weight.half())
    with raises(ValueError, r"residual must be of shape \(2, 8\)"):
        flash_decode_projection(q, cache, cache, lengths, weight, residual=torch.zeros(1, 8))
    with raises(ValueError, r"bias must be of shape \(8,\)"):
        flash_decode_projection(q, cache, cache, lengths, weight, bias=torch.zeros(9))


if __name__ == "__main__":
    run(globals())
