"""Accesses to an allocation of shared memory: ordinary ones, and those of TMA and tensor cores, which are other proxies
(PTX ISA, memory consistency model). What no fence or wait has ordered is an error."""

from __future__ import annotations

from triton_dist.cpu.gluon.partition import Partition, partition

__all__ = ["Accesses"]


class _Unfenced:
    """Ordinary accesses that may be under way when TMA or tensor cores come: no fence is behind them, neither in the
    partition of the access nor, since then, in the one that issues what comes."""

    def __init__(self) -> None:
        self._fenced_since: dict[tuple[int, int, Partition], set[Partition]] = {}
        """By the bytes, and by whom they were accessed, who has fenced since."""

    def add(self, begin: int, end: int) -> None:
        self._fenced_since[begin, end, partition()] = set()

    def fence(self) -> None:
        """This partition does."""
        here = partition()
        self._fenced_since = {access: since for access, since in self._fenced_since.items() if access[2] is not here}
        for since in self._fenced_since.values():
            since.add(here)

    def has_part_of(self, begin: int, end: int) -> bool:
        """Whether there are such accesses for what this partition issues."""
        return any(
            first < end and begin < last and partition() not in since
            for (first, last, _), since in self._fenced_since.items()
        )


class Accesses:
    """Those that others may have to wait for."""

    def __init__(self) -> None:
        self._stored, self._loaded = _Unfenced(), _Unfenced()
        self._readers: dict[object, tuple[int, int, str]] = {}
        """What TMA and tensor cores may be reading, by the copy or product, and how a kernel waits for that."""

    def store(self, begin: int, end: int) -> None:
        """An ordinary one. RuntimeError if there may be none."""
        self._check_readers("an ordinary store", begin, end)
        self._stored.add(begin, end)

    def load(self, begin: int, end: int) -> None:
        """An ordinary one."""
        self._loaded.add(begin, end)

    def fence(self) -> None:
        """Of this partition."""
        self._stored.fence()
        self._loaded.fence()

    def begins_to_read(self, reader: object, begin: int, end: int, how: str) -> None:
        """TMA or tensor cores do, until the kernel knows that they have."""
        self._readers[reader] = begin, end, how

    def has_read(self, reader: object) -> None:
        self._readers.pop(reader, None)

    def read_asynchronously(self, what: str, begin: int, end: int) -> None:
        """TMA or tensor cores do. RuntimeError if they may not."""
        if self._stored.has_part_of(begin, end):
            raise RuntimeError(
                f"{what} reads shared memory that was stored without a fence: call fence_async_shared() behind the"
                " store, in the partition that stores"
            )

    def write_asynchronously(self, what: str, begin: int, end: int) -> None:
        """TMA does. RuntimeError if it may not."""
        self._check_readers(what, begin, end)
        for done, access in ((self._loaded, "load"), (self._stored, "store")):
            if done.has_part_of(begin, end):
                raise RuntimeError(
                    f"{what} overwrites shared memory behind an ordinary {access} without a fence, which may still be"
                    f" under way: call fence_async_shared() behind the {access}, in its partition, before TMA goes on"
                )

    def _check_readers(self, what: str, begin: int, end: int) -> None:
        for first, last, how in self._readers.values():
            if first < end and begin < last:
                raise RuntimeError(f"{what} overwrites shared memory that {how}")
