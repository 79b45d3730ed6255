"""The tensors of a run's symmetric heap, to name what lies at an offset."""

from __future__ import annotations

from dataclasses import dataclass

from triton_dist.check.log import Place

__all__ = ["Heap", "Tensor"]


@dataclass(frozen=True)
class Tensor:
    offset: int
    nbytes: int
    text: str
    """Shape and dtype."""
    place: Place
    """Where it was allocated."""


class Heap:
    """The allocations of PE 0, which are the same on all PEs."""

    def __init__(self) -> None:
        self.tensors: dict[int, Tensor] = {}
        self.freed: dict[int, tuple[Tensor, Place]] = {}
        """Freed tensors by offset, and the place where each was freed."""

    def allocate(self, tensor: Tensor) -> None:
        end = tensor.offset + tensor.nbytes
        for begin, (old, _) in list(self.freed.items()):
            if begin < end and tensor.offset < begin + max(old.nbytes, 1):
                del self.freed[begin]
        self.tensors[tensor.offset] = tensor

    def free(self, offset: int, place: Place) -> None:
        if offset in self.tensors:
            self.freed[offset] = (self.tensors.pop(offset), place)

    def freed_at(self, begin: int, end: int) -> tuple[Tensor, Place] | None:
        """The freed tensor that overlaps a range, and the place where it was freed."""
        for tensor, place in self.freed.values():
            if begin < tensor.offset + max(tensor.nbytes, 1) and tensor.offset < end:
                return tensor, place
        return None

    def at(self, offset: int) -> Tensor | None:
        """The tensor that an offset lies in."""
        near = self.before(offset)
        return near if near and offset < near.offset + max(near.nbytes, 1) else None

    def before(self, offset: int) -> Tensor | None:
        """The last tensor that begins at ``offset`` or before."""
        begins = [begin for begin in self.tensors if begin <= offset]
        return self.tensors[max(begins)] if begins else None

    def name(self, space: int, begin: int, end: int) -> str:
        if space < 0:
            return f"{end - begin} bytes of PE {-1 - space}'s own memory"
        tensor = self.at(begin)
        if tensor is None:
            return f"offset {begin} of PE {space}'s heap"
        first = begin - tensor.offset
        return (
            f"bytes {first} to {end - tensor.offset} of the symmetric tensor ({tensor.text}) on PE {space}, "
            f"allocated at {tensor.place}"
        )
