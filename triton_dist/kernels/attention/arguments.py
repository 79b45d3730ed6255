"""The arguments of a flash decode, checked, and the sizes that its kernel is compiled for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton

import triton_dist
from triton_dist.kernels.arguments import check_on_device
from triton_dist.kernels.device import check_current_device, sms
from triton_dist.kernels.prepared import Prepared

__all__ = [
    "Call",
    "First",
    "Shape",
    "are_passed_on",
    "check",
    "first_arguments",
    "least_radix",
    "most_programs",
    "shape_for",
    "signature_of",
]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_LOG2_E = 1.4426950408889634
_MERGED = 16384  # elements at a time: 64 registers of each of 256 threads, or 128 of 128


@dataclass(frozen=True)
class Shape:
    """How a task is computed.

    Attributes:
        rows: query heads of a task, some of which may not exist; ``tiles`` tasks have all that share a KV head.
        block_n: keys of a block.
        pes: the next power of two of their number.
        together, columns: heads, and elements of each, whose partial results of all PEs are combined at a time.
        radix, ways: parts of a task that one program merges, and at a time.
        warps, stages: of a program, and of its software pipeline.
        per_sm: how many programs a multiprocessor has.
    """

    rows: int
    tiles: int
    block_n: int
    pes: int
    together: int
    columns: int
    radix: int
    ways: int
    warps: int
    stages: int
    per_sm: int


def shape_for(
    heads: int, main: int, rest: int, head_dim_v: int, itemsize: int, size: int, *, split: bool, gpu: bool
) -> Shape:
    """The shape for ``heads`` query heads that share a KV head; keys have ``main`` + ``rest`` elements.

    Args:
        itemsize: bytes of an element of the caches.
        size: the number of PEs.
        split: whether there are fewer sequences (requests times KV heads) than programs.
    """
    rows = max(16, min(32 if head_dim_v > 256 else 64, int(triton.next_power_of_2(heads))))
    pes = int(triton.next_power_of_2(size))
    words = 4096 if gpu else 512  # the CPU world takes loads of more than 4 KiB for data, not for what a program polls
    columns = max(1, min(head_dim_v, words // pes))
    together = max(1, min(rows, words // (pes * columns)))
    # Two programs on each multiprocessor: one computes, or begins another sequence, while the other waits for its keys.
    # Where 16 heads leave little to compute and sequences are split, one with twice the keys in a block: half as many
    # programs leave half as many parts to merge.
    light = main == head_dim_v == 128 and not rest and rows == 16
    split = split and light
    per_sm = 1 if split or main > 128 or not gpu else 2
    block_n = (128 if split else 64 if main == 256 else max(32, 8192 // main)) if gpu else 16
    block_bytes = block_n * (main + rest + (0 if rest else head_dim_v)) * itemsize
    buffers = ((144 << 10) if per_sm == 1 else (64 << 10) if light else (96 << 10)) // block_bytes
    stages = max(1, min(4, buffers)) + 1 if gpu else 1  # Triton's pipeline has one buffer less
    warps = 8 if main == 256 or rows * head_dim_v > 16 * 256 else 4
    radix = 32 if light and gpu else least_radix(on_gpu=gpu)
    ways = max(1, min(radix, _MERGED // (rows * head_dim_v)))
    return Shape(rows, triton.cdiv(heads, rows), block_n, pes, together, columns, radix, ways, warps, stages, per_sm)


@dataclass(frozen=True)
class Call:
    """A checked call. ``k`` and ``v`` are pages if there is a ``table``; values lie in keys if ``v`` is None."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor | None
    lengths: torch.Tensor
    table: torch.Tensor | None
    head_dim_v: int
    main: int
    """The larger power of two of the head size, which is that and ``rest``."""
    scale: float
    """Times log2(e)."""
    window: int
    """0 for none."""
    interleave: int
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None
    scatter: bool

    @property
    def kv_heads(self) -> int:
        return self.k.shape[2]

    @property
    def page(self) -> int:
        """Keys of a page, if there are pages and that is a power of two."""
        size = self.k.shape[1]
        return size if self.table is not None and size & (size - 1) == 0 else 0

    @property
    def rest(self) -> int:
        return self.k.shape[3] - self.main

    @property
    def capacity(self) -> int:
        """Keys of a request that fit on this PE."""
        return self.k.shape[1] * (1 if self.table is None else self.table.shape[1])

    @property
    def scale_steps(self) -> tuple[int, int]:
        """From one KV head's scale to the next."""
        first, second = (int(s is not None and s.numel() > 1) for s in (self.k_scale, self.v_scale))
        return first, second

    def shape(self, size: int) -> Shape:
        heads = self.q.shape[1] // self.kv_heads
        split = self.q.shape[0] * self.kv_heads < most_programs()
        on_gpu = triton_dist.kind() == "gpu"
        return shape_for(
            heads, self.main, self.rest, self.head_dim_v, self.k.element_size(), size, split=split, gpu=on_gpu
        )


