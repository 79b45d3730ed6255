"""The symmetric memory of a CPU world, by what carries it: one interface, which each transport implements.

The ops of kernels, the operations of hosts and the barriers of the PEs name memory by PE and offset in the heap, and
call these methods. Only memory that :meth:`SymmetricMemory.maps` has an address in this process, for loads and stores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from triton_dist.cpu.runtime.atomics import Order

__all__ = ["RemoteWords", "SymmetricMemory"]


class RemoteWords(ABC):
    """Atomic operations on words of one size in the heaps of all PEs, of unsigned integers.

    The caller has checked that the word lies in the heap and is aligned. Updates return the word that was there before.
    """

    @abstractmethod
    def load(self, pe: int, offset: int, order: Order) -> int: ...

    @abstractmethod
    def store(self, pe: int, offset: int, value: int, order: Order) -> None: ...

    @abstractmethod
    def exchange(self, pe: int, offset: int, value: int, order: Order) -> int: ...

    @abstractmethod
    def fetch_add(self, pe: int, offset: int, value: int, order: Order) -> int: ...

    @abstractmethod
    def fetch_and(self, pe: int, offset: int, value: int, order: Order) -> int: ...

    @abstractmethod
    def fetch_or(self, pe: int, offset: int, value: int, order: Order) -> int: ...

    @abstractmethod
    def fetch_xor(self, pe: int, offset: int, value: int, order: Order) -> int: ...

    @abstractmethod
    def compare_swap(self, pe: int, offset: int, expected: int, value: int, order: Order) -> int: ...


class SymmetricMemory(ABC):
    """The symmetric heaps of all PEs. A user of an address in them holds this object, which keeps the memory.

    Copies raise IndexError where the range leaves the heap, and RuntimeError where the local memory is not mapped.
    """

    size: int
    """Bytes of each heap."""

    @abstractmethod
    def maps(self, pe: int) -> bool:
        """Whether the heap of ``pe`` has an address in this process. This PE's own has."""

    @abstractmethod
    def base(self, pe: int) -> int:
        """Where the heap of ``pe``, which is mapped, begins."""

    @abstractmethod
    def find(self, address: int) -> tuple[int, int] | None:
        """The PE in whose mapped heap ``address`` is, and the offset there; None if it is in none."""

    @abstractmethod
    def words(self, size: int) -> RemoteWords:
        """Atomic operations on words of ``size`` bytes: 1, 2, 4 or 8."""

    @abstractmethod
    def write(self, pe: int, offset: int, source: int, count: int) -> None:
        """Copy ``count`` bytes from the address ``source`` to the heap of ``pe``. ``source`` may be reused at once."""

    @abstractmethod
    def read(self, pe: int, offset: int, destination: int, count: int) -> None:
        """Copy ``count`` bytes of the heap of ``pe`` to the address ``destination``."""

    @abstractmethod
    def write_strided(
        self, pe: int, offset: int, stride: int, source: int, source_stride: int, size: int, count: int
    ) -> None:
        """Write ``count`` pieces of ``size`` bytes, which begin a stride of bytes apart; it may be negative."""

    @abstractmethod
    def read_strided(
        self, pe: int, offset: int, stride: int, destination: int, destination_stride: int, size: int, count: int
    ) -> None:
        """Read what :meth:`write_strided` writes."""

    def write_nbi(self, pe: int, offset: int, source: int, count: int) -> None:
        """As :meth:`write`; it may arrive as late as :meth:`quiet`, until which ``source`` is not to be written."""
        self.write(pe, offset, source, count)

    def read_nbi(self, pe: int, offset: int, destination: int, count: int) -> None:
        """As :meth:`read`; ``destination`` may be written as late as by :meth:`quiet`."""
        self.read(pe, offset, destination, count)

    def fence(self) -> None:  # noqa: B027 (memory that is mapped is ordered by the updates' own order)
        """Writes and updates to a PE before this come before later ones to it."""

    def quiet(self) -> None:  # noqa: B027
        """All writes and updates have arrived, and non-blocking reads have returned."""

    def progress(self) -> None:  # noqa: B027
        """Let operations of other PEs on this PE's memory go on. Called by a PE that waits for one."""
