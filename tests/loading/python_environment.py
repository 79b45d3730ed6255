"""Throw-away Python environments in which triton_dist is, or is not, installed beside one Triton or another."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from limits import HANG_SECONDS

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own, where tests put into site-packages what they need."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return self.folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"

    def add_path(self, folder: Path) -> None:
        """Make what lies in ``folder`` importable. Its own .pth files are not read: nothing else is installed there."""
        (self.site_packages / "zz_more.pth").write_text(f"{folder}\n")

    def add_triton_dist(self, *, hook: bool = True, binaries: Path | None = None) -> None:
        """Install the source tree's package, with its start-up hook and with other binaries if asked for."""
        package = self.site_packages / "triton_dist"
        if binaries is None:
            package.symlink_to(REPOSITORY / "triton_dist")
        else:
            package.mkdir()
            for source in (REPOSITORY / "triton_dist").iterdir():
                (package / source.name).symlink_to(binaries if source.name == "_C" else source)
        for module in ("_triton_dist_info.py", "_triton_dist_loader.py", "_triton_dist_support.py"):
            (self.site_packages / module).symlink_to(REPOSITORY / module)
        if hook:
            (self.site_packages / "triton_dist.pth").symlink_to(REPOSITORY / "triton_dist.pth")

    def add_fake_triton(self, version: str) -> None:
        """A package that calls itself Triton and tells what TRITON_PLUGIN_PATHS was when its libtriton was imported."""
        package = self.site_packages / "triton"
        (package / "_C").mkdir(parents=True)
        (package / "__init__.py").write_text(f"__version__ = '{version}'\nfrom ._C import libtriton\n")
        (package / "_C" / "libtriton.py").write_text("import os\nseen = os.environ.get('TRITON_PLUGIN_PATHS')\n")

    def add_real_triton(self) -> None:
        """The Triton that the tests themselves run with."""
        self.add_path(Path(sysconfig.get_path("platlib")))

    def run(self, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program; the result holds its output, and what went wrong, as text."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON", "PYTHON", "COVERAGE"))}
        return subprocess.run(
            [self.python, "-c", program],
            cwd=self.folder,
            env=inherited | variables,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )


def printed(result: subprocess.CompletedProcess[str]) -> str:
    """What a program that ended well printed."""
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def import_error(result: subprocess.CompletedProcess[str]) -> str:
    """The message of the ImportError that a program ended with."""
    assert result.returncode == 1, result
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: "), result.stderr
    return last
