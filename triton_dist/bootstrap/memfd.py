"""Memory files (memfds) that the PEs of one host share. The kernel guarantees their owner and their kind.

A PE names such a file by its process and descriptor, and other PEs open it through ``/proc``. The name comes from the
store, which other programs may write to, so it is not trusted: the file must be a memfd of this user, made by
:func:`create` with the same label. Another user can neither create such a file nor pass on a file of this user.
"""

from __future__ import annotations

import fcntl
import os
import stat

__all__ = ["create", "open_of"]

_LABEL = "triton_dist_{}"
_FIXED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_GROWS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


def create(label: str, content: bytes = b"", *, grows: bool = False) -> int:
    """A descriptor of a new file that only this user can open. Its size is fixed, or may only grow if ``grows``."""
    fd = os.memfd_create(_LABEL.format(label), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(fd, 0o600)
        os.write(fd, content)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _GROWS if grows else _FIXED)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_of(pid: int, fd: int, label: str, *, grows: bool = False) -> int:
    """A new descriptor of the file ``fd`` of process ``pid``. The file lives as long as either descriptor.

    Raises:
        PermissionError: the file is not a memfd of this user with this label and these seals.
        OSError: the process or its file no longer exists, or this process has no access to it.
    """
    path = f"/proc/{pid:d}/fd/{fd:d}"
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)  # O_PATH: opening a pipe or a device would have side effects
    try:
        status, target = os.fstat(found), os.readlink(f"/proc/self/fd/{found}")
        if target != f"/memfd:{_LABEL.format(label)} (deleted)" or not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{path} is {target} where a memfd {_LABEL.format(label)} is expected")
        if status.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to user {status.st_uid}, and this process to user {os.geteuid()}")
        opened = os.open(f"/proc/self/fd/{found}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(found)
    try:
        seals = fcntl.fcntl(opened, fcntl.F_GET_SEALS)  # an error for files that have no seals
        if seals & _FIXED != (_GROWS if grows else _FIXED):
            raise PermissionError(f"{path} is not sealed as triton_dist seals its files")
    except BaseException:
        os.close(opened)
        raise
    return opened
