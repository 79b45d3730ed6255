"""The launcher of the tests themselves."""

from __future__ import annotations

import pytest

from triton_dist.testing import launch


def test_each_pe_has_its_own_story() -> None:
    code = (
        "import os, sys; print('out', os.environ['RANK']); sys.stderr.write('err'); sys.exit(int(os.environ['RANK']))"
    )
    result = launch(["-c", code], 3)
    assert [(pe.pe, pe.returncode, pe.stdout, pe.stderr) for pe in result] == [
        (pe, pe, f"out {pe}\n", "err") for pe in range(3)
    ]
    assert not result.ok and not result.timed_out
    with pytest.raises(RuntimeError, match=r"---- PE 2: exit status 2 after \S+ s\n\[stdout\] out 2\n\[stderr\] err"):
        result.check()


def test_output_up_to_the_time_limit() -> None:
    code = "import os, time; print('hello'); time.sleep(1000 * int(os.environ['LOCAL_RANK']))"
    result = launch(["-c", code], 2, timeout=2)
    if "".join(pe.stdout for pe in result) != "hello\nhello\n":  # a slow machine
        result = launch(["-c", code], 2, timeout=60)
    assert result.timed_out and [pe.returncode for pe in result] == [0, -9]
    assert [pe.stdout for pe in result] == ["hello\n", "hello\n"]


def test_no_pes() -> None:
    with pytest.raises(ValueError, match="n_pes is 0"):
        launch(["-c", ""], 0)
