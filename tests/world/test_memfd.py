"""A file that another process is said to have is opened only if it is a memfd of this user's, of the expected label."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import tempfile

import pytest

from triton_dist.bootstrap import memfd

ME = os.getpid()


def test_what_was_made_can_be_opened() -> None:
    fd = memfd.create("words", bytes(16))
    other = memfd.open_of(ME, fd, "words")
    os.pwrite(other, b"x", 3)
    assert os.pread(fd, 16, 0) == b"\0\0\0x" + bytes(12)
    assert os.fstat(fd).st_mode & 0o777 == 0o600


def test_its_size_is_sealed() -> None:
    """A process that maps a file gets SIGBUS if another process truncates it."""
    fixed, grows = memfd.create("words", bytes(mmap.PAGESIZE)), memfd.create("log", b"ab", grows=True)
    for fd, size in ((fixed, 0), (fixed, 2 * mmap.PAGESIZE), (grows, 1)):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    os.write(grows, b"c")
    assert os.pread(grows, 9, 0) == b"abc"
    with pytest.raises(PermissionError):
        fcntl.fcntl(fixed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_what_is_something_else() -> None:
    with tempfile.TemporaryFile() as file:
        for fd in (file.fileno(), *os.pipe(), os.open("/dev/null", os.O_RDWR), os.memfd_create("other")):
            with pytest.raises(PermissionError, match="where a memfd triton_dist_log is expected"):
                memfd.open_of(ME, fd, "log")


def test_another_label_or_unsealed() -> None:
    with pytest.raises(PermissionError, match=r"triton_dist_heap_1 .*where a memfd triton_dist_heap_0 is expected"):
        memfd.open_of(ME, memfd.create("heap_1"), "heap_0")
    unsealed = os.memfd_create("triton_dist_log", os.MFD_ALLOW_SEALING)
    with pytest.raises(PermissionError, match="is not sealed"):
        memfd.open_of(ME, unsealed, "log", grows=True)
    with pytest.raises(PermissionError, match="is not sealed"):
        memfd.open_of(ME, memfd.create("log", grows=True), "log")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_of_another_user() -> None:
    """An attacker names his own process and a file of his own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        os.write(write, bytes([memfd.create("log", b"payload", grows=True)]))
        signal.pause()
        os._exit(0)
    try:
        with pytest.raises(PermissionError, match=r"belongs to user 65534, and this process to user 0"):
            memfd.open_of(pid, os.read(read, 1)[0], "log", grows=True)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_no_numbers() -> None:
    for pid, fd in ((ME, "3/../../../../tmp/evil"), ("self", 3), (ME, None)):
        with pytest.raises((TypeError, ValueError)):
            memfd.open_of(pid, fd, "log")  # type: ignore[arg-type]
    for pid, fd in ((ME, -1), (-1, 3), (ME, 1 << 40)):
        with pytest.raises(OSError, match="No such file"):
            memfd.open_of(pid, fd, "log")
