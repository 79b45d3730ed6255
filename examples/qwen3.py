"""A decoder of Qwen3's shape as 05_transformer.py and benchmarks/model.py use it: the model, and how it is sharded.

The model is plain PyTorch: GQA with normed queries and keys, RMSNorm, RoPE, SwiGLU. It counts no PEs: a layer takes the
heads and the columns that its weights have. `plan` says how weights and activations are sharded, in PyTorch's parallel
styles, by triton_dist.tensor_parallel or by torch.distributed.tensor.parallel itself.

- With sequence parallelism (prefill, training) activations between GEMMs are sharded by rows of the sequence: every
  layer is all_gather_gemm, attention, gemm_reduce_scatter, all_gather_gemm, SwiGLU, gemm_reduce_scatter.
- Without it (decode: too few rows to share) they are replicated: gemm_all_reduce after attention and after the MLP.
- `FusedPrefill` is the first again: SwiGLU and the sums with the residual are parts of the GEMMs.
- `FusedDecode` is the second again with six kernels a layer: norm + qkv; norms of q and k, RoPE and the cache;
  attention; its projection + all-reduce + residual; norm + gate and up + SwiGLU; down + all-reduce + residual.
- qwen3_moe.py has layers of experts in the place of the MLP.

All shard weights alike, so one set of weights serves them (`share_weights`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.functional import scaled_dot_product_attention, silu

from triton_dist.kernels import functional
from triton_dist.kernels.dependent_launch import dependent, launch_options, wait_for_previous

Cache = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, [batch, length, KV heads of this PE, head_dim]."""


@dataclass(frozen=True)
class Config:
    """Sizes of a model. ``block``: columns of gate and of up lie in blocks of so many, by turns."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    block: int = 128
    rope_theta: float = 1e6
    eps: float = 1e-6

    def check(self, n_pes: int) -> None:
        """``n_pes`` PEs can share the model equally.

        Raises:
            ValueError: they cannot.
        """
        shared = {"kv_heads": self.kv_heads, "intermediate / block": self.intermediate // self.block}
        self.check_shared(shared | {"vocabulary": self.vocabulary}, n_pes)

    def check_shared(self, sizes: dict[str, int], n_pes: int) -> None:
        for what, size in sizes.items():
            if size % n_pes:
                raise ValueError(f"{what} of the model is {size}, which {n_pes} PEs cannot share equally")

    def mlp(self, group: Any = None, sequence: bool = False, max_tokens: int = 1) -> nn.Module:
        """What follows attention in a layer; for ``group``, if it counts PEs, else for all sizes of shards."""
        return MLP(self)

    def mlp_plan(self, by_columns: Any, by_rows: Any) -> dict[str, Any]:
        """The styles of that module's layers."""
        return {"mlp.gate_up": by_columns, "mlp.down": by_rows}

    def mlp_elements(self) -> int:
        """How many elements its weights have."""
        return 3 * self.hidden * self.intermediate


CONFIGS = {
    "tiny": Config(64, 2, 8, 4, 16, 128, 128, block=16),
    "qwen3-8b": Config(4096, 36, 32, 8, 128, 12288, 151936),
    "qwen3-32b": Config(5120, 64, 64, 8, 128, 25600, 151936),
}


