"""Parallel styles of PyTorch's tensor parallelism whose linear layers overlap communication with computation.

    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import parallelize_module
    from triton_dist.tensor_parallel import ColwiseParallel, RowwiseParallel

    parallelize_module(mlp, mesh, {
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    })

The classes take the arguments of PyTorch's, accept and return the same tensors and DTensors, and shard parameters
alike, so checkpoints and optimizers see no difference. Of an ``nn.Linear`` they replace the forward:

- colwise, with an input that is sharded along a dimension of rows (the sequence): all_gather_gemm; its backward is
  gemm_reduce_scatter;
- colwise, with a replicated input that is an ordinary tensor: a GEMM, whose backward is gemm_all_reduce;
- rowwise, with an output that is sharded along a dimension of rows: gemm_reduce_scatter; its backward is
  all_gather_gemm;
- rowwise, with a replicated output: gemm_all_reduce.

Of an ``nn.Embedding`` that is sharded by rows (the vocabulary) the sum over PEs is reduce_scatter or all_reduce.

A dimension of rows may be of any size. If PEs cannot share it equally, they have the shards of ``torch.chunk``, as of
every DTensor, and inputs and outputs that are sharded along it are DTensors: an ordinary tensor does not say how many
rows all PEs have.

All else is left to PyTorch's styles: embeddings by columns, other layouts, and the gradient of a replicated DTensor,
which stays a partial sum until something needs it, as PyTorch has it.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, parallel

from triton_dist.kernels import functional
from triton_dist.kernels.functional import group as groups
from triton_dist.kernels.functional.autocast import as_autocast
from triton_dist.kernels.options import check_bool
from triton_dist.torch_api import shard_embedding, shard_linear
from triton_dist.world.current import current_world

__all__ = ["ColwiseParallel", "RowwiseParallel", "SequenceParallel"]

SequenceParallel = parallel.SequenceParallel
"""PyTorch's own: a norm or a dropout on this PE's part of the sequence does not communicate."""


class ColwiseParallel(parallel.ColwiseParallel):
    """``torch.distributed.tensor.parallel.ColwiseParallel`` with overlap. Arguments and layouts as there.

    Raises:
        TypeError: when applied: a layout is no placement.
        ValueError: when applied: the mesh has several dimensions, or is of another device; the layer's
            ``out_features`` cannot be shared equally.
        NotImplementedError: the module is no ``nn.Linear`` or ``nn.Embedding``, or has a forward of its own.
        RuntimeError: there is no world.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _check_layouts(self, "ColwiseParallel")
        if not isinstance(module, nn.Linear):
            return super()._apply(module, device_mesh)
        _check(module, device_mesh, "ColwiseParallel", "out_features")
        shard_linear(self, module, device_mesh)
        return _overlapping(module, _ColwiseLinear, self, device_mesh)


