"""What a user gets: a source distribution that builds, a wheel that holds everything, and an installation that works.

One chain, as a release would go: sources → sdist → wheel → a virtual environment of its own. The wheel is compiled as
`make build` compiles (in build/, with the Python of .venv/, by c++), so that ccache has it all.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
TRITON = importlib.metadata.version("triton")
SITE_PACKAGES = sysconfig.get_path("platlib")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command that must end well; gives what it printed."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON", "PYTHON", "MAKE"))}
    result = subprocess.run(command, cwd=cwd, env=inherited | {"CXX": "c++"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    build = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
    run(sys.executable, "-c", build, cwd=REPOSITORY)
    (archive,) = folder.glob("*.tar.gz")
    run("tar", "-xf", archive, cwd=folder)
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    (unpacked / ".venv").symlink_to(sys.prefix)
    return unpacked


@pytest.fixture(scope="module")
def wheel(sources: Path) -> Path:
    """The wheel that the source distribution builds."""
    options = ["--no-build-isolation", "--no-deps", "--no-index", "-C", "build-dir=build", "-w", "dist"]
    run(sources / ".venv" / "bin" / "python", "-m", "pip", "wheel", *options, ".", cwd=sources)
    (found,) = (sources / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that holds the wheel, and may import the tests' own Triton and PyTorch."""
    folder = tmp_path_factory.mktemp("installed")
    venv.EnvBuilder(symlinks=True).create(folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    site_packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (site_packages / "zz_more.pth").write_text(f"{SITE_PACKAGES}\n")
    return python


def test_the_source_distribution_holds_what_the_build_needs(sources: Path) -> None:
    held = {path.relative_to(sources).as_posix() for path in sources.rglob("*") if path.is_file()}
    assert {"CMakeLists.txt", "LICENSE", "README.md", "triton_dist.pth", "lowering/include/Shmem/ShmemOps.td"} <= held
    assert not [name for name in held if name.startswith(("tests/", "build/", ".ci/")) or "/_C/" in name]


def test_the_wheel_holds_the_binaries_the_hook_and_the_types(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "_triton_dist_compile.py",
        "_triton_dist_info.py",
        "_triton_dist_loader.py",
        "_triton_dist_support.py",
        "triton_dist.pth",
        "triton_dist/ahead_of_time/triton_dist_kernel.h",
        *(f"triton_dist/examples/{path.name}" for path in (REPOSITORY / "examples").glob("*.py")),
        f"triton_dist/_C/libtriton_dist_plugin-{TRITON}.so",
        f"triton_dist/_C/libtriton_dist_plugin-{TRITON}.json",
        "triton_dist/_C/op_table.py",
        "triton_dist/_C/shmem_op_classes.py",
        "triton_dist/_C/p2p_nvptx64.bc",
        "triton_dist/_C/p2p_amdgcn.bc",
        "triton_dist/_C/p2p_hosts_nvptx64.bc",
        "triton_dist/_C/p2p_hosts_amdgcn.bc",
        "triton_dist/_C/p2p_state.json",
        "triton_dist/_C/libtriton_dist_runtime.so",
        "triton_dist/_C/native_calls.abi3.so",
        "triton_dist/__init__.py",
        "triton_dist/py.typed",
    } <= held
    assert {name.partition("/")[0].partition("-")[0] for name in held} == {
        "_triton_dist_compile.py",
        "_triton_dist_info.py",
        "_triton_dist_loader.py",
        "_triton_dist_support.py",
        "triton_dist.pth",
        "triton_dist",
    }


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    """Tables, descriptions of machines and headers, too, which lie beside the modules."""
    listed = subprocess.run(["git", "ls-files", "triton_dist"], cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("these sources are no clone, so what belongs to them is not known")
    files = listed.stdout.splitlines()
    assert {Path(name).suffix for name in files} >= {".py", ".h", ".json", ".toml", ".typed"}
    assert set(files) - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_the_wheel_is_for_every_python(wheel: Path) -> None:
    assert wheel.name.split("-")[2:] == ["py3", "none", "linux_x86_64.whl"]
    tags = zipfile.ZipFile(wheel).read(f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false" in tags


def test_setup_py_takes_the_same_files(wheel: Path, sources: Path, tmp_path: Path) -> None:
    """Setuptools finds by itself what CMake does not build, and has the tag from setup.py."""
    program = f"""import sys
sys.argv[1:] = ["-q", "build_py", "-d", {str(tmp_path)!r}]
import setup
print(*setup.WheelForEveryPython(setup.distribution).get_tag()[:2])"""
    assert run(sources / ".venv" / "bin" / "python", "-c", program, cwd=sources).split()[-2:] == ["py3", "none"]
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if "/_C/" not in name and ".dist-info/" not in name}
    assert found == held


@pytest.mark.skipif(
    tuple(map(int, platform.libc_ver()[1].split("."))) > (2, 36), reason="this glibc's headers name newer functions"
)
def test_the_binaries_need_old_libraries_only(wheel: Path, tmp_path: Path) -> None:
    """What is built on a recent distribution runs where a wheel of manylinux_2_28 must."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = [archive.extract(name, tmp_path) for name in archive.namelist() if name.endswith(".so")]
    assert len(libraries) >= 2
    for library in libraries:
        symbols = run("objdump", "-T", library, cwd=tmp_path)
        for versions, newest in ((r"GLIBC_2\.(\d+)", 28), (r"GLIBCXX_3\.4\.(\d+)", 24)):
            assert versions.split("_")[0] in symbols, library
            assert max(map(int, re.findall(versions, symbols)), default=0) <= newest, (library, versions)


def test_building_a_wheel_leaves_the_sources_alone(wheel: Path, sources: Path) -> None:
    assert wheel.exists()
    assert not (sources / "triton_dist" / "_C").exists()


@pytest.mark.parametrize(
    "program", ["import triton, triton_dist", pytest.param("import triton_dist, triton", marks=pytest.mark.slow)]
)
def test_an_installed_wheel_works(installed: Path, tmp_path: Path, program: str) -> None:
    program += "; from _triton_dist_loader import plugin_pass"
    program += "; print(triton_dist.__file__, plugin_pass('shmem_to_llvm'))"
    file, shmem_to_llvm = run(installed, "-c", program, cwd=tmp_path).split(maxsplit=1)
    assert Path(file).is_relative_to(installed.parents[1])
    assert shmem_to_llvm.strip() != "None"


def test_the_installed_runtime_loads(installed: Path, tmp_path: Path) -> None:
    run(installed, "-c", "import triton_dist.cpu.runtime.heap", cwd=tmp_path)


@pytest.mark.slow
def test_the_demo_runs_the_examples_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Nothing of a clone is beside an installed package."""
    printed = run(installed, "-m", "triton_dist.demo", "--pes", "1", cwd=tmp_path)
    assert printed.splitlines()[-1] == f"all {len(list((REPOSITORY / 'examples').glob('[0-9]*.py')))} passed"
    folder = installed.parents[1] / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    assert str(folder / "triton_dist" / "examples" / "01_ring_put.py") in printed


@pytest.mark.slow
def test_a_plugin_that_fails_the_check_is_not_published(sources: Path, tmp_path: Path) -> None:
    triton = tmp_path / "triton"
    (triton / "_C").mkdir(parents=True)
    (triton / "__init__.py").write_text(f"__version__ = '{TRITON}'\n")
    library = triton / "_C" / "libtriton.so"
    subprocess.run(["cc", "-xc", os.devnull, "-shared", "-Wl,-soname,libtriton.so", "-o", library], check=True)
    build = sources / "build-that-fails"
    python = sources / ".venv" / "bin" / "python"
    definitions = [f"-DTRITON_DIR={triton}", f"-DPython_EXECUTABLE={python}", f"-DTRITON_DIST_OUTPUT_DIR={tmp_path}"]
    run("cmake", "-G", "Ninja", "-B", build, *definitions, cwd=sources)
    result = subprocess.run(["cmake", "--build", build, "--target", "publish_plugin"], capture_output=True, text=True)
    assert result.returncode != 0
    assert "ABI check failed" in result.stdout
    assert "libtriton.so does not export" in result.stdout
    assert not list(tmp_path.glob("*.so"))