class Attention(nn.Module):
    """Causal self-attention. Weights of a KV head and of its queries lie together, so that a shard has whole groups."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.queries, self.head_dim = c.heads // c.kv_heads, c.head_dim
        self.qkv = nn.Linear(c.hidden, (c.heads + 2 * c.kv_heads) * c.head_dim, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(c.head_dim, c.eps), nn.RMSNorm(c.head_dim, c.eps)
        self.out = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)

    def heads(self, qkv: torch.Tensor, rope: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, [batch, sequence, heads of this PE, head_dim]."""
        qkv = qkv.unflatten(-1, (-1, self.queries + 2, self.head_dim))
        q, k, v = qkv.split([self.queries, 1, 1], dim=3)  # [batch, sequence, KV heads, …, head_dim]
        q, k, v = self.q_norm(q.flatten(2, 3)), self.k_norm(k.squeeze(3)), v.squeeze(3)
        return rotated(q, *rope), rotated(k, *rope), v

    def forward(self, x: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor | None) -> torch.Tensor:
        if position is not None:
            return self.out(self.decode(self.qkv(x), rope, cache, position))
        return self.out(self.prefill(self.qkv(x), rope, cache))

    def prefill(self, qkv: torch.Tensor, rope: Any, cache: Any) -> torch.Tensor:
        """Causal attention of a sequence to itself."""
        q, k, v = self.heads(qkv, rope)
        if cache is not None:
            for kept, new in zip(cache, (k, v), strict=True):
                kept[:, : new.shape[1]] = new
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return y.transpose(1, 2).flatten(2)

    def decode(self, qkv: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor) -> torch.Tensor:
        """Attention of one new token, [batch, 1, …], to itself and to those before it."""
        keys, values = cache
        q = self.rotate_and_keep(qkv, rope, cache, position)
        visible = torch.arange(keys.shape[1], device=q.device) <= position
        q = q.unflatten(1, (-1, self.queries))  # the queries of a group are as rows to attention
        y = scaled_dot_product_attention(q, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=visible[None])
        return y.flatten(1)[:, None]

    def rotate_and_keep(self, qkv: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor) -> torch.Tensor:
        """Queries of one new token, [batch, heads, head_dim]; its keys and values go to the cache."""
        weights = local(self.q_norm.weight), local(self.k_norm.weight)
        return torch.ops.qwen3.rotate_and_keep(qkv.flatten(0, 1), *weights, *rope, *cache, position, self.q_norm.eps)


