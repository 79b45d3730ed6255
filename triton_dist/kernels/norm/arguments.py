"""What the fused norms share on the host: the arguments that they take, their results, and how rows are cut."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist.kernels.arguments import check_contiguous, check_on_device
from triton_dist.kernels.collectives.exchanged_rows import piece_of, words_of_program
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.new_tensors import NewTensors
from triton_dist.kernels.options import check_number, check_one_of
from triton_dist.kernels.prepared import Prepared
from triton_dist.kernels.protocols.workspace import symmetric_workspace
from triton_dist.kernels.shards import own_rows

__all__ = [
    "FP8",
    "LONGEST",
    "Cut",
    "Norm",
    "Normed",
    "check",
    "check_quantize",
    "cut_for",
    "exchange_constants",
    "fits",
    "new_outputs",
    "new_results",
    "programs_for",
    "row_constants",
    "row_words",
    "signature_of",
    "slots_for",
]

FP8 = torch.float8_e4m3fn
"""What rows are quantised to."""

_TRITON_TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
_QUANTA = {None: 0, "token": 0, "block": 128}
_MAX_COLUMNS = 65536
LONGEST = 16384
_FEWEST_PROGRAMS = 64
_SLOT_BYTES = (48 << 20) + (64 << 10)  # of an operation: 64 programs of 8 PEs that send rows of 16 KiB twice
_WORDS_IN_REGISTERS = 32768  # of a program's rows: 64 registers of each of 512 threads


class Normed(NamedTuple):
    """What a fused norm returns.

    Attributes:
        output: the normalised rows; float8_e4m3fn if they are quantised.
        residual: what was normalised, in the input's dtype.
        scales: float32, by which ``output`` is to be multiplied: ``[M]`` with ``quantize="token"``, ``[M, H / 128]``
            with ``"block"``, else None.
    """

    output: torch.Tensor
    residual: torch.Tensor
    scales: torch.Tensor | None


_as_normed = partial(tuple.__new__, Normed)
"""As ``Normed._make``, without a frame of Python."""


def new_results(made: Normed) -> NewTensors:
    """What prepared calls make anew, like the results that a call has ``made``. Kernels take it behind five tensors."""
    return NewTensors.of(*made, at=5, returned=_as_normed)


class Norm(NamedTuple):
    """The norm of a call: what kernels take between their rows and their constants."""

    residual: torch.Tensor | None
    bias: torch.Tensor | None
    weight: torch.Tensor | None
    shift: torch.Tensor | None
    eps: float
    layer: bool
    quantize: str | None

    @property
    def quantum(self) -> int:
        return _QUANTA[self.quantize]

    @property
    def form(self) -> tuple[Any, ...]:
        """What must be equal on all PEs: which tensors there are, and all numbers."""
        return *(name for name in self._fields[:4] if getattr(self, name) is not None), *self[4:]


class Cut(NamedTuple):
    """How rows are exchanged: of how many PEs in registers, and how many words of each polled, at a time; warps."""

    group: int
    piece: int
    warps: int


def check(
    function: str,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    residual: torch.Tensor | None,
    bias: torch.Tensor | None,
    norm: str,
    norm_bias: torch.Tensor | None,
    eps: float,
    quantize: str | None,
    shared_by: Communicator | None = None,
) -> Norm:
    """The checked arguments of a norm of ``x``, a matrix.

    ``residual`` has its rows, or, where they are ``shared_by`` the members of a communicator, this PE's shard of them.

    Raises:
        TypeError, ValueError: an argument is not as the fused norms take it.
    """
    check_on_device(function, x=x)
    if x.dim() != 2 or not x.is_contiguous():
        raise ValueError(
            f"{function}: x must be a contiguous matrix on {x.device}, got shape {tuple(x.shape)} with strides"
            f" {x.stride()}"
        )
    if x.dtype not in _TRITON_TYPES:
        raise ValueError(f"{function}: x must be of {', '.join(map(str, _TRITON_TYPES))}, got {x.dtype}")
    columns = x.shape[1]
    if not 0 < columns <= _MAX_COLUMNS:
        raise ValueError(f"{function}: x must have 1 to {_MAX_COLUMNS} columns, got {columns}")
    check_one_of(function, "norm", norm, ("rms", "layer"))
    check_quantize(function, quantize, columns)
    check_number(function, "eps", eps, 0)
    if residual is not None:
        rows = x.shape[0] if shared_by is None else len(own_rows(shared_by, x.shape[0]))
        _check(function, "residual", residual, (rows, columns), (x.dtype,))
    for name, vector in (("weight", weight), ("bias", bias), ("norm_bias", norm_bias)):
        if vector is not None:
            _check(function, name, vector, (columns,), tuple(_TRITON_TYPES))
    return Norm(residual, bias, weight, norm_bias, float(eps), norm == "layer", quantize)


def check_quantize(function: str, quantize: str | None, columns: int) -> None:
    """``quantize`` is a way to quantise rows of so many columns, or None."""
    check_one_of(function, "quantize", quantize, _QUANTA)
    if quantize == "block" and columns % 128:
        raise ValueError(f"{function}: quantize='block' is of 128 columns each, of which {columns} are no multiple")


def _check(
    function: str, name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]
) -> None:
    check_contiguous(function, **{name: tensor})
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
        raise ValueError(
            f"{function}: {name} must have shape {shape} and be of {' or '.join(map(str, dtypes))}, got"
            f" {tuple(tensor.shape)} and {tensor.dtype}"
        )


def new_outputs(x: torch.Tensor, norm: Norm, rows: int, residual_rows: int) -> Normed:
    """Tensors for ``rows`` normalised rows and ``residual_rows`` of the new residual."""
    columns = x.shape[1]
    scales = None
    if norm.quantize is not None:
        shape = (rows, columns // norm.quantum) if norm.quantum else (rows,)
        scales = torch.empty(shape, dtype=torch.float32, device=x.device)
    output = torch.empty(rows, columns, dtype=FP8 if norm.quantize else x.dtype, device=x.device)
    return Normed(output, torch.empty(residual_rows, columns, dtype=x.dtype, device=x.device), scales)


def signature_of(
    prepared: Prepared, function: str, options: tuple[Any, ...], given: tuple[torch.Tensor | None, ...]
) -> Hashable | None:
    """The signature of a call of a norm, of whose options the second is ``eps``: what is no number leaves no plan."""
    return prepared.signature((function, *options), *given) if type(options[1]) in (float, int) else None


def cut_for(columns: int, itemsize: int, size: int, *, gpu: bool) -> Cut:
    """How to cut rows of so many columns of so many bytes, of ``size`` PEs."""
    block = max(256, int(triton.next_power_of_2(columns)))
    words = block * itemsize // 4
    pes = int(triton.next_power_of_2(size))
    group = max(1, min(pes, _WORDS_IN_REGISTERS // block))
    warps = max(4, min(32, block * group // 2048)) if gpu else 4
    return Cut(group, piece_of(words, group, gpu=gpu), warps)


def fits(columns: int) -> bool:
    """Whether the fused kernels keep a row of so many columns in registers."""
    return columns <= LONGEST


def slots_for(comm: Communicator, operation: str, messages: int, x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The slots of an operation whose rounds have so many messages of a row of ``x``, and how many programs have some.
    *Collective* the first time.

    Each operation has its own: a program clears, of the round before, the slots that it uses itself.
    """
    words = row_words(x)
    size = words_of_program(messages, comm.n_pes, words)
    programs = 4
    if triton_dist.kind() == "gpu":
        programs = programs_for(cut_for(x.shape[1], x.element_size(), comm.n_pes, gpu=True), 4 * size)
    return symmetric_workspace(comm, f"{operation}, {words} words", programs * size), programs


