"""A decoder of Qwen3's shape as 05_transformer.py and benchmarks/model.py use it: the model, and how it is sharded.

The model is plain PyTorch: GQA with normed queries and keys, RMSNorm, RoPE, SwiGLU. It counts no PEs: a layer takes the
heads and the columns that its weights have. `plan` says how weights and activations are sharded, in PyTorch's parallel
styles, by triton_dist.tensor_parallel or by torch.distributed.tensor.parallel itself.

- With sequence parallelism (prefill, training) activations between GEMMs are sharded by rows of the sequence: every
  layer is all_gather_gemm, attention, gemm_reduce_scatter, all_gather_gemm, SwiGLU, gemm_reduce_scatter.
- Without it (decode: too few rows to share) they are replicated: gemm_all_reduce after attention and after the MLP.
- `FusedDecode` is the second again: attention goes on to its output projection, whose all-reduce is fused with the GEMM
  and adds the residual; behind the MLP the all-reduce is one kernel with the residual and the norm that follow.

All shard weights alike, so one set of weights serves them (`share_weights`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.functional import scaled_dot_product_attention, silu

from triton_dist.kernels import functional

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
        for what, size in (shared | {"vocabulary": self.vocabulary}).items():
            if size % n_pes:
                raise ValueError(f"{what} of the model is {size}, which {n_pes} PEs cannot share equally")


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

    def heads(self, x: torch.Tensor, rope: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, [batch, sequence, heads of this PE, head_dim]."""
        qkv = self.qkv(x).unflatten(-1, (-1, self.queries + 2, self.head_dim))
        q, k, v = qkv.split([self.queries, 1, 1], dim=3)  # [batch, sequence, KV heads, …, head_dim]
        q, k, v = self.q_norm(q.flatten(2, 3)), self.k_norm(k.squeeze(3)), v.squeeze(3)
        return rotated(q, *rope), rotated(k, *rope), v

    def forward(self, x: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor | None) -> torch.Tensor:
        q, k, v = self.heads(x, rope)
        if position is not None:
            return self.out(self.decode(q, k, v, *cache, position))
        if cache is not None:
            for kept, new in zip(cache, (k, v), strict=True):
                kept[:, : new.shape[1]] = new
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def decode(self, q: Any, k: Any, v: Any, keys: Any, values: Any, position: torch.Tensor) -> torch.Tensor:
        """Attention of one new token to itself and to those before it."""
        keys.index_copy_(1, position, k)
        values.index_copy_(1, position, v)
        visible = torch.arange(keys.shape[1], device=q.device) <= position
        q = q.squeeze(1).unflatten(1, (-1, self.queries))  # the queries of a group are as rows to attention
        y = scaled_dot_product_attention(q, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=visible[None])
        return y.flatten(1)[:, None]


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
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(c.hidden, c.eps), nn.RMSNorm(c.hidden, c.eps)
        self.attention, self.mlp = Attention(c), MLP(c)

    def forward(self, x: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor | None) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), rope, cache, position)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.embedding = nn.Embedding(c.vocabulary, c.hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
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


class FusedDecode(nn.Module):
    """A step of decode of a model that is sharded by ``plan(styles, sequence=False, summed=False)``.

    The embedding and the MLP leave each PE a partial sum. ``all_reduce_norm`` adds the sums and the residual and
    normalises for what follows: one kernel, which sends the residual's bytes only. Attention reads as much of the cache
    as a sequence is long, and its projection's sum and residual are one kernel: ``flash_decode_projection``. For
    inference.
    """

    def __init__(self, model: Transformer, mesh: DeviceMesh) -> None:
        super().__init__()
        self.model, self.group = model, mesh.get_group().group_name

    def forward(self, tokens: torch.Tensor, cache: Cache, position: torch.Tensor) -> torch.Tensor:
        """As :meth:`Transformer.forward`, of one token."""
        model = self.model
        rope = angles(position, model.config)
        y, x = self.add_norm(model.embedding(tokens), None, model.layers[0].attention_norm)
        for i in range(len(model.layers)):
            y, x = self.layer(i, y, x, rope, cache[i], position)
        return model.head(y)

    def layer(
        self, i: int, y: torch.Tensor, x: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next layer's ``y`` and ``x``: ``x`` is the residual, [batch, hidden], and ``y`` its norm for layer ``i``,
        [batch, 1, hidden]."""
        layers, layer = self.model.layers, self.model.layers[i]
        x = self.attend(layer.attention, y, x, rope, cache, position)
        y = layer.mlp_norm(x)[:, None]
        after = layers[i + 1].attention_norm if i + 1 < len(layers) else self.model.norm
        return self.add_norm(layer.mlp(y), x, after)

    def attend(
        self, attention: Any, y: torch.Tensor, x: torch.Tensor, rope: Any, cache: Any, position: torch.Tensor
    ) -> torch.Tensor:
        """``x`` + the projected attention of ``y``, [batch, 1, hidden], to itself and to the tokens before it."""
        q, k, v = attention.heads(y, rope)
        for kept, new in zip(cache, (k, v), strict=True):
            kept.index_copy_(1, position, new)
        weight = attention.out.weight
        weight = weight.to_local() if isinstance(weight, DTensor) else weight
        lengths = (position + 1).int().repeat(q.shape[0])
        return functional.flash_decode_projection(
            q.squeeze(1), *cache, lengths, weight.t(), residual=x, group=self.group
        )

    def add_norm(self, part: torch.Tensor, x: Any, norm: nn.RMSNorm) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of ``x`` + the sum over PEs of ``part``, [batch, 1, hidden], and that sum, [batch, hidden]."""
        done = functional.all_reduce_norm(part.flatten(0, 1), norm.weight, x, eps=norm.eps, group=self.group)
        return done.output.unflatten(0, part.shape[:2]), done.residual


def angles(positions: torch.Tensor, c: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of RoPE, float32 [positions, 1, head_dim / 2]."""
    steps = torch.arange(0, c.head_dim, 2, device=positions.device) / c.head_dim
    angle = positions[:, None, None] * c.rope_theta**-steps
    return angle.cos(), angle.sin()


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def plan(styles: Any, sequence: bool, summed: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parallel styles of a layer and of what is around the layers, of the module ``styles``.

    Without ``summed``, what would be an all-reduce is left out, for :class:`FusedDecode`.
    """
    rows = Shard(1) if sequence else Replicate()
    sums = rows if summed else Partial()
    by_columns = styles.ColwiseParallel(input_layouts=rows)
    by_rows = styles.RowwiseParallel(output_layouts=sums)
    # The norms of queries and keys see this PE's heads, so their weights' gradients are partial sums.
    by_heads = styles.SequenceParallel(sequence_dim=2, use_local_output=True)
    layer = {"attention.qkv": by_columns, "attention.out": by_rows, "mlp.gate_up": by_columns, "mlp.down": by_rows}
    layer |= {"attention.q_norm": by_heads, "attention.k_norm": by_heads}
    around = {"embedding": styles.RowwiseParallel(input_layouts=Replicate(), output_layouts=sums), "head": by_columns}
    if sequence:
        norm = styles.SequenceParallel(use_local_output=True)
        layer |= {"attention_norm": norm, "mlp_norm": norm}
        around |= {"norm": norm}
    return layer, around


def build(
    config: Config, device: Any, dtype: torch.dtype, mesh: DeviceMesh | None = None, styles: Any = None, **options: bool
) -> Transformer:
    """A model of random weights, which depend on their names only; over ``mesh`` it is sharded by ``plan(styles)``.

    Each part is sharded once it is made, so a PE never holds more than one whole part. On the device ``meta`` it has no
    weights.
    """
    with torch.device("meta"):
        model = Transformer(config).to(dtype)
    layer, around = plan(styles, **options) if mesh is not None else ({}, {})
    if mesh is not None:
        config.check(mesh.size())
    for name, part in [*model.layers.named_children(), *model.named_children()]:
        if part is model.layers:
            continue
        part.to_empty(device=device)
        for leaf, weight in part.named_parameters():
            generator = torch.Generator(device if device != "meta" else "cpu")
            generator.manual_seed(zlib.crc32(f"{name}.{leaf}".encode()))
            with torch.no_grad():
                norm = weight.dim() == 1
                weight.normal_(1.0 if norm else 0.0, 0.1 if norm else weight.shape[1] ** -0.5, generator=generator)
        if mesh is not None:
            styles_here = layer if name.isdigit() else around.get(name, {})
            parallelize_module(part, mesh, styles_here, src_data_rank=None)
    return model


def share_weights(source: Transformer, target: Transformer) -> None:
    """Have ``target`` use the weights of ``source``, which is sharded alike, but for the layouts of norms."""
    for name, weight in list(source.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        module = target.get_submodule(owner)
        if isinstance(weight, DTensor) and not isinstance(getattr(module, leaf), DTensor):
            weight = nn.Parameter(weight.to_local(), requires_grad=False)
        setattr(module, leaf, weight)


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
