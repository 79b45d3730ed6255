"""What the collectives' host entries share: checking a caller's tensors, and seeing them as words to be moved."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl

from triton_dist.kernels.collectives.reductions import OPS
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.device import LAZY, check_current_device, is_lazy
from triton_dist.kernels.protocols.workspace import why_not_symmetric
from triton_dist.torch_api import is_wrapper, without_memory
from triton_dist.world.current import current_world

__all__ = [
    "REDUCIBLE",
    "begin_in_words",
    "by_hosts",
    "check_algorithm",
    "check_collective",
    "check_contiguous",
    "check_dense",
    "check_on_device",
    "check_op",
    "check_part",
    "check_tensors",
    "count_reduced_words",
    "in_int32",
    "in_words",
    "need_symmetric",
    "places_of",
    "reduced_words",
    "word_bytes",
    "words",
]

_TRITON_TYPES = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.int8: tl.int8,
    torch.uint8: tl.uint8,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
}

REDUCIBLE = tuple(_TRITON_TYPES)
"""What reductions are of."""


def check_dense(function: str, **tensors: object) -> None:
    """All are dense tensors, wherever they are; PyTorch may be tracing."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{function}: {name} must be a torch.Tensor, got {type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            raise ValueError(f"{function}: {name} is of layout {tensor.layout}, not dense: pass tensor.to_dense()")


def check_on_device(function: str, **tensors: torch.Tensor) -> None:
    """All are dense tensors on this PE's device, whose elements are what lies in memory."""
    check_current_device(function)
    check_dense(function, **tensors)
    device = current_world().device
    for name, tensor in tensors.items():
        if is_wrapper(tensor):
            raise TypeError(f"{function}: {name}: {without_memory(tensor)}")
        if tensor.device != device:
            raise ValueError(f"{function}: {name} is on {tensor.device}, and this PE's device is {device}")
        if is_lazy(tensor):
            raise ValueError(f"{function}: {name} {LAZY}")


def check_contiguous(function: str, **tensors: torch.Tensor) -> None:
    """As :func:`check_on_device`, and all are contiguous."""
    check_on_device(function, **tensors)
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"{function}: {name} must be contiguous, got shape {tuple(tensor.shape)} with strides {tensor.stride()}"
            )


def check_tensors(function: str, **tensors: torch.Tensor) -> None:
    """As :func:`check_contiguous`, and all are of one dtype."""
    check_contiguous(function, **tensors)
    first = next(iter(tensors))
    for name, tensor in tensors.items():
        if tensor.dtype != tensors[first].dtype:
            raise ValueError(f"{function}: {name} is of {tensor.dtype}, and {first} of {tensors[first].dtype}")


def check_part(
    comm: Communicator, function: str, whole: torch.Tensor, part: torch.Tensor, names: tuple[str, str]
) -> None:
    """``whole`` holds a part for every member."""
    n_pes = comm.n_pes
    if whole.numel() != n_pes * part.numel():
        raise ValueError(
            f"{function}: {names[0]} must have {n_pes} times the elements of {names[1]}, one part for each PE, got"
            f" shapes {tuple(whole.shape)} and {tuple(part.shape)}"
        )


def check_op(function: str, op: str, dtype: torch.dtype) -> None:
    """A reduction that is known, and of elements of ``dtype``."""
    if op not in OPS:
        raise ValueError(f"{function}: op must be {', '.join(map(repr, OPS))}, got {op!r}")
    if dtype not in _TRITON_TYPES or (op == "avg" and not dtype.is_floating_point):
        known = [known for known in REDUCIBLE if op != "avg" or known.is_floating_point]
        raise ValueError(f"{function}: {op} is of {', '.join(map(str, known))}, got {dtype}")


def check_algorithm(function: str, algorithm: str, known: Sequence[str]) -> None:
    if algorithm != "auto" and algorithm not in known:
        raise ValueError(f"{function}: algorithm must be auto, {', '.join(known)}, got {algorithm!r}")


def check_collective(comm: Communicator, function: str, algorithm: str, known: Sequence[str]) -> str:
    """As :func:`check_algorithm`; the algorithm, where the group leaves one only: ``two_level`` over several hosts."""
    check_algorithm(function, algorithm, known)
    return by_hosts(comm, function, algorithm, "two_level")


