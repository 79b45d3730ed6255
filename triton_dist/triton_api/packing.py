"""Launches as data: what Triton's launcher for CUDA would give to the driver, for a launcher that knows no Python.

Triton's launcher takes a tuple of Python objects, and makes of each an argument of the kernel, in every launch. Of a
:class:`~triton_dist.triton_api.launching.PreparedLaunch` all arguments but a call's tensors are known, so they are
packed once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from triton_dist.triton_api.of_line import ARGUMENTS, launch_attributes, tensor_map_bytes

__all__ = ["MAP_BYTES", "PackedLaunch", "Patch", "packed"]

MAP_BYTES, _MAP_ALIGNMENT = 128, 64
"""Of a TMA descriptor, and of what it lies at a multiple, as a ``CUtensorMap``."""
_SCRATCH = (0, 0)
"""Behind a kernel's arguments there are addresses of scratch memory, of which these kernels need none."""


class Patch(NamedTuple):
    """An argument that is a call's tensor."""

    offset: int
    tensor: int
    """Which of a call's tensors."""
    is_map: bool
    """Whether it is a TMA descriptor of the tensor, and not its address."""
    position: int
    """Of the kernel's first arguments, which one it is, or is made of."""


class PackedLaunch(NamedTuple):
    """A launch, but for the stream and what ``patches`` say. Its calls bring their first tensors, then ``also``."""

    function: int
    grid: tuple[int, int, int]
    threads: int
    shared: int
    attributes: tuple[tuple[int, tuple[int, int, int]], ...]
    """Ids of ``CUlaunchAttributeID`` and what the first three words of the value are."""
    arguments: bytes
    offsets: tuple[int, ...]
    """Where each argument begins."""
    patches: tuple[Patch, ...]


class _Tensor(NamedTuple):
    which: int
    position: int
    is_map: bool


class _Unknown(Exception):  # noqa: N818 (it never leaves this module)
    """It is not known how Triton passes an argument."""


def packed(
    signature: Sequence[Any],
    kinds: bytes,
    told: Sequence[int],
    how: tuple[bool, bool],
    function: int,
    grid: tuple[int, int, int],
    arguments: Sequence[Any],
    tensors: dict[int, tuple[int, Sequence[Any] | None]],
    places: dict[tuple[int, int | None], int],
) -> PackedLaunch | None:
    """A launch as data; None if it has something of which it is not known how Triton passes it.

    Args:
        signature: the kernel's, by argument.
        kinds: of all arguments that are no constants, how Triton's launcher takes each.
        told: number of warps, of CTAs, bytes of shared memory.
        how: whether the grid is cooperative, and whether the kernel may begin while the one in front ends.
        arguments: of the kernel; what is at a call's tensor is of no meaning.
        tensors: by position, which of a call's tensors it is, and, if it is a descriptor, what an encoded one is
            expanded to.
        places: the same of tensors among the arguments behind, by position, and by place where that is a tuple.
    """
    warps, ctas, shared = told
    cooperative, dependent = how
    attributes = launch_attributes(shared, ctas, cooperative=cooperative, dependent=dependent)
    if attributes is None:
        return None
    try:
        flat = [*_flat(signature, arguments, tensors, places)]
        if len(flat) != len(kinds):
            return None
        return _packed(flat, kinds, function, (grid[0] * ctas, *grid[1:]), 32 * warps, shared, attributes)
    except (_Unknown, struct.error, OverflowError, TypeError):
        return None


def _flat(
    signature: Sequence[Any],
    arguments: Sequence[Any],
    tensors: dict[int, tuple[int, Sequence[Any] | None]],
    places: dict[tuple[int, int | None], int],
) -> Iterator[Any]:
    """The arguments that are no constants, with tuples opened and descriptors expanded."""
    for i, (kind, argument) in enumerate(zip(signature, arguments, strict=True)):
        if kind == "constexpr":  # also where a call has None for a tensor
            continue
        if i in tensors:
            which, expanded = tensors[i]
            if expanded is None:
                yield _Tensor(which, i, False)
            else:
                yield _Tensor(which, i, True)
                yield from expanded[1:]
        elif (i, None) in places:
            yield _Tensor(places[i, None], i, False)
        elif isinstance(kind, tuple):
            found = {(k,): which for (j, k), which in places.items() if j == i and k is not None}
            yield from _of_tuple(kind, argument, found)
        elif isinstance(kind, str) and kind.startswith("tensordesc"):
            yield from argument.arguments
        else:
            yield argument


def _of_tuple(kinds: tuple[Any, ...], argument: Any, places: dict[tuple[int], int]) -> Iterator[Any]:
    for k, (kind, part) in enumerate(zip(kinds, argument, strict=True)):
        if (k,) in places:
            yield _Tensor(places[k,], -1, False)
        elif isinstance(kind, tuple):
            yield from _of_tuple(kind, part, {})
        elif kind != "constexpr":
            yield part


def _packed(
    flat: Sequence[Any],
    kinds: bytes,
    function: int,
    grid: tuple[int, ...],
    threads: int,
    shared: int,
    attributes: tuple[tuple[int, tuple[int, int, int]], ...],
) -> PackedLaunch:
    into, offsets, patches = bytearray(), [], []
    for argument, kind in zip((*flat, *_SCRATCH), (*kinds, *(_POINTER for _ in _SCRATCH)), strict=True):
        form = ARGUMENTS.get(kind)
        if form is None:
            raise _Unknown
        is_map = form == "map"
        into += bytes(-len(into) % (_MAP_ALIGNMENT if is_map else 8))
        offsets.append(len(into))
        if isinstance(argument, _Tensor):
            if argument.is_map != is_map or not (is_map or kind == _POINTER):
                raise _Unknown
            patches.append(Patch(len(into), argument.which, is_map, argument.position))
            into += bytes(MAP_BYTES if is_map else 8)
        elif is_map:
            into += tensor_map_bytes(argument)
        else:
            into += _number(form, argument)
    return PackedLaunch(
        function, (grid[0], grid[1], grid[2]), threads, shared, attributes, bytes(into), tuple(offsets), tuple(patches)
    )


_POINTER = next(kind for kind, form in ARGUMENTS.items() if form == "P")


def _number(form: str, value: Any) -> bytes:
    """As Triton's launcher in C converts it."""
    if form == "P":
        if value is not None and not isinstance(value, int):
            raise _Unknown
        return struct.pack("<Q", value or 0)
    if form == "bfloat16":
        return struct.pack("<f", value)[2:]  # cut off, as Triton does
    if form in "efd":
        return struct.pack(f"<{form}", value)
    size = struct.calcsize(f"<{form}")
    if not -(1 << 63) <= int(value) < 1 << 64:
        raise OverflowError
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
