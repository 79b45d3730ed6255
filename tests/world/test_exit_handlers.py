"""A process whose libraries' exit handlers are skipped: its own status, and all of its output."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys
from triton_dist.bootstrap.exit_handlers import skip_exit_handlers

libc = ctypes.CDLL(None)
libc.on_exit(ctypes.c_void_p(1), None)  # no function is there
if "skip" in sys.argv:
    skip_exit_handlers()
libc.printf(b"from C\\n")
print("from Python")
sys.exit(3)
"""


@pytest.mark.parametrize(("argument", "status"), [("skip", 3), ("crash", -signal.SIGSEGV)])
def test_the_status_is_the_program_s(argument: str, status: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, argument], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert "from Python" in done.stdout
    assert argument == "crash" or "from C" in done.stdout