class RowwiseParallel(parallel.RowwiseParallel):
    """``torch.distributed.tensor.parallel.RowwiseParallel`` with overlap. Arguments and layouts as there.

    Raises: as :class:`ColwiseParallel`, with ``in_features``.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _check_layouts(self, "RowwiseParallel")
        if isinstance(module, nn.Embedding) and _is_plain(module, device_mesh):
            _check_mesh(device_mesh, "RowwiseParallel")
            shard_embedding(self, module, device_mesh)
            return _overlapping(module, _RowwiseEmbedding, self, device_mesh)
        if not isinstance(module, nn.Linear):
            return super()._apply(module, device_mesh)
        _check(module, device_mesh, "RowwiseParallel", "in_features")
        shard_linear(self, module, device_mesh)
        return _overlapping(module, _RowwiseLinear, self, device_mesh)


def _check_layouts(style: Any, name: str) -> None:
    """Check what PyTorch takes unchecked."""
    for key in ("input_layouts", "output_layouts"):
        for layout in getattr(style, key):
            if not isinstance(layout, Placement):
                kind = type(layout).__name__
                raise TypeError(f"{name}: {key} must be Shard, Replicate or None, got {layout!r} of type {kind}")
    check_bool(name, "use_local_output", style.use_local_output)


def _is_plain(module: nn.Embedding, mesh: DeviceMesh) -> bool:
    """Whether the PEs share the rows equally, and the forward is a look-up alone."""
    changes = module.max_norm is not None or module.scale_grad_by_freq or module.sparse
    return not changes and type(module).forward is nn.Embedding.forward and module.num_embeddings % mesh.size() == 0


def _check_mesh(mesh: DeviceMesh, style: str) -> None:
    world = current_world()
    if mesh.ndim != 1:
        raise ValueError(f"{style}: the mesh must have one dimension, got {mesh}: pass one of its dimensions")
    if mesh.device_type != world.device.type:
        raise ValueError(f"{style}: the mesh is of {mesh.device_type} devices, and this PE's device is {world.device}")
    groups.check(style, *groups.resolve(mesh.get_group()))


def _check(module: nn.Linear, mesh: DeviceMesh, style: str, features: str) -> None:
    _check_mesh(mesh, style)
    if getattr(module, features) % mesh.size():
        raise ValueError(
            f"{style}: {features} of {module} is {getattr(module, features)}, which {mesh.size()} PEs cannot share"
            " equally"
        )
    if type(module).forward is not nn.Linear.forward or "forward" in vars(module):
        raise NotImplementedError(
            f"{style}: {type(module).__name__} has a forward of its own, which would be replaced: only a plain"
            " nn.Linear can be overlapped; torch.distributed.tensor.parallel has a style for others"
        )


def _overlapping(module: nn.Module, kind: type[_Parallel], style: Any, mesh: DeviceMesh) -> nn.Module:
    """``module`` with the forward of ``kind``, and still of its own class."""
    # mypy compares __hash__ of the instances.
    module.__class__ = _overlapping_class(kind, type(module))  # type: ignore[arg-type]
    layer = cast("_Parallel", module)
    layer.parallel_mesh = mesh
    layer.parallel_group = mesh.get_group().group_name
    layer.parallel_input = style.input_layouts[0]
    layer.parallel_output = style.output_layouts[0]
    layer.returns_local = style.use_local_output
    return layer


@functools.cache
def _overlapping_class(kind: type[_Parallel], of: type[nn.Module]) -> type[nn.Module]:
    """A class with a forward, as FSDP's: torch.compile traces it, and a copy of the module keeps it.

    One for all such modules: what is compiled for one layer of a model serves the others, whose types are compared.
    """
    return type(f"{kind.__name__[1:]}{of.__name__}", (kind, of), {})


class _Parallel(nn.Module):
    parallel_mesh: DeviceMesh
    parallel_group: str
    parallel_input: Placement
    parallel_output: Placement
    returns_local: bool

    def _local(self, input: torch.Tensor, wanted: Placement | None = None) -> tuple[torch.Tensor, Placement]:
        """This PE's part of the input, and its layout: ``wanted``, or what it is."""
        mesh = self.parallel_mesh
        layout = _normal(input.placements[0] if isinstance(input, DTensor) else self.parallel_input, input.dim())
        if wanted is not None and layout != (wanted := _normal(wanted, input.dim())):
            if not isinstance(input, DTensor):
                input = DTensor.from_local(input, mesh, [layout], run_check=False)
            input, layout = input.redistribute(mesh, [wanted]), wanted
        if isinstance(input, DTensor):
            gradients = Partial() if isinstance(layout, Replicate) else layout
            return input.to_local(grad_placements=[gradients]), layout
        return input, layout

    def _finish(self, output: torch.Tensor, layout: Placement, size: int | None = None) -> torch.Tensor:
        """The result as the style wants it, from this PE's part; the dimension that PEs share has ``size`` (_whole)."""
        layout, wanted = _normal(layout, output.dim()), _normal(self.parallel_output, output.dim())
        if self.returns_local and layout == wanted:
            return output
        whole = _whole(output, self.parallel_mesh, layout, size)
        if layout != wanted:
            whole = whole.redistribute(self.parallel_mesh, [wanted])
        return whole.to_local() if self.returns_local else whole

    def _shares_equally(self, size: int) -> bool:
        return size % self.parallel_mesh.size() == 0

    def _check_says_its_size(self, dim: int, size: int) -> None:
        """The output, whose dimension ``dim`` PEs share, is a DTensor where their shards differ.

        A layer that got an ordinary tensor would take it for one of equal shards, and PEs would call differently.
        """
        if self.returns_local and not self._shares_equally(size):
            n_pes = self.parallel_mesh.size()
            raise ValueError(
                f"RowwiseParallel: dimension {dim} of the output is {size}, which {n_pes} PEs cannot share equally, and"
                " an ordinary tensor does not say how many rows all PEs have: pass use_local_output=False, or pad the"
                " input"
            )


