"""The symmetric heap in a region of the library's: one-sided operations by PE and offset.

Local memory of a copy is staged through memory of our own, which the kernel copies: an address that is not mapped is an
error, as in the shared-memory world, and not a crash inside of the library.

The library's functions return nothing that says whether they succeeded. Where the connection to a PE is lost, a get
writes nothing and an atomic returns what was on the stack (Open MPI 4.1.4), and so do all later ones to that PE. So
what comes from another PE is given to a caller only when a get has arrived with it or after it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import operator
import os
from collections.abc import Callable
from typing import Any, NoReturn

from triton_dist.cpu.memory import RemoteWords, SymmetricMemory
from triton_dist.cpu.oshmem.library import Library
from triton_dist.cpu.runtime.atomics import Order

__all__ = ["ANSWER_BYTES", "OshmemHeap"]

_STAGING_BYTES = 1 << 22
ANSWER_BYTES = 8
"""What each PE's answer takes of the library's region, behind all that is in it."""
_ANSWER = 0x7472_6974_6F6E_6469


class OshmemHeap(SymmetricMemory):
    """The first ``size`` bytes of the library's region at ``begin``, on each of ``n_pes`` PEs.

    ``answer_at`` is where each PE's answer is, in bytes behind ``begin``. Whatever returns memory of a PE that does not
    answer calls ``lost``, which raises BrokenWorldError.
    """

    def __init__(
        self, library: Library, pe: int, n_pes: int, begin: int, size: int, answer_at: int,
        lost: Callable[[int], NoReturn],
    ) -> None:  # fmt: skip
        self.size = size
        self._library, self._begin = library, begin
        mapped = [begin if other == pe else int(library.call(library.ptr, begin, other) or 0) for other in range(n_pes)]
        self._bases = mapped
        self._answer, self._lost = begin + answer_at, lost
        ctypes.c_uint64.from_address(self._answer).value = _ANSWER
        self._staging = _Staging(_STAGING_BYTES)
        self._arriving: list[tuple[int, int, int, int]] = []  # of non-blocking gets: PE, where to, staging, bytes
        self._words: dict[int, RemoteWords] = {size: _SmallWords(self, size) for size in (1, 2)}
        pairs = _Words(self, library, pe, begin, 8)
        self._words |= {4: _Words32(self, library, pe, begin, pairs), 8: pairs}

    def maps(self, pe: int) -> bool:
        return self._bases[pe] != 0

    def base(self, pe: int) -> int:
        assert self._bases[pe], f"the heap of PE {pe} is not mapped"
        return self._bases[pe]

    def find(self, address: int) -> tuple[int, int] | None:
        for pe, base in enumerate(self._bases):
            if base and 0 <= address - base < self.size:
                return pe, address - base
        return None

    def words(self, size: int) -> RemoteWords:
        return self._words[size]

    def write(self, pe: int, offset: int, source: int, count: int) -> None:
        self._put(self._library.putmem, pe, offset, source, count)

    def write_nbi(self, pe: int, offset: int, source: int, count: int) -> None:
        self._put(self._library.putmem_nbi, pe, offset, source, count)

    def _put(self, put: Callable[..., None], pe: int, offset: int, source: int, count: int) -> None:
        self._check(pe, offset, count)
        for done, size in _parts(count):
            at = self._room(size)
            self._staging.fill(at, source + done, size)
            self._library.call(put, self._begin + offset + done, self._staging.address + at, size, pe)

    def read(self, pe: int, offset: int, destination: int, count: int) -> None:
        self._check(pe, offset, count)
        for done, size in _parts(count):
            at = self._room_for_arrival(size)
            self._library.call(self._library.getmem, self._staging.address + at, self._begin + offset + done, size, pe)
            self._check_arrival(pe, at, size)
            self._staging.empty(at, destination + done, size)

    def read_nbi(self, pe: int, offset: int, destination: int, count: int) -> None:
        self._check(pe, offset, count)
        for done, size in _parts(count):
            at = self._room_for_arrival(size)
            self._library.call(
                self._library.getmem_nbi, self._staging.address + at, self._begin + offset + done, size, pe
            )
            self._arriving.append((pe, destination + done, at, size))

    def write_strided(
        self, pe: int, offset: int, stride: int, source: int, source_stride: int, size: int, count: int
    ) -> None:
        self._check_strided(pe, offset, stride, size, count)
        if size in self._library.iput and stride > 0 and stride % size == 0 and 0 < count * size <= _STAGING_BYTES:
            at = self._room(count * size)
            for i in range(count):
                self._staging.fill(at + i * size, source + i * source_stride, size)
            there, here = self._begin + offset, self._staging.address + at
            self._library.call(self._library.iput[size], there, here, stride // size, 1, count, pe)
        else:  # the library's strides are positive, and of one element
            for i in range(count):
                self.write(pe, offset + i * stride, source + i * source_stride, size)

    def read_strided(
        self, pe: int, offset: int, stride: int, destination: int, destination_stride: int, size: int, count: int
    ) -> None:
        self._check_strided(pe, offset, stride, size, count)
        if size in self._library.iget and stride > 0 and stride % size == 0 and 0 < count * size <= _STAGING_BYTES:
            at = self._room_for_arrival(count * size)
            there, here = self._begin + offset, self._staging.address + at
            self._library.call(self._library.iget[size], here, there, 1, stride // size, count, pe)
            self._check_arrival(pe, at, count * size)
            for i in range(count):
                self._staging.empty(at + i * size, destination + i * destination_stride, size)
        else:
            for i in range(count):
                self.read(pe, offset + i * stride, destination + i * destination_stride, size)

    def fence(self) -> None:
        self._library.call(self._library.fence)

    def quiet(self) -> None:
        self._library.call(self._library.quiet)
        arrived, self._arriving = self._arriving, []
        self._staging.used = 0
        for pe, destination, at, size in arrived:
            self._check_arrival(pe, at, size)
            self._staging.empty(at, destination, size)

    def progress(self) -> None:
        self._library.progress()

    def check_answer(self, pe: int) -> None:
        """BrokenWorldError if the connection to ``pe`` is lost, and what was called before may have failed."""
        if self._bases[pe]:
            return
        answer = ctypes.c_uint64(0)
        self._library.call(self._library.getmem, ctypes.addressof(answer), self._answer, ANSWER_BYTES, pe)
        if answer.value != _ANSWER:
            self._lost(pe)

    def _room_for_arrival(self, size: int) -> int:
        """:meth:`_room` with a mark at its end, which a get overwrites last."""
        at = self._room(size)
        self._staging.mark(at, size)
        return at

    def _check_arrival(self, pe: int, at: int, size: int) -> None:
        """BrokenWorldError if a get of ``size`` bytes to the offset ``at`` of staging memory has failed."""
        if self._staging.is_marked(at, size):  # or memory that looks like the mark has come
            self.check_answer(pe)

    def _room(self, size: int) -> int:
        """The offset of ``size`` free bytes of staging memory. Non-blocking copies keep theirs until ``quiet``."""
        if self._staging.used + size > _STAGING_BYTES:
            self.quiet()
        at = self._staging.used
        self._staging.used += size
        return at

    def _check(self, pe: int, offset: int, count: int) -> None:
        if offset < 0 or count < 0 or count > self.size - offset:
            raise IndexError(
                f"{count} bytes at offset {offset} leave the symmetric heap of PE {pe}, which has {self.size} bytes"
            )

    def _check_strided(self, pe: int, offset: int, stride: int, size: int, count: int) -> None:
        if count:
            self._check(pe, offset, size)
            self._check(pe, offset + (count - 1) * stride, size)


def _parts(count: int) -> list[tuple[int, int]]:
    """A copy of ``count`` bytes in parts that staging memory holds: begin and size of each."""
    return [(begin, min(_STAGING_BYTES, count - begin)) for begin in range(0, count, _STAGING_BYTES)]


class _Staging:
    """Memory that the kernel copies from and to, so that it says which local addresses are not mapped."""

    def __init__(self, size: int) -> None:
        self._fd = os.memfd_create("triton_dist_staging", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, size)
        self._map = mmap.mmap(self._fd, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.used = 0
        self._mark = os.urandom(16)
        libc = ctypes.CDLL(None, use_errno=True)
        arguments = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
        self._pwrite, self._pread = libc.pwrite64, libc.pread64
        for function in (self._pwrite, self._pread):
            function.argtypes, function.restype = arguments, ctypes.c_ssize_t

    def __del__(self) -> None:
        os.close(self._fd)

    def mark(self, at: int, size: int) -> None:
        """Have the last of ``size`` bytes look as no data is likely to."""
        length = min(size, len(self._mark))
        self._map[at + size - length : at + size] = self._mark[:length]

    def is_marked(self, at: int, size: int) -> bool:
        length = min(size, len(self._mark))
        return self._map[at + size - length : at + size] == self._mark[:length]

    def fill(self, at: int, source: int, size: int) -> None:
        self._checked(self._pwrite(self._fd, source, size, at), size, "from", source)

    def empty(self, at: int, destination: int, size: int) -> None:
        self._checked(self._pread(self._fd, destination, size, at), size, "to", destination)

    @staticmethod
    def _checked(copied: int, size: int, way: str, address: int) -> None:
        if copied != size:  # where the memory ends within the range, the kernel has copied what there is
            reason = os.strerror(ctypes.get_errno() if copied < 0 else errno.EFAULT)
            raise RuntimeError(f"cannot copy {way} address {address + max(copied, 0):#x}: {reason}")


class _Words(RemoteWords):
    """Words of 4 or 8 bytes, by the library's atomics. These order nothing: a fence makes them release."""

    def __init__(self, heap: OshmemHeap, library: Library, pe: int, begin: int, size: int) -> None:
        self._heap = heap
        self._library, self._pe, self._begin, self._atomics = library, pe, begin, library.atomics[size]
        self._mask = (1 << 8 * size) - 1

    def _do(self, function: Callable[..., Any], pe: int, offset: int, order: Order, *operands: int) -> int:
        library = self._library
        if order in (Order.RELEASE, Order.ACQUIRE_RELEASE, Order.SEQUENTIALLY_CONSISTENT):
            library.call(library.fence)
        found = library.call(function, self._begin + offset, *(operand & self._mask for operand in operands), pe)
        if found is None:  # a function that fetches nothing
            return 0
        self._heap.check_answer(pe)
        return int(found)

    def load(self, pe: int, offset: int, order: Order) -> int:
        return self._do(self._atomics.fetch, pe, offset, Order.RELAXED)

    def store(self, pe: int, offset: int, value: int, order: Order) -> None:
        self._do(self._atomics.set, pe, offset, order, value)

    def exchange(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._do(self._atomics.swap, pe, offset, order, value)

    def fetch_add(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._do(self._atomics.fetch_add, pe, offset, order, value)

    def fetch_and(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._bitwise(self._atomics.fetch_and, operator.and_, pe, offset, value, order)

    def fetch_or(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._bitwise(self._atomics.fetch_or, operator.or_, pe, offset, value, order)

    def fetch_xor(self, pe: int, offset: int, value: int, order: Order) -> int:
        return self._bitwise(self._atomics.fetch_xor, operator.xor, pe, offset, value, order)

    def _bitwise(
        self, function: Callable[..., Any], combine: Callable[[int, int], int], pe: int, offset: int, value: int,
        order: Order,
    ) -> int:  # fmt: skip
        """On this PE's own words Open MPI 4.1.4 combines what is there with itself: these are compared and swapped."""
        if pe != self._pe:
            return self._do(function, pe, offset, order, value)
        seen = self.load(pe, offset, Order.RELAXED)
        while (before := self.compare_swap(pe, offset, seen, combine(seen, value & self._mask), order)) != seen:
            seen = before
        return seen

    def compare_swap(self, pe: int, offset: int, expected: int, value: int, order: Order) -> int:
        return self._do(self._atomics.compare_swap, pe, offset, order, expected, value)


class _Words32(_Words):
    """Words of 4 bytes. Open MPI 4.1.4's compare-and-swap of ``unsigned int`` overwrites its stack, so that of the
    enclosing 8 bytes is used, again where the other half has changed meanwhile."""

    def __init__(self, heap: OshmemHeap, library: Library, pe: int, begin: int, pairs: RemoteWords) -> None:
        super().__init__(heap, library, pe, begin, 4)
        self._pairs = pairs

    def compare_swap(self, pe: int, offset: int, expected: int, value: int, order: Order) -> int:
        pair, shift = offset // 8 * 8, offset % 8 * 8
        seen = self._pairs.load(pe, pair, Order.RELAXED)
        while seen >> shift & self._mask == expected & self._mask:
            changed = seen & ~(self._mask << shift) | (value & self._mask) << shift
            before = self._pairs.compare_swap(pe, pair, seen, changed, order)
            if before == seen:
                break
            seen = before
        return seen >> shift & self._mask


class _SmallWords(RemoteWords):
    """Words of 1 or 2 bytes, on which OpenSHMEM has no atomics: they are put and got."""

    def __init__(self, heap: OshmemHeap, size: int) -> None:
        self._heap, self._size = heap, size

    def load(self, pe: int, offset: int, order: Order) -> int:
        word = (ctypes.c_ubyte * self._size)()
        self._heap.read(pe, offset, ctypes.addressof(word), self._size)
        return int.from_bytes(bytes(word), "little")

    def store(self, pe: int, offset: int, value: int, order: Order) -> None:
        word = (ctypes.c_ubyte * self._size)(*(value % (1 << 8 * self._size)).to_bytes(self._size, "little"))
        self._heap.write(pe, offset, ctypes.addressof(word), self._size)

    def exchange(self, pe: int, offset: int, value: int, order: Order) -> int:
        raise self._no_atomics()

    def fetch_add(self, pe: int, offset: int, value: int, order: Order) -> int:
        raise self._no_atomics()

    def fetch_and(self, pe: int, offset: int, value: int, order: Order) -> int:
        raise self._no_atomics()

    def fetch_or(self, pe: int, offset: int, value: int, order: Order) -> int:
        raise self._no_atomics()

    def fetch_xor(self, pe: int, offset: int, value: int, order: Order) -> int:
        raise self._no_atomics()

    def compare_swap(self, pe: int, offset: int, expected: int, value: int, order: Order) -> int:
        raise self._no_atomics()

    def _no_atomics(self) -> RuntimeError:
        return RuntimeError(
            f"OpenSHMEM has no atomics on words of {8 * self._size} bits: use 32 or 64 bits, or"
            " TRITON_DIST_CPU_TRANSPORT=shared"
        )
