"""Descriptions of machines: each value is there and good, or one error says which is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from triton_dist.model.machine import MACHINES, Machine, MachineError

TEXT = (MACHINES / "h200.toml").read_text()


@pytest.mark.parametrize("file", sorted(MACHINES.glob("*.toml")), ids=lambda file: file.stem)
def test_those_of_the_package_are_good(file: Path) -> None:
    machine = Machine.load(file.stem)
    assert machine == Machine.load(file) and machine.sm.flops[2] > machine.sm.flops[4]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (r"^count = \d+", "", r"sm\.count is missing"),
        (r"^count = \d+", "count = 132.5", r"sm\.count must be a positive integer, got 132\.5"),
        (r"^count = \d+", "count = true", r"sm\.count must be a positive integer, got True"),
        (r"^count = \d+", "count = 0", r"sm\.count must be a positive integer, got 0"),
        (r"^fence = \S+", "fence = -1", r"sm\.fence must be a positive number, got -1"),
        (r"^fence = \S+", "fence = nan", r"sm\.fence must be a positive number, got nan"),
        (r"^fence = \S+", "fence = 'a'", r"sm\.fence must be a positive number, got 'a'"),
        (r"^fence = \S+", "fence = 1\nfench = 1", r"sm\.fench is unknown; known are count, programs"),
        (r"^\[network\]", "[nic]", r"nic is unknown; known are name, gpus_per_host"),
        (r"^2 = \d+", "3 = 1", r"sm\.flops must be a table by bytes of an element"),
        (r"^name = .*", "name = 3", r"name must be a text, got 3"),
        (r"^name = .*", "name = ", "Invalid value"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, told: str) -> None:
    text, count = re.subn(old, new, TEXT, count=1, flags=re.MULTILINE)
    assert count == 1
    file = tmp_path / "machine.toml"
    file.write_text(text)
    with pytest.raises(MachineError, match=rf"machine\.toml: .*{told}"):
        Machine.load(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"No such file or directory; a file, or one of h200"):
        Machine.load(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(MachineError, match=r"binary\.toml: .*utf-8"):
        Machine.load(tmp_path / "binary.toml")