def programs_for(cut: Cut, nbytes: int) -> int:
    """How many programs exchange rows at a time, each with so many bytes of slots.

    One of up to 8 warps leaves room for a second one on its SM, which works while the first one waits. The number does
    not depend on the GPU, since it must be the same on all PEs.
    """
    return max(_FEWEST_PROGRAMS, min(128 * (2 if cut.warps <= 8 else 1), _SLOT_BYTES // nbytes))


def row_constants(x: torch.Tensor, norm: Norm) -> dict[str, Any]:
    """What kernels that normalise rows like ``x``'s are compiled for."""
    block = max(256, int(triton.next_power_of_2(x.shape[1])))
    return {"LAYER": norm.layer, "QUANTUM": norm.quantum, "DTYPE": _TRITON_TYPES[x.dtype], "BLOCK": block}


def row_words(x: torch.Tensor) -> int:
    """How many words a row like ``x``'s is in a message."""
    return max(256, int(triton.next_power_of_2(x.shape[1]))) * x.element_size() // 4


def exchange_constants(comm: Communicator, x: torch.Tensor) -> dict[str, Any]:
    """What kernels that exchange such rows are compiled for, besides."""
    cut = cut_for(x.shape[1], x.element_size(), comm.n_pes, gpu=triton_dist.kind() == "gpu")
    return {"GROUP": cut.group, "PIECE": cut.piece, "MEMBERS": comm.members, "num_warps": cut.warps}
