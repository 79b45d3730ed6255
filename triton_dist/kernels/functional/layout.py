"""How operators see tensors: matrices of contiguous rows in, results of any layout's meaning out, and workspace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod

import torch

from triton_dist.kernels.arguments import in_words
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.options import check_int
from triton_dist.kernels.protocols.workspace import Workspace, rounded, symmetric_buffer
from triton_dist.kernels.shards import each_of, shard_of

__all__ = [
    "along",
    "by_rows",
    "by_rows_or_columns",
    "check_dim",
    "check_operand_shapes",
    "check_own_share",
    "check_rows_of_all",
    "check_share",
    "contiguous",
    "dim_of",
    "empty_along",
    "flat_rows",
    "rows_first",
    "workspace",
]


def check_dim(function: str, name: str, dim: int, dims: int) -> None:
    """``dim`` is one of the first ``dims`` dimensions."""
    if dims == 0:
        raise ValueError(f"{function}: no dimension of the tensor can be {name}: give it one, as by unsqueeze(0)")
    if not 0 <= dim < dims:
        raise ValueError(f"{function}: {name} must be in [0, {dims}), got {dim}")


def dim_of(function: str, name: str, dim: int, tensor: torch.Tensor) -> int:
    """``dim`` of ``tensor``, counted from the front."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function}: the first argument must be a torch.Tensor, got {type(tensor).__name__}")
    check_int(function, name, dim)
    dims = max(tensor.dim(), 1)
    if not -dims <= dim < dims:
        raise ValueError(f"{function}: {name} must be in [{-dims}, {dims}), got {dim}")
    return dim % dims


def check_operand_shapes(function: str, a: torch.Tensor, b: torch.Tensor) -> None:
    """The rows of ``a``, which may have more than two dimensions, can be multiplied by ``b``."""
    if a.dim() < 2 or b.dim() != 2 or a.shape[-1] != b.shape[0]:
        raise ValueError(
            f"{function}: a must have two dimensions or more, and b two, the first as long as a's last, got shapes"
            f" {tuple(a.shape)} and {tuple(b.shape)}"
        )


def check_rows_of_all(function: str, rows: int | None) -> None:
    """``rows``, if they are given, are a size."""
    if rows is not None:
        check_int(function, "rows", rows)
        if rows < 0:
            raise ValueError(f"{function}: rows must be 0 or more, got {rows}")


def check_share(function: str, what: str, size: int, parts: int) -> None:
    """``size`` can be shared equally by ``parts`` PEs."""
    if size % parts:
        whole = -(-size // parts) * parts
        raise ValueError(f"{function}: {what} is {size}, which {parts} PEs cannot share equally: pad it to {whole}")


def check_own_share(communicator: Communicator, function: str, what: str, size: int, rows: int) -> int:
    """``rows`` are those of this PE, where the members share ``size``. Returns how many the first one has."""
    each = each_of(size, communicator.n_pes)
    mine = len(shard_of(size, each, communicator.my_rank))
    if rows != mine:
        raise ValueError(
            f"{function}: {what} is {size}, of which PE {communicator.my_rank} of {communicator.n_pes} has {mine}, got"
            f" {rows}"
        )
    return each


def rows_first(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """A contiguous tensor with dimension ``dim`` of ``tensor`` in front, where kernels may load words."""
    return in_words(tensor.movedim(dim, 0).contiguous())


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or a copy, with the strides of a contiguous tensor.

    PyTorch calls a tensor without elements contiguous whatever its strides are: the gradient of a sum has zeros.
    """
    return tensor.contiguous() if tensor.numel() else tensor.new_empty(tensor.shape)


def by_rows(matrix: torch.Tensor) -> torch.Tensor:
    """``matrix``, or a copy, with contiguous rows that do not overlap (those of an expanded gradient do)."""
    if matrix.stride(1) == 1 and matrix.stride(0) >= matrix.shape[1]:
        return matrix
    return matrix.clone(memory_format=torch.contiguous_format)


def by_rows_or_columns(matrix: torch.Tensor) -> torch.Tensor:
    """``matrix``, or a copy, with contiguous rows or columns that do not overlap."""
    if matrix.stride(0) == 1 and matrix.stride(1) >= matrix.shape[0]:
        return matrix
    return by_rows(matrix)


def flat_rows(tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """The rows of ``tensor`` as a matrix, ``dim`` running slowest."""
    return by_rows(tensor.movedim(dim, 0).flatten(0, -2))  # also with K = 0, which the kernels refuse


def along(communicator: Communicator, name: str, dim: int) -> AbstractContextManager[None]:
    """Members compare the dimension that the calls inside are along: kernels see it moved to the front. The first one
    is not mentioned, as it is nearly always that."""
    return communicator.describing(f"{name} {dim}") if dim else nullcontext()


def empty_along(
    tensor: torch.Tensor, dim: int, size: int, last: int | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A tensor of ``tensor``'s shape but for ``size`` in dimension ``dim`` and, if it is given, ``last`` in the last.

    In memory dimension ``dim`` comes first: kernels work on rows, so this is how results lie that they return. It is no
    view, which autograd would not let callers change in place.
    """
    shape = [*tensor.shape]
    shape[dim] = size
    if last is not None:
        shape[-1] = last
    if dim == 0:
        return tensor.new_empty(shape, dtype=dtype)
    strides, step = [0] * len(shape), 1
    for i in (*(i for i in reversed(range(len(shape))) if i != dim), dim):
        strides[i] = step
        step = step * torch.sym_max(shape[i], 1)
    return tensor.new_empty_strided(shape, strides, dtype=dtype)


def workspace(communicator: Communicator, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Symmetric memory of a communicator for a result of operator ``name`` that peers store to. *Collective* when it
    has to grow.

    The next operator overwrites it, and begins with a barrier: what follows on the stream in between may read it.

    Raises:
        RuntimeError: it has to grow, and members make other calls.
    """
    nbytes, buffer = prod(shape) * dtype.itemsize, f"functional: {name}"
    if communicator.own(Workspace).find(buffer, rounded(nbytes)) is None:
        communicator.compare(name, f"result {tuple(shape)}", dtype)  # else the allocation fails, and names no call
    return symmetric_buffer(communicator, buffer, nbytes).view(dtype).view(shape)
