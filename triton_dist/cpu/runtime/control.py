"""The control block of a world: who takes part, why the world is broken, and where all PEs meet."""

from __future__ import annotations

import enum
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_int64, c_uint64, c_void_p, create_string_buffer

from triton_dist.cpu.runtime.library import failing, function, waiting

__all__ = ["Barrier", "Caller", "ControlBlock", "State"]

_create = failing(waiting("control_create", c_int, c_int, POINTER(c_void_p)))
_open = failing(waiting("control_open", c_int, c_int, c_int, POINTER(c_void_p)))
_destroy = function("control_destroy", None, c_void_p)
_fd = function("control_fd", c_int, c_void_p)
_enter = failing(function("control_enter", c_int, c_void_p, c_int))
_leave = function("control_leave", None, c_void_p, c_int)
_state = failing(function("control_state", c_int, c_void_p, c_int, POINTER(c_int)))
_pid = function("control_pid", c_int64, c_void_p, c_int)
_abort = function("control_abort", None, c_void_p, c_int, c_char_p, c_uint64)
_aborted = function("control_aborted", c_int, c_void_p, c_char_p, c_uint64)
_announce = function("control_announce", None, c_void_p, c_int, c_int, c_uint64, c_char_p, c_uint64)
_announced = function("control_announced", None, c_void_p, c_int, c_int, c_uint64, c_char_p, c_uint64)
_arrive = function("barrier_arrive", c_uint64, c_void_p, c_int)
_passed = function("barrier_passed", c_bool, c_void_p, c_int, c_uint64)
_wait = waiting("barrier_wait", c_bool, c_void_p, c_int, c_uint64, c_double)

_LONGEST_REASON = 8192
_LONGEST_ANNOUNCEMENT = 512


class State(enum.IntEnum):
    """Of a PE, with the library's numbers. ``LOST``: its process has ended without a good-bye."""

    ABSENT = 0
    RUNNING = 1
    LEFT = 2
    LOST = 3


class Caller(enum.IntEnum):
    """Whose collectives: a PE's host and its kernels each have theirs. The library's numbers."""

    HOST = 0
    KERNEL = 1


class ControlBlock:
    """Made by one PE (:meth:`create`), and opened by the others by a descriptor of its memory (:meth:`open`)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @staticmethod
    def create(n_pes: int) -> ControlBlock:
        """RuntimeError: the memory cannot be had."""
        handle = c_void_p()
        _create(n_pes, byref(handle))
        return ControlBlock(handle.value or 0)

    @staticmethod
    def open(fd: int, n_pes: int) -> ControlBlock:
        """``fd`` is the block's own from then on. RuntimeError: it is no such block of ``n_pes`` PEs."""
        handle = c_void_p()
        _open(fd, n_pes, byref(handle))
        return ControlBlock(handle.value or 0)

    def __del__(self) -> None:
        _destroy(self._handle)

    @property
    def fd(self) -> int:
        """The descriptor of its memory."""
        return int(_fd(self._handle))

    def enter(self, pe: int) -> None:
        """This process is ``pe`` from now on."""
        _enter(self._handle, pe)

    def leave(self, pe: int) -> None:
        """This process is ``pe`` no longer."""
        _leave(self._handle, pe)

    def state(self, pe: int) -> State:
        """What has become of a PE's process."""
        state = c_int()
        _state(self._handle, pe, byref(state))
        return State(state.value)

    def pid(self, pe: int) -> int:
        """The process that has entered as ``pe``."""
        return int(_pid(self._handle, pe))

    def abort(self, pe: int, reason: str) -> None:
        """Break the world at the fault of ``pe``. Only the first call counts; a long reason is cut."""
        text = reason.encode(errors="backslashreplace")
        _abort(self._handle, pe, text, len(text))

    def aborted(self) -> tuple[int, str] | None:
        """At whose fault the world is broken, and why; None if it is not."""
        text = create_string_buffer(_LONGEST_REASON)
        pe = _aborted(self._handle, text, len(text))
        return None if pe < 0 else (pe, text.value.decode(errors="replace"))

    @property
    def host_barrier(self) -> Barrier:
        """That of the PEs' hosts. Not the kernels': a PE may wait in one, and another PE in the other."""
        return Barrier(self, Caller.HOST)

    @property
    def kernel_barrier(self) -> Barrier:
        """That of the PEs' kernels."""
        return Barrier(self, Caller.KERNEL)

    def announce(self, caller: Caller, pe: int, round: int, text: str) -> None:
        """Say what ``pe`` is about to do as the caller's collective number ``round``; kept until two rounds later."""
        encoded = text.encode(errors="backslashreplace")
        _announce(self._handle, caller, pe, round, encoded, len(encoded))

    def announced(self, caller: Caller, pe: int, round: int) -> str:
        """What ``pe`` has announced."""
        text = create_string_buffer(_LONGEST_ANNOUNCEMENT)
        _announced(self._handle, caller, pe, round, text, len(text))
        return text.value.decode(errors="replace")


class Barrier:
    """Where all PEs meet: each arrives and gets a ticket, which passes when all have arrived as often."""

    def __init__(self, block: ControlBlock, caller: Caller) -> None:
        self._block = block  # whose memory this lies in
        self._handle = block._handle
        self._caller = caller

    def arrive(self) -> int:
        """What was written before is seen by every PE that passes."""
        return int(_arrive(self._handle, self._caller))

    def passed(self, ticket: int) -> bool:
        """Whether all have arrived."""
        return bool(_passed(self._handle, self._caller, ticket))

    def wait(self, ticket: int, seconds: float) -> bool:
        """Wait at most ``seconds``; whether all have arrived."""
        return bool(_wait(self._handle, self._caller, ticket, seconds))
