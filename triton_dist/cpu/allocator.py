"""Where symmetric tensors lie in the heap: first fit, so that the same calls give the same places on every PE."""

from __future__ import annotations

__all__ = ["ALIGNMENT", "CHECKED_GAP", "FirstFit", "padded"]

ALIGNMENT = 512
"""Of every piece, in bytes: what CUDA allocators give, so kernels may assume as much in both worlds."""


CHECKED_GAP = 512
"""Bytes between the pieces of a heap that is checked: running past the end of one is not running into the next."""


def padded(nbytes: int) -> int:
    """How large the piece for ``nbytes`` bytes is."""
    return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT


class FirstFit:
    """Pieces of the range ``[0, size)``.

    >>> heap = FirstFit(4096)
    >>> heap.allocate(100), heap.allocate(1000), heap.allocate(0)
    (0, 512, 1536)
    >>> heap.release(512)
    >>> heap.allocate(500)
    512
    """

    def __init__(self, size: int, gap: int = 0, *, reuses_late: bool = False) -> None:
        """``gap``: bytes to leave free after each piece, a multiple of ``ALIGNMENT``. ``reuses_late``: released pieces
        are reused only if nothing else is free, so that accesses to freed memory are detected."""
        self.size = size
        self._gap = gap
        self._reuses_late = reuses_late
        self._released: list[tuple[int, int]] = []
        self._free = [(0, size)]  # (offset, length), by offset; no two adjoin
        self._used: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Bytes that are free, in however many pieces."""
        return sum(length for _, length in (*self._free, *self._released))

    @property
    def largest(self) -> int:
        """Bytes of the largest piece that could be had."""
        return max((length for _, length in self._free), default=0)

    def allocate(self, nbytes: int) -> int | None:
        """The offset of a fresh piece; None when none is large enough. A piece of no bytes has its own place, too."""
        needed = padded(nbytes) + self._gap
        offset = self._fitting(needed)
        if offset is None and self._released:
            for piece in self._released:
                self._join(piece)
            self._released.clear()
            offset = self._fitting(needed)
        return offset

    def _fitting(self, needed: int) -> int | None:
        for i, (offset, length) in enumerate(self._free):
            if length >= needed:
                self._free[i : i + 1] = [(offset + needed, length - needed)] if length > needed else []
                self._used[offset] = needed
                return offset
        return None

    def release(self, offset: int) -> None:
        """Free the piece at ``offset``."""
        piece = (offset, self._used.pop(offset))
        if self._reuses_late:
            self._released.append(piece)
        else:
            self._join(piece)

    def _join(self, piece: tuple[int, int]) -> None:
        """Free a piece and merge it with its free neighbours."""
        freed = [*self._free, piece]
        self._free = []
        for begin, length in sorted(freed):
            if self._free and sum(self._free[-1]) == begin:
                begin, length = self._free[-1][0], self._free.pop()[1] + length
            self._free.append((begin, length))