class First(NamedTuple):
    """The kernel's first arguments: the tensors of a call, of which ``out``, ``lse`` and ``parts`` are new."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    """``k`` where values lie in keys."""
    lengths: torch.Tensor
    table: torch.Tensor
    """``lengths`` where there are no pages."""
    out: torch.Tensor
    lse: torch.Tensor | None
    parts: torch.Tensor
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None

    @staticmethod
    def of_call(*tensors: Any) -> Sequence[Any]:
        """Those of a call, which may have other tensors behind them."""
        return tensors[:_FIRST]

    @staticmethod
    def of_requests(part: slice, paged: bool, *tensors: Any) -> Sequence[Any]:
        """Those of a call, for some of its requests."""
        q, k, v, lengths, table, out, lse, *others = tensors[:_FIRST]
        of_part = lengths[part]
        return (
            q[part], k if paged else k[part], v if paged else v[part], of_part, table[part] if paged else of_part,
            out[part], None if lse is None else lse[part], *others,
        )  # fmt: skip


_FIRST = len(First._fields)


def first_arguments(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None,
    lengths: torch.Tensor,
    table: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    parts: torch.Tensor,
    k_scale: torch.Tensor | float | None,
    v_scale: torch.Tensor | float | None,
) -> First:
    """The tensors of a call that is checked."""
    return First(
        q, k, k if v is None else v, lengths, lengths if table is None else table, out, lse, parts,
        _as_tensor(k_scale, k.device), _as_tensor(v_scale, k.device),
    )  # fmt: skip


_CONSTANTS = frozenset({type(None), bool, int, float, str})


def signature_of(
    prepared: Prepared,
    options: tuple[Any, ...],
    scales: tuple[torch.Tensor | float | None, torch.Tensor | float | None],
    *tensors: torch.Tensor | None,
) -> Hashable | None:
    """The signature of a call with these ``options``, the function's name and all that is neither tensor nor scale.

    A number as a scale is not a part of it: each call makes a tensor of it. None also if an option is no constant.
    """
    if not _CONSTANTS.issuperset(map(type, options)):
        return None
    numbers = type(scales[0]) in (int, float), type(scales[1]) in (int, float)
    given: list[Any] = [None if number else scale for number, scale in zip(numbers, scales, strict=True)]
    return prepared.signature((*options, numbers), *tensors, *given)


def are_passed_on(*scales: torch.Tensor | float | None) -> bool:
    """Whether a launch gets the scales of a checked call themselves, and no contiguous copy."""
    return all(not isinstance(scale, torch.Tensor) or scale.is_contiguous() for scale in scales)


def most_programs() -> int:
    """The most programs that share the work of a call, whatever the size of its heads."""
    return sms() if triton_dist.kind() == "cpu" else 2 * sms()


def least_radix(*, on_gpu: bool) -> int:
    """The fewest neighbouring parts of a task that one program merges, whatever the size of its heads."""
    return 8 if on_gpu else 2


def check(
    function: str,
    n_pes: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor | None,
    lengths: torch.Tensor,
    table: torch.Tensor | None,
    head_dim_v: int | None,
    scale: float | None,
    window: int | None,
    interleave: int | None,
    k_scale: torch.Tensor | float | None,
    v_scale: torch.Tensor | float | None,
    scatter: bool,
) -> Call:
    """The call with these arguments of :func:`flash_decode`.

    Args:
        function: the name of the public function, for messages.
        n_pes: how many PEs share the heads, if those are scattered.

    Raises:
        TypeError, ValueError: an argument is not as described there.
    """
    check_current_device(function)
    _tensor(function, "q", q, 3, "[B, HQ, D]", _DTYPES)
    cache = "[B, S, HKV, D]" if table is None else "[P, page_size, HKV, D]"
    _tensor(function, "k_cache", k, 4, cache, (q.dtype, *_FP8))
    requests, query_heads, dim = q.shape
    kv_heads = k.shape[2]
    if k.shape[3] != dim:
        raise ValueError(f"{function}: q has heads of {dim} elements, and k_cache of {k.shape[3]}")
    if not query_heads or not kv_heads or query_heads % kv_heads:
        raise ValueError(
            f"{function}: the {query_heads} heads of q must be a multiple of the {kv_heads} of k_cache, and not none"
        )
    if scatter and query_heads % n_pes:
        raise ValueError(f"{function}: scatter_heads: {query_heads} heads cannot be shared equally by {n_pes} PEs")
    main = 1 << (dim.bit_length() - 1) if dim else 0
    if not 16 <= main <= 512 or dim - main not in (0, 16, 32, 64, 128, 256):
        raise ValueError(
            f"{function}: heads must have 16, 32, 64, 128, 256 or 512 elements, or the sum of two different ones of"
            f" these, got {dim}"
        )
    for name, value in (("head_dim_v", head_dim_v), ("window", window), ("interleave", interleave)):
        if value is not None and type(value) is not int:
            raise TypeError(f"{function}: {name} must be an int, got {value!r} of type {type(value).__name__}")
    if v is None:
        if head_dim_v != main:
            raise ValueError(
                f"{function}: without v_cache, head_dim_v must be {main} for heads of {dim}, got {head_dim_v}"
            )
    else:
        _tensor(function, "v_cache", v, 4, cache.replace("D", "DV"), (k.dtype,))
        if v.shape[:3] != k.shape[:3]:
            raise ValueError(
                f"{function}: v_cache has shape {tuple(v.shape)}, and k_cache {tuple(k.shape)}: all but the last"
                " dimension must agree"
            )
        if head_dim_v not in (None, v.shape[3]):
            raise ValueError(f"{function}: head_dim_v is {head_dim_v}, and v_cache has {v.shape[3]} elements a head")
        head_dim_v = v.shape[3]
        if head_dim_v not in (16, 32, 64, 128, 256, 512):
            raise ValueError(f"{function}: values must have 16, 32, 64, 128, 256 or 512 elements, got {head_dim_v}")
    _tensor(function, "lengths", lengths, 1, "[B]", (torch.int32,))
    if table is None:
        if k.shape[0] != requests:
            raise ValueError(f"{function}: q has {requests} requests, and k_cache {k.shape[0]}")
    else:
        _tensor(function, "block_table", table, 2, "[B, pages of a request]", (torch.int32,))
        if table.shape[0] != requests:
            raise ValueError(f"{function}: q has {requests} requests, and block_table {table.shape[0]}")
    if lengths.shape[0] != requests:
        raise ValueError(f"{function}: q has {requests} requests, and lengths {lengths.shape[0]}")
    capacity = k.shape[1] * (1 if table is None else table.shape[1])
    if capacity >= 1 << 30:
        raise ValueError(f"{function}: a request's part of a cache may have up to {(1 << 30) - 1} keys, got {capacity}")
    for name, value in (("window", window), ("interleave", interleave)):
        if value is not None and not 0 < value < 1 << 31:
            raise ValueError(f"{function}: {name} must be in [1, {1 << 31}), got {value!r}")
    if scale is not None and not isinstance(scale, (int, float)):
        raise TypeError(f"{function}: scale must be a number, got {type(scale).__name__}")
    if scale is not None and not abs(scale) <= torch.finfo(torch.float32).max / _LOG2_E:  # of ints of any size, too
        raise ValueError(f"{function}: scale must be finite, also times log2(e) in torch.float32, got {scale!r}")
    return Call(
        q, k, v, lengths, table, head_dim_v, main, (dim**-0.5 if scale is None else float(scale)) * _LOG2_E,
        window or 0, interleave or max(1, capacity), _scale(function, "k_scale", k_scale, k),
        _scale(function, "v_scale", v_scale, k), bool(scatter),
    )  # fmt: skip


def _tensor(
    function: str, name: str, tensor: torch.Tensor, dims: int, shape: str, dtypes: tuple[torch.dtype, ...]
) -> None:
    check_on_device(function, **{name: tensor})
    if tensor.dim() != dims:
        raise ValueError(f"{function}: {name} must have shape {shape}, got {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        raise ValueError(f"{function}: {name} must be of {' or '.join(map(str, dtypes))}, got {tensor.dtype}")
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{function}: {name} must have a contiguous last dimension, got strides {tensor.stride()}")


def _scale(function: str, name: str, scale: torch.Tensor | float | None, cache: torch.Tensor) -> torch.Tensor | None:
    """Scales of a cache of fp8, as a tensor."""
    if scale is None:
        return None
    if cache.dtype not in _FP8:
        raise ValueError(f"{function}: {name} is for caches of fp8, got {cache.dtype}")
    if isinstance(scale, (int, float)):
        return _as_tensor(scale, cache.device)
    if not isinstance(scale, torch.Tensor):
        raise TypeError(f"{function}: {name} must be a torch.Tensor or a float, got {type(scale).__name__}")
    if scale.dtype != torch.float32 or scale.device != cache.device or scale.numel() not in (1, cache.shape[2]):
        raise ValueError(
            f"{function}: {name} must be float32 on {cache.device}, one element or one for each of {cache.shape[2]}"
            f" KV heads, got shape {tuple(scale.shape)} and {scale.dtype} on {scale.device}"
        )
    return scale.reshape(-1).contiguous()


def _as_tensor(scale: torch.Tensor | float | None, device: torch.device) -> torch.Tensor | None:
    if scale is None or isinstance(scale, torch.Tensor):
        return scale
    return torch.full((1,), scale, dtype=torch.float32, device=device)
