"""Fused norms and flash decode of triton_dist.kernels on GPUs: all algorithms, large sizes, and CUDA graphs."""

from __future__ import annotations

import sys
from typing import Any

import torch

import triton_dist
from ops.harness import GPU, check
from triton_dist import World, kernels
from triton_dist.kernels.dependent_launch import DependentLaunches


def random(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers that every PE can make again on its device."""
    device = "cuda" if GPU else "cpu"
    return torch.randn(*shape, generator=torch.Generator(device).manual_seed(seed), device=device).to(dtype)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float, what: str) -> None:
    error = (found.double() - expected.double()).abs().max().item() if found.numel() else 0.0
    size = expected.double().abs().max().item() if found.numel() else 0.0
    assert error <= tolerance * max(size, 1.0), f"{what}: an error of {error:.3g}, of values up to {size:.3g}"


def widened(found: Any) -> torch.Tensor:
    if found.scales is None:
        return found.output
    scales = found.scales.reshape(found.output.shape[0], -1)
    return (found.output.float().view(*scales.shape, -1) * scales[..., None]).view(found.output.shape)


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return x / (x.pow(2).mean(1, keepdim=True) + 1e-6).sqrt() * weight.double()


@check(maps_all=True)
def fused_norms_compute_what_they_should(world: World) -> None:
    sizes = (
        *((1, 8192), (3, 7168), (64, 8192), (129, 5120), (1000, 8192), (4099, 4096), (7, 16384)),
        *((2, 1023), (5, 65536)),
    )
    for m, h in sizes if GPU else ((1, 256), (3, 257)):
        rows = m * world.n_pes
        xs = [random(rows, h, seed=pe, dtype=torch.bfloat16) for pe in range(world.n_pes)]
        weight, residual = (random(n, h, seed=90 + n, dtype=torch.bfloat16) for n in (1, rows))
        weight = weight[0]
        total = sum(x.double() for x in xs) + residual.double()
        mine = slice(m * world.pe, m * world.pe + m)
        for quantize in (None, "token", "block") if h % 128 == 0 else (None, "token"):
            for name in ("all_reduce_norm", "reduce_scatter_norm", "norm_all_gather"):
                known = sys.modules[f"triton_dist.kernels.norm.{name}"].ALGORITHMS
                for algorithm in (*known, "auto"):
                    if algorithm not in ("auto", "unfused") and h > 16384:
                        continue
                    if algorithm == "fused" and name == "norm_all_gather" and quantize:
                        continue
                    function = getattr(kernels, name)
                    if name == "all_reduce_norm":
                        found = function(xs[world.pe], weight, residual, quantize=quantize, algorithm=algorithm)
                        part = total
                    elif name == "reduce_scatter_norm":
                        found = function(xs[world.pe], weight, residual[mine], quantize=quantize, algorithm=algorithm)
                        part = total[mine]
                    else:
                        found = function(xs[0][mine], weight, residual[mine], quantize=quantize, algorithm=algorithm)
                        part = xs[0].double() + residual.double()
                    what = f"{name} {m} × {h}, {algorithm}, {quantize}"
                    close(found.residual, part[mine] if name == "norm_all_gather" else part, 2**-6, what)
                    close(widened(found), normed(part.bfloat16(), weight), 0.08 if quantize else 2**-5, what)


@check(maps_all=True)
def norm_gemms_compute_what_they_should(world: World) -> None:
    """Rows of one kernel and of several, tiles of one and of two programs an SM, columns that fill no tile."""
    sizes = ((1, 4096, 3072), (3, 5120, 25600), (32, 4096, 12288), (64, 2048, 1000), (100, 4096, 3072), (200, 512, 768))
    for m, k, n in sizes if GPU else ((3, 64, 34),):
        a, weight = random(m, k, seed=m, dtype=torch.bfloat16), random(1, k, seed=k, dtype=torch.bfloat16)[0]
        b = random(n, k, seed=n, dtype=torch.bfloat16).t() / k**0.5
        y = normed(a, weight) @ b.double()
        gate, up = y.unflatten(1, (-1, 2)).unbind(2)
        close(kernels.norm_gemm(a, b, weight), y, 2**-6, f"norm and GEMM, {m} × {n} × {k}")
        found = kernels.norm_gemm(a, b, weight, activation="swiglu")
        close(found, torch.nn.functional.silu(gate) * up, 2**-6, f"norm, GEMM and SwiGLU, {m} × {n} × {k}")
        assert torch.equal(found, kernels.norm_gemm(a, b, weight, activation="swiglu")), "not the same every time"


def decoded(
    x: torch.Tensor, b: dict[str, torch.Tensor], weight: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Five layers of a decoder, all with the same weights."""
    for _ in range(5):
        q = kernels.norm_gemm(x, b["qkv"], weight).view(x.shape[0], -1, keys.shape[3])
        x = kernels.flash_decode_projection(q, keys, values, lengths, b["out"], residual=x)
        y = kernels.norm_gemm(x, b["up"], weight, activation="swiglu")
        x = kernels.gemm_all_reduce(y, b["down"], residual=x)
        x = x * 0.5  # a kernel of torch, which knows nothing of this
    return x


@check(gpu_only=True)
def dependent_launches_change_no_bit(world: World) -> None:
    """Chains of kernels that begin before those in front of them have ended, behind each other and behind torch's, in
    graphs that are replayed without a pause."""
    if torch.cuda.get_device_capability() < (9, 0):
        return
    n, heads, dim, length = world.n_pes, 8, 128, 700
    for m, hidden, inner in ((1, 4096, 6144), (16, 2048, 1536), (33, 1024, 12288), (128, 4096, 2048)):
        shapes = {"qkv": (hidden, heads * dim), "out": (heads * dim, hidden), "up": (hidden, 2 * inner)}
        shapes["down"] = (inner, hidden)
        b = {
            name: random(w, k, seed=seed + world.pe, dtype=torch.bfloat16).t() / (n * k) ** 0.5
            for seed, (name, (k, w)) in enumerate(shapes.items())
        }
        weight = random(1, hidden, seed=7, dtype=torch.bfloat16)[0]
        keys, values = (random(m, length, 2, dim, seed=s, dtype=torch.bfloat16) for s in (8, 9))
        lengths = torch.full((m,), length, dtype=torch.int32, device="cuda")
        x = random(m, hidden, seed=10, dtype=torch.bfloat16)

        operands = b, weight, keys, values, lengths
        expected = decoded(x, *operands)
        with world.own(DependentLaunches).turned_on():
            for _ in range(3):
                assert torch.equal(decoded(x, *operands), expected), f"{m} rows: other bits"
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = decoded(x, *operands)
            captured.zero_()
            for _ in range(50):
                graph.replay()
            assert torch.equal(captured, expected), f"{m} rows: other bits in a graph"
        for _ in range(20):
            graph.replay()
            assert torch.equal(decoded(x, *operands), expected), f"{m} rows: other bits behind a graph"


@check(gpu_only=True)
def fused_norms_in_graphs_and_the_same_every_time(world: World) -> None:
    weight = random(8192, seed=1, dtype=torch.bfloat16)
    for m, algorithm in ((1, "one_shot"), (130, "one_shot"), (130, "two_shot"), (2048, "two_shot")):
        x = random(m, 8192, seed=world.pe, dtype=torch.bfloat16)
        first = kernels.all_reduce_norm(x, weight, algorithm=algorithm)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = [kernels.all_reduce_norm(x, weight, algorithm=algorithm) for _ in range(4)]
        for _ in range(50):
            graph.replay()
            direct = kernels.all_reduce_norm(x, weight, algorithm=algorithm)
        torch.cuda.synchronize()
        for found in (*captured, direct):
            assert torch.equal(found.output, first.output) and torch.equal(found.residual, first.residual)
        shared = triton_dist.from_tensor(first.output)
        triton_dist.barrier_all()
        assert torch.equal(triton_dist.peer(shared, (world.pe + 1) % world.n_pes), shared), "PEs differ"
        triton_dist.barrier_all()
        triton_dist.free(shared)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int], window: int | None
) -> torch.Tensor:
    group = q.shape[1] // k.shape[2]
    out = torch.zeros(*q.shape[:2], v.shape[3], dtype=torch.float64, device=q.device)
    for i, length in enumerate(lengths):
        first = max(0, length - window) if window else 0
        if length:
            keys = k[i, first:length].double().repeat_interleave(group, 1)
            values = v[i, first:length].double().repeat_interleave(group, 1)
            logits = torch.einsum("hd,thd->ht", q[i].double(), keys) * q.shape[2] ** -0.5
            out[i] = torch.einsum("ht,thd->hd", logits.softmax(1), values)
    return out