def by_hosts(comm: Communicator, function: str, algorithm: str, *between_hosts: str) -> str:
    """``algorithm``; over several hosts that of ``between_hosts``, if it is the only one that goes there: RuntimeError
    for one that does not."""
    if comm.grid.hosts == 1:
        return algorithm
    if algorithm not in ("auto", *between_hosts):
        *others, last = "auto", *between_hosts
        comm.check_one_host(f"{function} by algorithm {algorithm} (not {', '.join(others)} or {last})")
    return between_hosts[0] if len(between_hosts) == 1 else algorithm


def need_symmetric(comm: Communicator, function: str, algorithm: str, **tensors: torch.Tensor) -> tuple[str, ...]:
    """These are stored to, or loaded from, by other members. Returns what must be equal on all: :func:`places_of`."""
    for name, tensor in tensors.items():
        if why := why_not_symmetric(comm, tensor):
            raise ValueError(
                f"{function}: {name}, of {tensor.numel() * tensor.element_size()} bytes, must be symmetric (allocated"
                f" with triton_dist.empty, zeros, …) for algorithm {algorithm}, and {why}; only small tensors need not"
                " be"
            )
    return places_of(comm, **tensors)


def places_of(comm: Communicator, **tensors: torch.Tensor) -> tuple[str, ...]:
    """Which symmetric tensors these are, to be compared: of another one a member would store to other memory."""
    return tuple(f"{name} {comm.world.place_of(tensor)}" for name, tensor in tensors.items())


def in_words(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor, or a copy, that begins at a multiple of 4 bytes, where :func:`words` begin. A view need not,
    as of a flat buffer, or the gradient of a ``cat``."""
    return tensor if tensor.data_ptr() % 4 == 0 else tensor.clone(memory_format=torch.contiguous_format)


def in_int32(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor, whose rows are multiples of 4 bytes, as int32 words. PyTorch calls a tensor without elements
    contiguous whatever its strides are, as those of an expanded gradient, but makes no view of another dtype of it."""
    if tensor.numel():
        return tensor.view(torch.int32)
    return tensor.new_empty((*tensor.shape[:-1], tensor.shape[-1] * tensor.element_size() // 4), dtype=torch.int32)


def begin_in_words(part_bytes: int, *tensors: torch.Tensor) -> bool:
    """Whether the tensors begin where :func:`words` of such parts do."""
    size = word_bytes(part_bytes)
    return all(tensor.data_ptr() % size == 0 for tensor in tensors)


def words(function: str, part_bytes: int, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """The tensors as the longest integers, of up to 4 bytes, that a part of ``part_bytes`` is a multiple of."""
    size = word_bytes(part_bytes)
    for tensor in tensors:
        if not begin_in_words(part_bytes, tensor):
            raise ValueError(
                f"{function}: a tensor of shape {tuple(tensor.shape)} begins at {tensor.data_ptr():#x}, which is not a"
                f" multiple of {size} bytes; use one that is not a view from its middle"
            )
    dtype = {4: torch.int32, 2: torch.int16, 1: torch.int8}[size]
    # An empty view may begin anywhere, where PyTorch makes none of another dtype.
    return [
        # A single element may have any stride, with which PyTorch makes no view of another dtype either.
        tensor.detach().as_strided((tensor.numel(),), (1,)).view(dtype)
        if tensor.numel()
        else tensor.new_empty(0, dtype=dtype)
        for tensor in tensors
    ]


def word_bytes(part_bytes: int) -> int:
    """The size of the longest words, of up to 4 bytes, that a part of so many bytes, or an element, is made of."""
    return next(size for size in (4, 2, 1) if part_bytes % size == 0)


def count_reduced_words(part_elements: int, itemsize: int) -> int:
    """How many words :func:`reduced_words` makes of a part."""
    return part_elements * itemsize // word_bytes(part_elements * itemsize)


def reduced_words(
    function: str, part_elements: int, *tensors: torch.Tensor
) -> tuple[list[torch.Tensor], tl.dtype, int]:
    """The tensors as words of as many elements as parts allow; the elements' type, and how many of them a word holds.

    An element of 8 bytes is two words, and a word holds one.
    """
    itemsize = tensors[0].element_size()
    nbytes = word_bytes(part_elements * itemsize)
    return words(function, nbytes, *tensors), _TRITON_TYPES[tensors[0].dtype], max(nbytes // itemsize, 1)
