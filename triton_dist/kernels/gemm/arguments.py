"""Checks of the matrices of a GEMM."""

from __future__ import annotations

import torch
import triton.language as tl

from triton_dist.kernels.arguments import check_contiguous, check_on_device
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import LAZY, gpu, is_lazy
from triton_dist.kernels.gemm.epilogue import ACTIVATIONS, Epilogue, fold_of
from triton_dist.kernels.gemm.fp8 import FP8, check_capability
from triton_dist.kernels.protocols.workspace import why_not_symmetric
from triton_dist.kernels.shards import each_of, gathered_rows
from triton_dist.world.current import current_world

__all__ = [
    "check_activation",
    "check_choice",
    "check_epilogue",
    "check_operands",
    "check_rows",
    "result",
    "result_dtype",
]

RESULTS = (torch.bfloat16, torch.float16, torch.float32)
DTYPES = (*RESULTS, *FP8)


def check_operands(function: str, names: tuple[str, str], a: torch.Tensor, b: torch.Tensor) -> None:
    """Two matrices on this PE's device that can be multiplied, with contiguous rows; of ``b``, columns may be, too."""
    device = current_world().device
    for name, matrix in zip(names, (a, b), strict=True):
        check_on_device(function, **{name: matrix})
        if matrix.dim() != 2:
            raise ValueError(f"{function}: {name} must be a matrix, got shape {tuple(matrix.shape)}")
        if matrix.dtype not in DTYPES:
            raise ValueError(f"{function}: operands are of {', '.join(map(str, DTYPES))}, got {name} of {matrix.dtype}")
        if matrix.numel() == 0 and (matrix is b or matrix.shape[1] == 0):  # ``a`` may have no rows
            raise ValueError(f"{function}: {name} has no elements: its shape is {tuple(matrix.shape)}")
    if a.dtype in FP8 and device.type == "cuda":
        check_capability(function, a.dtype, gpu().name, gpu().capability)
    if a.dtype != b.dtype and not (a.dtype in FP8 and b.dtype in FP8):
        raise ValueError(f"{function}: {names[0]} is of {a.dtype}, and {names[1]} of {b.dtype}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{function}: {names[0]} of shape {tuple(a.shape)} cannot be multiplied by {names[1]} of shape"
            f" {tuple(b.shape)}: {a.shape[1]} columns, and {b.shape[0]} rows"
        )
    if a.stride(1) != 1:
        how = ", as clone(memory_format=torch.contiguous_format) has them" if a.shape[1] == 1 else ""
        raise ValueError(f"{function}: {names[0]} must have contiguous rows{how}, got strides {a.stride()}")
    if 1 not in b.stride():
        raise ValueError(f"{function}: {names[1]} must have contiguous rows or columns, got strides {b.stride()}")


def check_activation(function: str, activation: str | None, columns: int, *, reduces: bool) -> None:
    """An activation, or None, of sums with so many columns, which are sums over PEs if the function ``reduces``."""
    if activation is None:
        return
    check_choice(function, "activation", activation, ACTIVATIONS)
    if activation == "swiglu" and reduces:
        raise ValueError(f"{function}: activation swiglu is not for sums over PEs: use all_gather_gemm in front of it")
    if columns % fold_of(activation):
        raise ValueError(
            f"{function}: activation swiglu makes one column of two, and b has {columns} columns: make it with"
            " triton_dist.kernels.interleave_gate_up"
        )


def check_epilogue(
    function: str,
    b: torch.Tensor,
    c: torch.Tensor,
    activation: str | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    *,
    reduces: bool,
) -> Epilogue:
    """The epilogue of sums a · ``b`` that become ``c``, which are sums over PEs if the function ``reduces``.

    The activation has been checked.
    """
    if residual is not None and not reduces:
        raise ValueError(f"{function}: residual is for sums over PEs: add it in what follows, or use gemm_all_reduce")
    for name, tensor, shape in (("bias", bias, (b.shape[1],)), ("residual", residual, tuple(c.shape))):
        if tensor is None:
            continue
        check_contiguous(function, **{name: tensor})
        if tuple(tensor.shape) != shape or tensor.dtype not in RESULTS:
            raise ValueError(
                f"{function}: {name} must be of shape {shape} and {', '.join(map(str, RESULTS[:-1]))} or {RESULTS[-1]},"
                f" got shape {tuple(tensor.shape)} and {tensor.dtype}"
            )
    return Epilogue(
        None if activation is None else tl.constexpr(activation),
        bias,
        residual,
        None if bias is None and residual is None else b.shape[1],
    )


def check_rows(
    comm: Communicator, function: str, a: torch.Tensor, rows: object, shard: int | None, *, gathers: bool
) -> tuple[int, int, tuple[object, ...]]:
    """The rows of A, those of a whole shard of them, and what of both all members compare.

    Args:
        rows, shard: as they are passed. A PE whose ``a`` is not its shard of so many says so in what is compared, so
            that all members find the error.
        gathers: ``a`` is this PE's shard. Else it has all rows.
    """
    if not gathers:
        own = a.shape[0]
        if rows is not None:
            raise ValueError(f"{function}: rows is for all_gather_gemm: here a has the rows of all PEs")
        return own, shard or each_of(own, comm.n_pes), (a.shape, f"shards of {shard} rows") if shard else (a.shape,)
    return gathered_rows(comm, function, a, rows, shard)


def check_choice(function: str, name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{function}: {name} must be {', '.join(known[:-1])} or {known[-1]}, got {value!r}")


def result_dtype(function: str, out: object, operands: torch.dtype, out_dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a result of ``operands`` that is stored in ``out``, which is not checked, or in a new tensor."""
    possible = RESULTS if operands in FP8 else (operands,)
    if out_dtype is not None and out_dtype not in possible:
        raise ValueError(
            f"{function}: the result of operands of {operands} is of {', '.join(map(str, possible))}, got out_dtype"
            f" {out_dtype}"
        )
    if out_dtype is None and isinstance(out, torch.Tensor) and out.dtype in possible:
        return out.dtype
    return out_dtype or possible[0]


def result(
    comm: Communicator,
    function: str,
    out: torch.Tensor | None,
    shape: tuple[int, int],
    operands: torch.dtype,
    *,
    symmetric: bool,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``out`` if the result can be stored in it; if it is None, a new tensor, of the operands' dtype or, if that is an
    fp8 one, of ``out_dtype``, by default bfloat16."""
    world, dtype = comm.world, result_dtype(function, out, operands, out_dtype)
    if out is None:
        return comm.empty(*shape, dtype=dtype) if symmetric else torch.empty(shape, dtype=dtype, device=world.device)
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"{function}: out must be a torch.Tensor, got {type(out).__name__}")
    if tuple(out.shape) != shape or out.dtype != dtype or out.device != world.device or not out.is_contiguous():
        raise ValueError(
            f"{function}: out must be contiguous, of shape {shape} and {dtype}, on {world.device}; got shape"
            f" {tuple(out.shape)} with strides {out.stride()}, {out.dtype}, on {out.device}"
        )
    if is_lazy(out):
        raise ValueError(f"{function}: out {LAZY}")
    if symmetric and (why := why_not_symmetric(comm, out)):
        raise ValueError(f"{function}: out must be symmetric, and {why}: allocate it with triton_dist.empty")
    return out