@check
def flash_decode_computes_what_it_should(world: World) -> None:
    cases = (
        # requests, KV heads, query heads a KV head, head size, of values, longest, window, page, cache
        (1, 8, 8, 128, 128, 40_000, None, None, torch.bfloat16),
        (1, 1, 8, 128, 128, 40_000, None, None, torch.bfloat16),  # a part of the one task from every program
        (3, 8, 4, 128, 128, 1000, 300, 16, torch.bfloat16),
        (65, 4, 16, 64, 64, 700, None, 64, torch.bfloat16),
        (256, 1, 8, 128, 128, 100, None, None, torch.float8_e4m3fn),
        (7, 8, 1, 256, 256, 3000, None, 1, torch.float8_e5m2),
        (5, 1, 128, 576, 512, 2000, None, 64, torch.bfloat16),
        (5, 1, 16, 576, 512, 2000, None, 64, torch.float8_e4m3fn),
    )
    for b, heads, group, dim, dim_v, longest, window, page, dtype in cases if GPU else ():
        generator = torch.Generator().manual_seed(b)
        lengths = torch.randint(0, longest + 1, (b,), generator=generator).tolist()
        lengths[-1], lengths[0] = 0 if b > 1 else longest, longest
        each = page or -(-longest // world.n_pes)
        capacity = -(-longest // (each * world.n_pes)) * each
        k = random(b, capacity * world.n_pes, heads, dim, seed=1, dtype=torch.float32).to(dtype)
        v = k[..., :dim_v] if dim > dim_v else random(*k.shape[:3], dim_v, seed=2, dtype=torch.float32).to(dtype)
        q = random(b, heads * group, dim, seed=3, dtype=torch.bfloat16)
        positions = torch.arange(k.shape[1], device=k.device)
        mine = positions[positions // each % world.n_pes == world.pe]
        k_here, v_here = k[:, mine].contiguous(), v[:, mine].contiguous()
        options: dict[str, Any] = {"window": window, "interleave": each, "head_dim_v": dim_v}
        if page:
            pages = -(-capacity // page)
            order = torch.randperm(b * pages, generator=generator).to(k.device)
            options["block_table"] = order.argsort().view(b, pages).int()
            k_here, v_here = (part.view(b * pages, page, heads, -1)[order] for part in (k_here, v_here))
        expected = attention(q, k.float(), v.float(), lengths, window)
        device_lengths = torch.tensor(lengths, dtype=torch.int32, device=k.device)
        values = None if dim > dim_v else v_here
        found = kernels.flash_decode(q, k_here, values, device_lengths, **options)[0]
        what = f"flash decode of {b} requests, heads of {dim}, {dtype}"
        close(found, expected, 2**-6, what)
        owned = heads * group // world.n_pes
        scattered = kernels.flash_decode(q, k_here, values, device_lengths, scatter_heads=True, **options)[0]
        assert torch.equal(scattered, found[:, owned * world.pe : owned * (world.pe + 1)]), what


@check(gpu_only=True)
def flash_decode_in_a_graph_with_changing_lengths(world: World) -> None:
    b, heads, longest = 16, 8, 4096
    k, v = (random(b, longest * world.n_pes, heads, 128, seed=i, dtype=torch.bfloat16) for i in (1, 2))
    q = random(b, 8 * heads, 128, seed=3, dtype=torch.bfloat16)
    mine = slice(longest * world.pe, longest * (world.pe + 1))
    k_here, v_here = k[:, mine].contiguous(), v[:, mine].contiguous()
    lengths = torch.zeros(b, dtype=torch.int32, device=k.device)
    kernels.flash_decode(q, k_here, v_here, lengths)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = kernels.flash_decode(q, k_here, v_here, lengths)
    for round_ in range(30):
        generator = torch.Generator().manual_seed(round_)
        some = torch.randint(0, longest * world.n_pes + 1, (b,), generator=generator)
        some[round_ % b] = 0
        lengths.copy_(some)
        graph.replay()
        if round_ % 10 == 0:
            close(out, attention(q, k, v, some.tolist(), None), 2**-6, f"replay {round_}")
            once = out.clone()
            graph.replay()
            assert torch.equal(out, once), "not the same every time"


@check
def flash_decode_projection_computes_what_it_should(world: World) -> None:
    cases = (
        # requests, KV heads and query heads a KV head on a PE, head size, of values, longest, page, cache, hidden
        (1, 4, 8, 128, 128, 40_000, None, torch.bfloat16, 8192),
        (32, 4, 8, 128, 128, 3000, 16, torch.bfloat16, 8192),
        (128, 1, 5, 128, 128, 500, None, torch.float8_e4m3fn, 5120),
        (3, 1, 64, 576, 512, 2000, 64, torch.bfloat16, 7168),
        (200, 2, 4, 64, 64, 300, None, torch.bfloat16, 4096),
    )
    for b, heads, group, dim, dim_v, longest, page, dtype, hidden in cases if GPU else ():
        generator = torch.Generator().manual_seed(b)
        lengths = torch.randint(0, longest + 1, (b,), generator=generator).tolist()
        lengths[-1], lengths[0] = 0 if b > 1 else longest, longest
        pages = -(-longest // page) if page else 1
        expected = residual = random(b, hidden, seed=4, dtype=torch.bfloat16)
        expected = expected.double()
        arguments: Any = ()
        for pe in range(world.n_pes):
            k = random(b, pages * page if page else longest, heads, dim, seed=10 * pe + 1, dtype=torch.float32)
            k = k.to(dtype)
            v = random(*k.shape[:3], dim_v, seed=10 * pe + 2, dtype=torch.float32).to(dtype)
            v = k[..., :dim_v] if dim > dim_v else v
            q = random(b, heads * group, dim, seed=10 * pe + 3, dtype=torch.bfloat16)
            weight = random(heads * group * dim_v, hidden, seed=10 * pe + 4, dtype=torch.bfloat16)
            weight *= (longest / weight.shape[0]) ** 0.5  # attention to so many keys is far smaller than a value
            attended = attention(q, k.float(), v.float(), lengths, None)
            expected += attended.flatten(1) @ weight.double()
            if pe == world.pe:
                arguments = q, k, v, weight
        size = expected.abs().amax(1, keepdim=True)  # each request's own: attention to few keys is larger
        q, k, v, weight = arguments
        options: dict[str, Any] = {"residual": residual, "head_dim_v": dim_v}
        if page:
            order = torch.randperm(b * pages, generator=generator).to(k.device)
            options["block_table"] = order.argsort().view(b, pages).int()
            k, v = (part.reshape(b * pages, page, heads, -1)[order] for part in (k, v))
        values = None if dim > dim_v else v
        on_device = torch.tensor(lengths, dtype=torch.int32, device=k.device)
        what = f"flash decode + projection of {b} requests, heads of {dim}, {dtype}"
        found = kernels.flash_decode_projection(q, k, values, on_device, weight, **options)
        close(found / size, expected / size, 2**-6, what)
        by_columns = weight.t().contiguous().t()
        again = kernels.flash_decode_projection(q, k, values, on_device, by_columns, **options)
        close(again / size, expected / size, 2**-6, what)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = [kernels.flash_decode_projection(q, k, values, on_device, weight, **options) for _ in range(3)]
        for _ in range(20):
            graph.replay()
        assert all(torch.equal(one, found) for one in captured), f"{what}: not the same every time"
        on_device.zero_()
        graph.replay()
        assert all(torch.equal(one, residual) for one in captured), f"{what}: lengths of a graph do not change"