@triton.jit
def _normed_and_rotated(x, weight, cos, sin, eps, D: tl.constexpr):
    half = tl.arange(0, D // 2)
    a, b = tl.load(x + half).to(tl.float32), tl.load(x + D // 2 + half).to(tl.float32)
    factor = tl.rsqrt((tl.sum(a * a) + tl.sum(b * b)) / D + eps)
    dtype = x.dtype.element_ty  # a norm rounds its result
    a = (a * factor * tl.load(weight + half).to(tl.float32)).to(dtype).to(tl.float32)
    b = (b * factor * tl.load(weight + D // 2 + half).to(tl.float32)).to(dtype).to(tl.float32)
    cos, sin = tl.load(cos + half), tl.load(sin + half)
    return a * cos - b * sin, b * cos + a * sin


@triton.jit
def _rotate_and_keep(
    qkv, q_weight, k_weight, cos, sin, keys, values, position, out, step, eps, QUERIES: tl.constexpr, D: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """A program has one head of one sequence: a query, the key or the value of a group."""
    wait_for_previous(DEPENDENT)
    request, group, head = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    half = tl.arange(0, D // 2)
    x = qkv + (request * tl.num_programs(1) + group) * (QUERIES + 2) * D + head * D
    kept = request * step + (tl.load(position) * tl.num_programs(1) + group) * D
    if head == QUERIES + 1:
        whole = tl.arange(0, D)
        tl.store(values + kept + whole, tl.load(x + whole))
    elif head == QUERIES:
        a, b = _normed_and_rotated(x, k_weight, cos, sin, eps, D)
        tl.store(keys + kept + half, a.to(keys.dtype.element_ty))
        tl.store(keys + kept + D // 2 + half, b.to(keys.dtype.element_ty))
    else:
        a, b = _normed_and_rotated(x, q_weight, cos, sin, eps, D)
        out += ((request * tl.num_programs(1) + group) * QUERIES + head) * D
        tl.store(out + half, a.to(out.dtype.element_ty))
        tl.store(out + D // 2 + half, b.to(out.dtype.element_ty))


@torch.library.custom_op("qwen3::rotate_and_keep", mutates_args=("keys", "values"))
def rotate_and_keep(
    qkv: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
    keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor, eps: float,
) -> torch.Tensor:  # fmt: skip
    """What decoding does between GEMM and attention, in one kernel: q's and k's norms and RoPE, and the cache."""
    (batch, _, groups, dim), columns = keys.shape, qkv.shape[1]
    heads, overlaps = columns // (groups * dim), dependent()
    out = qkv.new_empty(batch, groups * (heads - 2), dim)
    _rotate_and_keep[batch, groups, heads](
        qkv.contiguous(), q_weight, k_weight, cos, sin, keys, values, position, out, keys.stride(0), eps,
        QUERIES=heads - 2, D=dim, DEPENDENT=overlaps, num_warps=1, **launch_options(dependent=overlaps),
    )  # fmt: skip
    return out


@rotate_and_keep.register_fake
def _(
    qkv: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor,
    keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor, eps: float,
) -> torch.Tensor:  # fmt: skip
    return qkv.new_empty(keys.shape[0], qkv.shape[1] // keys.shape[3] - 2 * keys.shape[2], keys.shape[3])


class MLP(nn.Module):
    """SwiGLU: down(silu(gate) * up), with gate and up in one GEMM."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.block = c.block
        self.gate_up = nn.Linear(c.hidden, 2 * c.intermediate, bias=False)
        self.down = nn.Linear(c.intermediate, c.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).unflatten(-1, (-1, 2, self.block)).unbind(-2)
        return self.down((silu(gate) * up).flatten(-2))


class Layer(nn.Module):
    def __init__(self, c: Config, **sharing: Any) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(c.hidden, c.eps), nn.RMSNorm(c.hidden, c.eps)
        self.attention, self.mlp = Attention(c), c.mlp(**sharing)

    def forward(self, x: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor | None) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), rope, cache, position)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self, c: Config, **sharing: Any) -> None:
        super().__init__()
        self.config = c
        self.embedding = nn.Embedding(c.vocabulary, c.hidden)
        self.layers = nn.ModuleList(Layer(c, **sharing) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.hidden, c.eps)
        self.head = nn.Linear(c.hidden, c.vocabulary, bias=False)

    def forward(
        self, tokens: torch.Tensor, cache: Cache | None = None, position: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits of this PE's part of the vocabulary: of all tokens, or, with a cache, of the last one.

        Args:
            tokens: [batch, sequence], the same on every PE.
            cache: what this call fills (prefill), or reads and extends (decode).
            position: int64 [1], the place of the token that is decoded; None for tokens from place 0 on.
        """
        positions = torch.arange(tokens.shape[1], device=tokens.device) if position is None else position
        rope = angles(positions, self.config)
        x = self.embedding(tokens)
        for i, layer in enumerate(self.layers):
            x = layer(x, rope, None if cache is None else cache[i], position)
        x = self.norm(x)
        # With a sharded sequence every PE has a last row of its own; the sequence's is the last PE's.
        return self.head(x) if cache is None else self.head(x[:, -1:])[:, -1:]


class FusedPrefill(nn.Module):
    """A prefill of a model that is sharded by ``plan(styles, sequence=True)``, with ``block=1``; for inference.

    The same GEMMs as by the styles, but that one applies SwiGLU to its sums, and two add the residual to theirs.
    """

    def __init__(self, model: Transformer, mesh: DeviceMesh) -> None:
        super().__init__()
        self.model, self.group = alternating(model), mesh.get_group().group_name

    def forward(self, tokens: torch.Tensor, cache: Cache, position: None = None) -> torch.Tensor:
        """As :meth:`Transformer.forward`, of tokens from place 0 on."""
        model = self.model
        rope = angles(torch.arange(tokens.shape[1], device=tokens.device), model.config)
        x = model.embedding(tokens)
        for layer, kept in zip(model.layers, cache, strict=True):
            x = self.layer(layer, x, rope, kept)
        return model.head(model.norm(x)[:, -1:])[:, -1:]

    def layer(self, layer: Any, x: torch.Tensor, rope: Any, cache: Any) -> torch.Tensor:
        """``x``, this PE's part of the sequence, behind a layer."""
        attention, mlp = layer.attention, layer.mlp
        qkv = self.gathered(layer.attention_norm(x), attention.qkv)
        x = self.scattered(attention.prefill(qkv, rope, cache), attention.out, x)
        if not isinstance(mlp, MLP):
            return x + mlp(layer.mlp_norm(x))
        y = self.gathered(layer.mlp_norm(x), mlp.gate_up, activation="swiglu")
        return self.scattered(y, mlp.down, x)

    def gathered(self, x: torch.Tensor, linear: nn.Linear, **options: str) -> torch.Tensor:
        return functional.all_gather_gemm(x, local(linear.weight).t(), 1, self.group, **options)

    def scattered(self, x: torch.Tensor, linear: nn.Linear, residual: torch.Tensor) -> torch.Tensor:
        weight = local(linear.weight).t()
        return functional.gemm_reduce_scatter(x, weight, scatter_dim=1, group=self.group, residual=residual)


class FusedDecode(nn.Module):
    """A step of decode of a model that is sharded by ``plan(styles, sequence=False)``, with ``block=1``; for inference.

    A layer is six kernels: GEMMs normalise their operand and apply SwiGLU themselves (``norm_gemm``), or add the sums
    over PEs and the residual (``gemm_all_reduce``). Attention reads as much of the cache as a sequence is long, and its
    projection follows without another kernel between them (``flash_decode_projection``).
    """

    def __init__(self, model: Transformer, mesh: DeviceMesh) -> None:
        super().__init__()
        self.model, self.group = alternating(model), mesh.get_group().group_name

    def forward(self, tokens: torch.Tensor, cache: Cache, position: torch.Tensor) -> torch.Tensor:
        """As :meth:`Transformer.forward`, of one token."""
        model = self.model
        rope, x = angles(position, model.config), model.embedding(tokens).flatten(0, 1)
        for layer, kept in zip(model.layers, cache, strict=True):
            x = self.layer(layer, x, rope, kept, position)
        return model.head(model.norm(x)[:, None])

    def layer(self, layer: Any, x: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor) -> torch.Tensor:
        """``x`` behind a layer, [batch, hidden]."""
        attention, mlp, lengths = layer.attention, layer.mlp, (position + 1).int().expand(x.shape[0])
        qkv = normed(x, layer.attention_norm, attention.qkv)
        q = attention.rotate_and_keep(qkv[:, None], rope, cache, position)
        w_out = local(attention.out.weight).t()
        x = functional.flash_decode_projection(q, *cache, lengths.contiguous(), w_out, residual=x, group=self.group)
        if not isinstance(mlp, MLP):
            return x + mlp(layer.mlp_norm(x))
        y = normed(x, layer.mlp_norm, mlp.gate_up, activation="swiglu")
        return functional.gemm_all_reduce(y, local(mlp.down.weight).t(), residual=x, group=self.group)


def alternating(model: Transformer) -> Transformer:
    """``model``, if its columns of gate and up lie as the GEMMs' SwiGLU takes them."""
    if model.config.block != 1:
        raise ValueError(f"columns of gate and up must alternate, got a model with block={model.config.block}")
    return model


def normed(x: torch.Tensor, norm: nn.RMSNorm, linear: nn.Linear, **options: str) -> torch.Tensor:
    """``linear`` of the norm of ``x``, this PE's columns."""
    return functional.norm_gemm(x, local(linear.weight).t(), local(norm.weight), eps=norm.eps, **options)


def local(weight: torch.Tensor) -> torch.Tensor:
    """This PE's part."""
    return weight.to_local() if isinstance(weight, DTensor) else weight


def angles(positions: torch.Tensor, c: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of RoPE, float32 [positions, 1, head_dim / 2]."""
    steps = torch.arange(0, c.head_dim, 2, device=positions.device) / c.head_dim
    angle = positions[:, None, None] * c.rope_theta**-steps
    return angle.cos(), angle.sin()


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def plan(config: Config, styles: Any, sequence: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parallel styles of a layer and of what is around the layers, of the module ``styles``."""
    rows = Shard(1) if sequence else Replicate()
    by_columns = styles.ColwiseParallel(input_layouts=rows)
    by_rows = styles.RowwiseParallel(output_layouts=rows)
    # The norms of queries and keys see this PE's heads, so their weights' gradients are partial sums.
    by_heads = styles.SequenceParallel(sequence_dim=2, use_local_output=True)
    layer = {"attention.qkv": by_columns, "attention.out": by_rows} | config.mlp_plan(by_columns, by_rows)
    layer |= {"attention.q_norm": by_heads, "attention.k_norm": by_heads}
    around = {"embedding": styles.RowwiseParallel(input_layouts=Replicate(), output_layouts=rows), "head": by_columns}
    if sequence:
        norm = styles.SequenceParallel(use_local_output=True)
        layer |= {"attention_norm": norm, "mlp_norm": norm}
        around |= {"norm": norm}
    return layer, around


def build(
    config: Config,
    device: Any,
    dtype: torch.dtype,
    mesh: DeviceMesh | None = None,
    styles: Any = None,
    sequence: bool = False,
    max_tokens: int = 1,
) -> Transformer:
    """A model of random weights, which depend on their names only; over ``mesh`` it is sharded by ``plan``.

    Each part is sharded once it is made, so a PE never holds more than one whole part. On the device ``meta`` it has no
    weights.

    Args:
        max_tokens: how many tokens a PE may have in a call, if the model has experts.
    """
    layer: dict[str, Any] = {}
    around: dict[str, Any] = {}
    sharing: dict[str, Any] = {}
    if mesh is not None:
        config.check(mesh.size())
        layer, around = plan(config, styles, sequence)
        sharing = {"group": mesh.get_group(), "sequence": sequence, "max_tokens": max_tokens}
    with torch.device("meta"):
        model = Transformer(config, **sharing)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    rank = 0 if mesh is None else mesh.get_local_rank()
    for name, part in [*model.layers.named_children(), *model.named_children()]:
        if part is model.layers:
            continue
        part.to_empty(device=device)
        for leaf, tensor in [*part.named_parameters(), *part.named_buffers()]:
            draw(tensor, f"{name}.{leaf}", rank)
        if mesh is not None:
            styles_here = layer if name.isdigit() else around.get(name, {})
            parallelize_module(part, mesh, styles_here, src_data_rank=None)
    return model


@torch.no_grad()
def draw(tensor: torch.Tensor, name: str, rank: int) -> None:
    """Fill a weight with random numbers, which depend on its name; of experts with those of this PE's."""
    generator = torch.Generator(tensor.device if tensor.device.type != "meta" else "cpu")
    if tensor.dim() == 3:
        for i, matrix in enumerate(tensor):
            draw(matrix, f"{name}.{rank * len(tensor) + i}", rank)
        return
    generator.manual_seed(zlib.crc32(name.encode()))
    if tensor.dim() == 1:
        tensor.normal_(0.0 if name.endswith("bias") else 1.0, 0.1, generator=generator)
        return
    tensor.normal_(0.0, tensor.shape[1] ** -0.5, generator=generator)


def share_weights(source: Transformer, target: Transformer) -> None:
    """Have ``target`` use the weights of ``source``, which is sharded alike, but for the layouts of norms; of gate and
    up a copy, where their blocks differ."""
    for name, weight in list(source.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        module = target.get_submodule(owner)
        if isinstance(weight, DTensor) and not isinstance(getattr(module, leaf), DTensor):
            weight = nn.Parameter(weight.to_local(), requires_grad=False)
        if leaf == "weight" and name.endswith("gate_up.weight") and source.config.block != target.config.block:
            weight = nn.Parameter(
                regrouped(local(weight), source.config.block, target.config.block), requires_grad=False
            )
        setattr(module, leaf, weight)
    for name, buffer in source.named_buffers():
        owner, _, leaf = name.rpartition(".")
        setattr(target.get_submodule(owner), leaf, buffer)


def regrouped(weight: torch.Tensor, old: int, new: int) -> torch.Tensor:
    """A copy of a weight of gate and up whose rows lie in other blocks."""
    by_part = weight.unflatten(0, (-1, 2, old)).transpose(0, 1).flatten(1, 2)
    return by_part.unflatten(1, (-1, new)).transpose(0, 1).flatten(0, 2)


def empty_cache(model: Transformer, batch: int, length: int, n_pes: int = 1) -> Cache:
    """Room for ``length`` tokens of each sequence in a model that ``n_pes`` PEs share."""
    c, like = model.config, model.head.weight
    shape = batch, length, c.kv_heads // n_pes, c.head_dim
    return [tuple(torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in "kv") for _ in range(c.layers)]


def captured(step: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``step``, a function of tensors, as a CUDA graph, which is recorded at the first call."""
    graph, fixed = torch.cuda.CUDAGraph(), list[torch.Tensor]()

    def replay(*inputs: torch.Tensor) -> torch.Tensor:
        if not fixed:
            fixed.extend(t.clone() for t in inputs)
            step(*fixed)  # operators have to run once before they are captured
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog calls CUDA, too
                fixed.append(step(*fixed))
        for to, new in zip(fixed, inputs, strict=False):
            to.copy_(new)
        graph.replay()
        return fixed[-1].clone()

    return replay
