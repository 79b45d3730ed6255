"""`pip install .`, `pip install -e .`, `python setup.py bdist_wheel` and an installed source distribution agree.

Each is done in sources and in an environment of its own, which lies in these sources as `.venv`, so that ccache sees
the paths of `make build`. Triton, PyTorch and the rest are the tests' own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
SITE_PACKAGES = Path(sysconfig.get_path("platlib"))
PIP_OPTIONS = ("--no-build-isolation", "--no-deps", "--no-index")
FIRST_EXAMPLE = "01_ring_put.py"
OURS = ("triton_dist", "_triton_dist", "_editable_skbc_triton_dist")

INSTALLED = """
import importlib.metadata, json
found = importlib.metadata.distribution("triton-dist")
print(json.dumps({
    # setuptools says of any licence file that it might have found others.
    "metadata": sorted([key, value] for key, value in found.metadata.items() if key != "Dynamic"),
    "description": found.metadata.get_payload(),
    "entry points": sorted([point.group, point.name, point.value] for point in found.entry_points),
    "tags": sorted(line for line in found.read_text("WHEEL").splitlines() if not line.startswith("Generator")),
    "files": sorted(map(str, found.files)),
}))
"""

# Modules by the import system, and what lies beside them by importlib.resources. Modules are found and not run.
FOUND = """
import hashlib, importlib.resources, importlib.util, json, pathlib, sys
found = {}
for name in json.load(sys.stdin):
    path = pathlib.PurePosixPath(name)
    if path.suffix == ".py" and path.stem.isidentifier():
        parts = path.parent.parts if path.stem == "__init__" else (*path.parent.parts, path.stem)
        spec = importlib.util.find_spec(".".join(parts))
        content = spec and pathlib.Path(spec.origin).read_bytes()
    else:
        file = importlib.resources.files(path.parts[0]).joinpath(*path.parts[1:])
        content = file.read_bytes() if file.is_file() else None
    found[name] = None if content is None else hashlib.sha256(content).hexdigest()