class _ColwiseLinear(_Parallel, nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        is_plain = not isinstance(input, DTensor)
        local, layout = self._local(input)
        if _row_dim(layout, local.dim()) is None and not isinstance(layout, Replicate):
            local, layout = self._local(input, Replicate())
            is_plain = False
        local, weight = as_autocast(local), as_autocast(_part(self.weight)).t()
        dim = _row_dim(layout, local.dim())
        bias = None if self.bias is None else as_autocast(_part(self.bias))
        if dim is not None:
            rows = None if is_plain or self._shares_equally(input.shape[dim]) else input.shape[dim]
            output = functional.all_gather_gemm(local, weight, dim, self.parallel_group, bias=bias, rows=rows)
            return self._finish(output, Shard(-1))
        if is_plain:
            output = _like(local, functional.replicated_gemm(_matrix(local), weight, self.parallel_group))
        else:
            output = local @ weight
        return self._finish(output if bias is None else output + bias, Shard(-1))


class _RowwiseLinear(_Parallel, nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        local, _ = self._local(input, Shard(-1))
        local, weight, group = as_autocast(local), as_autocast(_part(self.weight)).t(), self.parallel_group
        dim = _row_dim(self.parallel_output, local.dim())
        if dim is not None:
            # The gradient of the bias is a sum over PEs, since their parts of the output differ.
            bias = self._whole_bias(Partial())
            self._check_says_its_size(dim, local.shape[dim])
            output = functional.gemm_reduce_scatter(local, weight, "sum", dim, group, bias=bias)
            return self._finish(output, Shard(dim), local.shape[dim])
        if isinstance(self.parallel_output, Replicate):
            bias = self._whole_bias(Replicate())
            output = functional.gemm_all_reduce(_matrix(local), weight, "sum", group, reduce_grad=False, bias=bias)
            return self._finish(_like(local, output), Replicate())
        output = local @ weight
        shared = cast("torch.Tensor | None", self.bias)
        if shared is None:
            return self._finish(output, Partial())
        whole = DTensor.from_local(output, self.parallel_mesh, [Partial()], run_check=False)
        whole = whole.redistribute(self.parallel_mesh, [self.parallel_output])
        biased = cast("DTensor", whole + as_autocast(shared))
        return biased.to_local() if self.returns_local else biased

    def _whole_bias(self, gradients: Placement) -> torch.Tensor | None:
        """The bias, of which every PE has a copy, if there is one; its gradients are ``gradients`` here, and replicated
        in the parameter."""
        bias = cast("DTensor | None", self.bias)
        if bias is None:
            return None
        if gradients.is_partial():
            bias = bias.redistribute(placements=[Replicate()])  # whose backward adds up what PEs have
        return as_autocast(bias.to_local(grad_placements=[gradients]))


class _RowwiseEmbedding(_Parallel, nn.Embedding):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        tokens, _ = self._local(input, Replicate())
        weight, group = _part(self.weight), self.parallel_group
        first = self.parallel_mesh.get_local_rank() * weight.shape[0]
        tokens = tokens - first
        others = (tokens < 0) | (tokens >= weight.shape[0])
        padding = self.padding_idx if self.padding_idx is None else self.padding_idx - first
        if padding is not None and not 0 <= padding < weight.shape[0]:
            padding = None
        rows = nn.functional.embedding(tokens.masked_fill(others, 0), weight, padding)
        rows = rows.masked_fill(others[..., None], 0)
        dim = _row_dim(self.parallel_output, rows.dim())
        if dim is not None:
            self._check_says_its_size(dim, rows.shape[dim])
            return self._finish(functional.reduce_scatter(rows, "sum", dim, group), Shard(dim), rows.shape[dim])
        if isinstance(self.parallel_output, Replicate):
            return self._finish(functional.all_reduce(rows, "sum", group, reduce_grad=False), Replicate())
        return self._finish(rows, Partial())


def _part(parameter: torch.Tensor) -> torch.Tensor:
    """This PE's part of a sharded parameter."""
    return cast("DTensor", parameter).to_local()


def _matrix(input: torch.Tensor) -> torch.Tensor:
    """The input, or a vector as a matrix of one row: nn.Linear takes vectors, and the operators do not."""
    return input if input.dim() > 1 else input.unsqueeze(0)


def _like(input: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """The output of :func:`_matrix` of ``input``, which is a vector if ``input`` is one."""
    return output if input.dim() > 1 else output.squeeze(0)


def _row_dim(layout: Placement, dims: int) -> int | None:
    """The dimension along which rows are sharded, if they are; the last dimension is the columns'."""
    if not isinstance(layout, Shard):
        return None
    dim = layout.dim % dims
    return None if dim == dims - 1 else int(dim)


def _normal(layout: Placement, dims: int) -> Placement:
    """A layout of a tensor of ``dims`` dimensions, with a dimension that is not negative."""
    return Shard(layout.dim % dims) if isinstance(layout, Shard) else layout


def _whole(part: torch.Tensor, mesh: DeviceMesh, layout: Placement, size: int | None) -> DTensor:
    """The DTensor of which this PE has ``part``. The dimension that PEs share has ``size``, or that of equal parts."""
    if size is None or not isinstance(layout, Shard) or size % mesh.size() == 0:
        return DTensor.from_local(part, mesh, [layout], run_check=False)
    # PyTorch takes parts for equal unless it is told the whole. Our results have the shared dimension first in memory.
    dim = layout.dim
    others = [length for i, length in enumerate(part.shape) if i != dim]
    strides = [1]
    for length in reversed(others):
        strides.insert(0, strides[0] * length)
    first, *rest = strides
    shape = torch.Size((*part.shape[:dim], size, *part.shape[dim + 1 :]))
    return DTensor.from_local(
        part, mesh, [layout], run_check=False, shape=shape, stride=(*rest[:dim], first, *rest[dim:])
    )
