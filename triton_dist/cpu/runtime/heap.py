"""The symmetric heaps of all PEs, mapped side by side in this process."""

from __future__ import annotations

from ctypes import POINTER, byref, c_int, c_int64, c_uint64, c_void_p

from triton_dist.cpu.runtime.library import failing, function, waiting

__all__ = ["SymmetricHeap"]

_create = failing(
    waiting("heap_create", c_int, c_int, c_int, c_uint64, POINTER(c_void_p), *[POINTER(c_uint64)] * 3),
)
_destroy = function("heap_destroy", None, c_void_p)
_attach = failing(waiting("heap_attach", c_int, c_void_p, c_int, c_int))
_fd = function("heap_fd", c_int, c_void_p)
_write = failing(waiting("heap_write", c_int, c_void_p, c_int, c_uint64, c_void_p, c_uint64))
_read = failing(waiting("heap_read", c_int, c_void_p, c_int, c_uint64, c_void_p, c_uint64))
_STRIDED = (c_void_p, c_int, c_uint64, c_int64, c_void_p, c_int64, c_uint64, c_uint64)
_write_strided = failing(waiting("heap_write_strided", c_int, *_STRIDED))
_read_strided = failing(waiting("heap_read_strided", c_int, *_STRIDED))


class SymmetricHeap:
    """The heap of ``pe``, made by this process with ``size`` bytes, rounded up to pages; others' are attached.

    PEs' heaps lie at equal distances, with a guard behind each that no access may touch. They are unmapped with this
    object: whoever uses their memory holds it.

    Raises:
        RuntimeError: the memory cannot be had or mapped.
    """

    def __init__(self, pe: int, n_pes: int, size: int) -> None:
        self._n_pes = n_pes
        handle, begin, stride, bytes_each = c_void_p(), c_uint64(), c_uint64(), c_uint64()
        _create(pe, n_pes, size, byref(handle), byref(begin), byref(stride), byref(bytes_each))
        self._handle = handle.value
        self._begin, self._stride, self.size = begin.value, stride.value, bytes_each.value

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            _destroy(self._handle)

    def attach(self, pe: int, fd: int) -> None:
        """Map the heap of ``pe``, another process's, by a descriptor of it, which is the heap's own from then on."""
        _attach(self._handle, pe, fd)

    @property
    def fd(self) -> int:
        """The descriptor of this PE's own heap."""
        return int(_fd(self._handle))

    def base(self, pe: int) -> int:
        """Where the heap of ``pe`` begins."""
        return self._begin + pe * self._stride

    def find(self, address: int) -> tuple[int, int] | None:
        """The PE in whose heap ``address`` is, and the offset there; None if it is in none."""
        pe, offset = divmod(address - self._begin, self._stride)
        return (pe, offset) if 0 <= pe < self._n_pes and offset < self.size else None

    def write(self, pe: int, offset: int, source: int, count: int) -> None:
        """Copy ``count`` bytes from the address ``source`` to the heap of ``pe``.

        Raises:
            IndexError: the range is not inside the heap. RuntimeError: the local memory is not mapped.
        """
        _write(self._handle, pe, offset, source, count)

    def read(self, pe: int, offset: int, destination: int, count: int) -> None:
        """Copy ``count`` bytes of the heap of ``pe`` to the address ``destination``; raises as :meth:`write` does."""
        _read(self._handle, pe, offset, destination, count)

    def write_strided(
        self, pe: int, offset: int, stride: int, source: int, source_stride: int, size: int, count: int
    ) -> None:
        """Write ``count`` pieces of ``size`` bytes, which begin a stride of bytes apart; it may be negative."""
        _write_strided(self._handle, pe, offset, stride, source, source_stride, size, count)

    def read_strided(
        self, pe: int, offset: int, stride: int, destination: int, destination_stride: int, size: int, count: int
    ) -> None:
        """Read what :meth:`write_strided` writes."""
        _read_strided(self._handle, pe, offset, stride, destination, destination_stride, size, count)