print(json.dumps(found))
"""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installation:
    """An environment that the package has been installed into."""

    sources: Path

    @property
    def bin(self) -> Path:
        return self.sources / ".venv" / "bin"

    @property
    def site_packages(self) -> Path:
        (folder,) = self.sources.glob(".venv/lib/python3*/site-packages")
        return folder

    def run(self, *command: str | Path, cwd: Path | None = None, stdin: str = "") -> str:
        """Run a command of the environment, which must end well; gives what it printed."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON", "PYTHON", "MAKE", "SKBUILD"))}
        kept |= {"CXX": "c++", "PATH": f"{self.bin}:{kept['PATH']}", "TRITON_DIST_WORLD": "cpu"}
        program, *arguments = command
        elsewhere = cwd or self.sources.parent  # where no source lies that could be imported
        done = subprocess.run(
            [self.bin / program, *arguments], cwd=elsewhere, env=kept, input=stdin, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @cached_property
    def installed(self) -> dict[str, Any]:
        """What the installed package says of itself."""
        found: dict[str, Any] = json.loads(self.run("python", "-c", INSTALLED))
        return found

    @property
    def files(self) -> set[str]:
        """What lies in site-packages, but for bytecode and what installers write down."""
        return {name for name in self.installed["files"] if ".dist-info/" not in name and "__pycache__" not in name}

    def found(self, names: set[str]) -> dict[str, str | None]:
        """Digests of modules and data files as a program finds them, by their place in the wheel."""
        found: dict[str, str | None] = json.loads(self.run("python", "-c", FOUND, stdin=json.dumps(sorted(names))))
        return found


def environment(sources: Path) -> Installation:
    """A new environment in `sources`, with the other packages of the tests' own."""
    venv.EnvBuilder(symlinks=True).create(sources / ".venv")
    made = Installation(sources)
    for path in SITE_PACKAGES.iterdir():
        if not path.name.startswith(OURS) and path.name not in ("__pycache__", "distutils-precedence.pth"):
            (made.site_packages / path.name).symlink_to(path)
    return made


def copy_of_the_sources(folder: Path) -> Path:
    """The files that git knows or would take, without what was built."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("these sources are no clone, so what belongs to them is not known")
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def by_pip(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    made = environment(copy_of_the_sources(tmp_path_factory.mktemp("pip") / "sources"))
    made.run("python", "-m", "pip", "install", *PIP_OPTIONS, "-C", "build-dir=build", ".", cwd=made.sources)
    return made


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    made = environment(copy_of_the_sources(tmp_path_factory.mktemp("editable") / "sources"))
    made.run("python", "-m", "pip", "install", *PIP_OPTIONS, "-C", "build-dir=build", "-e", ".", cwd=made.sources)
    return made


@pytest.fixture(scope="module")
def by_setup_py(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    made = environment(copy_of_the_sources(tmp_path_factory.mktemp("setup_py") / "sources"))
    # _skbuild, as deep as pip's build folder, so that ccache has what that compiled.
    made.run("python", "setup.py", "-q", "build", "--build-temp", ".", "bdist_wheel", cwd=made.sources)
    (wheel,) = (made.sources / "dist").glob("*.whl")
    made.run("python", "-m", "pip", "install", *PIP_OPTIONS, wheel)
    return made


@pytest.fixture(scope="module")
def from_sdist(by_pip: Installation, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("sdist")
    build = f"from scikit_build_core.build import build_sdist; print(build_sdist({str(folder)!r}))"
    by_pip.run("python", "-c", build, cwd=by_pip.sources)
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder, filter="data")
    made = environment(folder / archive.name.removesuffix(".tar.gz"))
    made.run("python", "-m", "pip", "install", *PIP_OPTIONS, "-C", "build-dir=build", ".", cwd=made.sources)
    return made


@pytest.fixture(params=["by_setup_py", "from_sdist", "editable"])
def other(request: pytest.FixtureRequest) -> Installation:
    """Each installation that is compared with that of `pip install .`."""
    found: Installation = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["by_pip", "by_setup_py", "from_sdist", "editable"])
def each(request: pytest.FixtureRequest) -> Installation:
    found: Installation = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("what", ["metadata", "description", "entry points"])
def test_the_metadata_agrees(by_pip: Installation, other: Installation, what: str) -> None:
    assert other.installed[what] == by_pip.installed[what]


@pytest.mark.parametrize("way", ["by_setup_py", "from_sdist"])
def test_the_wheels_install_the_same_files(by_pip: Installation, way: str, request: pytest.FixtureRequest) -> None:
    """An editable installation has its own tags, and links in place of files."""
    installation: Installation = request.getfixturevalue(way)
    assert installation.installed["tags"] == by_pip.installed["tags"]
    assert installation.files == by_pip.files


def test_the_same_modules_and_data_are_found(by_pip: Installation, other: Installation) -> None:
    """And the same binaries: those are built in different folders, and depend on none."""
    names = {name for name in by_pip.files if not name.startswith("..")} - {"triton_dist.pth"}
    assert {PurePosixPath(name).suffix for name in names} >= {".py", ".so", ".bc", ".json", ".toml", ".h", ".typed"}
    expected = by_pip.found(names)
    assert None not in expected.values()
    assert other.found(names) == expected


def test_the_hook_sees_imports_of_triton(each: Installation) -> None:
    program = "import triton, triton_dist; from _triton_dist_loader import plugin_path; print(plugin_path())"
    assert Path(each.run("python", "-c", program).strip()).is_relative_to(each.sources)


def test_the_commands_run(each: Installation) -> None:
    info = json.loads(each.run("triton-dist-info", "--json"))
    assert Path(info["versions"]["plugin"]["path"]).is_relative_to(each.sources)
    for _, name, _ in each.installed["entry points"]:
        assert each.run(name, "--help")


def test_the_first_example_runs(each: Installation) -> None:
    program = f"from triton_dist.demo import EXAMPLES; print(EXAMPLES / {FIRST_EXAMPLE!r})"
    example = Path(each.run("python", "-c", program).strip())
    assert example.is_relative_to(each.sources)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", example]
    assert "PASS " in each.run("python", *command)
