"""Files in memory that the PEs of one host share, and whose owner and kind the kernel vouches for.

A PE names such a file by its process and descriptor, and others open it below ``/proc``. The name comes from the store,
which anybody may write to, so nothing is believed of it: what lies there must be a memfd of this user's, made by
:func:`create` with the same label. Another user can neither make such a file nor pass one of this user's on.
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
    """A descriptor of a new file, for this user alone. Its size stays that of ``content``, or only ``grows``."""
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
    """A descriptor of the file ``fd`` of process ``pid``, which from then on lives as long as either of them.

    Raises:
        PermissionError: what lies there is not such a file of this user's.
        OSError: the process, or its file, is gone or closed to this one.
    """
    path = f"/proc/{pid:d}/fd/{fd:d}"
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)  # opens nothing yet: a pipe or a device would notice
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
        seals = fcntl.fcntl(opened, fcntl.F_GET_SEALS)  # fails for files of other kinds
        if seals & _FIXED != (_GROWS if grows else _FIXED):
            raise PermissionError(f"{path} is not sealed as triton_dist seals its files")
    except BaseException:
        os.close(opened)
        raise
    return opened
