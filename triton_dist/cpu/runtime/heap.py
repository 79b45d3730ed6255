"""The symmetric heaps of all PEs, mapped side by side in this process."""

from __future__ import annotations

from ctypes import POINTER, byref, c_int, c_int64, c_uint64, c_void_p

from triton_dist.cpu.memory import RemoteWords, SymmetricMemory
from triton_dist.cpu.runtime.atomics import WORDS, Order, Word
from triton_dist.cpu.runtime.library import failing, function, waiting

__all__ = ["MappedWords", "SymmetricHeap"]

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


class MappedWords(RemoteWords):
    """Words of heaps that lie side by side: each operation is one instruction at an address."""

    def __init__(self, begin: int, stride: int, word: Word) -> None:
        self._begin, self._stride, self._word = begin, stride, word

    def load(self, pe: int, offset: int, order: Order) -> int:
        return self._word.load(self._begin + pe * self._stride + offset, order)

    def store(self, pe: int, offset: int, value: int, order: Order) -> None:
        self._word.store(self._begin + pe * self._stride + offset, value, order)

    def exchange(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._word.exchange(self._begin + pe * self._stride + offset, value, order)

    def fetch_add(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._word.fetch_add(self._begin + pe * self._stride + offset, value, order)

    def fetch_and(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._word.fetch_and(self._begin + pe * self._stride + offset, value, order)

    def fetch_or(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._word.fetch_or(self._begin + pe * self._stride + offset, value, order)

    def fetch_xor(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._word.fetch_xor(self._begin + pe * self._stride + offset, value, order)

    def compare_swap(self, pe: int, offset: int, expected: int, value: int, order: Order) -> int:
        return self._word.compare_swap(self._begin + pe * self._stride + offset, expected, value, order)


class SymmetricHeap(SymmetricMemory):
    """The heap of ``pe``, made by this process with ``size`` bytes, rounded up to pages; others' are attached.

    PEs' heaps lie at equal distances, with a guard behind each that no access may touch. They are unmapped with this
    object: a user of their memory holds it.

    Raises:
        RuntimeError: the memory cannot be had or mapped.
    """

    def __init__(self, pe: int, n_pes: int, size: int) -> None:
        self._n_pes = n_pes
        handle, begin, stride, bytes_each = c_void_p(), c_uint64(), c_uint64(), c_uint64()
        _create(pe, n_pes, size, byref(handle), byref(begin), byref(stride), byref(bytes_each))
        self._handle = handle.value
        self._begin, self._stride, self.size = begin.value, stride.value, bytes_each.value
        self._words = {size: MappedWords(self._begin, self._stride, word) for size, word in WORDS.items()}

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

    def maps(self, pe: int) -> bool:
        return True

    def words(self, size: int) -> RemoteWords:
        return self._words[size]

    def base(self, pe: int) -> int:
        return self._begin + pe * self._stride

    def find(self, address: int) -> tuple[int, int] | None:
        pe, offset = divmod(address - self._begin, self._stride)
        return (pe, offset) if 0 <= pe < self._n_pes and offset < self.size else None

    def write(self, pe: int, offset: int, source: int, count: int) -> None:
        _write(self._handle, pe, offset, source, count)

    def read(self, pe: int, offset: int, destination: int, count: int) -> None:
        _read(self._handle, pe, offset, destination, count)

    def write_strided(
        self, pe: int, offset: int, stride: int, source: int, source_stride: int, size: int, count: int
    ) -> None:
        _write_strided(self._handle, pe, offset, stride, source, source_stride, size, count)

    def read_strided(
        self, pe: int, offset: int, stride: int, destination: int, destination_stride: int, size: int, count: int
    ) -> None:
        _read_strided(self._handle, pe, offset, stride, destination, destination_stride, size, count)
