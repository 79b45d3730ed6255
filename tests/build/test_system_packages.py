"""What scripts/install_system_packages.sh does on machines unlike this one, played by fake commands."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install_system_packages.sh"
TOOLS = ("bash", "dirname", "env", "head", "sed")
WANTED = (
    *("cmake", "ninja-build", "ccache", "g++", "zlib1g-dev", "libzstd-dev"),
    *("libmlir-22-dev", "mlir-22-tools", "llvm-22-dev", "llvm-22-tools", "clang-22", "clang-format-22"),
)


@dataclass
class Machine:
    """A machine that has some packages installed and can get others; its commands note how they were called."""

    folder: Path
    installed: tuple[str, ...] = WANTED
    available: tuple[str, ...] = (*WANTED, "python3-venv", "python3-dev")
    user: int = 0
    debian: bool = True
    sudo: bool = True
    python: str = "exit 0"
    calls: list[str] = field(default_factory=list)

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run the script on this machine."""
        log = self.folder / "log"
        log.touch()
        noted = f'echo "${{0##*/}} $*" >>{log}\n'
        commands = {"id": f"echo {self.user}", "python3": self.python, "apt-get": noted}
        if self.debian:
            commands["dpkg-query"] = (
                f'case " {" ".join(self.installed)} " in *" $3 "*) echo -n installed;; *) exit 1;; esac'
            )
            commands["apt-cache"] = f'case " {" ".join(self.available)} " in *" $2 "*) echo "$2 | 1.0";; esac'
        if self.sudo:
            commands["sudo"] = noted + 'exec "$@"'
        for name, body in commands.items():
            file = self.folder / name
            file.write_text(f"#!/bin/bash\n{body}\n")
            file.chmod(0o755)
        for name in TOOLS:
            path = shutil.which(name)
            assert path is not None
            (self.folder / name).symlink_to(path)
        bash = self.folder / "bash"
        result = subprocess.run([bash, SCRIPT], env={"PATH": str(self.folder)}, capture_output=True, text=True)
        self.calls = log.read_text().splitlines()
        return result


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A Debian machine that has everything, with root at the keyboard."""
    return Machine(tmp_path)


def test_with_everything_there_nothing_is_done_or_said(machine: Machine) -> None:
    result = machine.run()
    assert (result.returncode, result.stdout, result.stderr, machine.calls) == (0, "", "", [])


def test_only_what_is_missing_is_installed(machine: Machine) -> None:
    machine.installed = tuple(set(WANTED) - {"ccache", "mlir-22-tools"})
    assert machine.run().returncode == 0
    assert machine.calls == [
        "apt-get -q update",
        "apt-get -qy install --no-install-recommends ccache mlir-22-tools",
    ]


def test_a_user_installs_through_sudo(machine: Machine) -> None:
    machine.installed, machine.user = WANTED[1:], 1000
    assert machine.run().returncode == 0
    assert [call for call in machine.calls if call.startswith("sudo")] == [
        "sudo apt-get -q update",
        "sudo env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends cmake",
    ]


def test_a_user_without_sudo_is_told_what_root_should_type(machine: Machine) -> None:
    machine.installed, machine.user, machine.sudo = WANTED[2:], 1000, False
    result = machine.run()
    assert result.returncode == 1
    assert "as root: apt-get install cmake ninja-build" in result.stderr
    assert machine.calls == []


def test_a_python_without_venv_and_headers_gets_them(machine: Machine) -> None:
    machine.python = "exit 1"
    assert machine.run().returncode == 0
    assert machine.calls[-1].endswith(" python3-venv python3-dev")


def test_a_distribution_without_this_llvm_is_told_where_it_is(machine: Machine) -> None:
    machine.installed = machine.available = WANTED[:6]
    result = machine.run()
    assert result.returncode == 1
    assert "This distribution has no libmlir-22-dev" in result.stderr
    assert "apt.llvm.org/llvm.sh && sudo bash llvm.sh 22" in result.stderr
    assert machine.calls == ["apt-get -q update"]


def test_on_other_systems_the_list_is_told(machine: Machine) -> None:
    machine.debian = False
    result = machine.run()
    assert result.returncode == 0
    assert "no Debian or Ubuntu" in result.stderr
    assert " ".join(WANTED) in result.stderr
    assert machine.calls == []
