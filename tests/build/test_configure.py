"""What CMake takes for Triton, MLIR and NVSHMEM, and what it says to install when one of them is not there."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import triton_dist

REPOSITORY = Path(__file__).parents[2]
SUPPORTED = json.loads((REPOSITORY / "cmake" / "supported_triton.json").read_text())
NEWEST = list(SUPPORTED)[-1]
REQUIRED = f"triton=={next(iter(SUPPORTED))}"
INSTALLED = importlib.metadata.version("triton")
OTHERS = [version for version in SUPPORTED if version != INSTALLED]
LLVM = SUPPORTED[INSTALLED]["llvm"]
SITE_PACKAGES = Path(sysconfig.get_path("platlib"))

Configure = Callable[..., subprocess.CompletedProcess[str]]


def said(result: subprocess.CompletedProcess[str]) -> str:
    """CMake's messages without its line breaks."""
    return re.sub(r"\s+", " ", result.stdout + result.stderr)


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Configures the project."""

    def run(*definitions: str, python: str | Path = sys.executable) -> subprocess.CompletedProcess[str]:
        command = ["cmake", "-G", "Ninja", "-S", REPOSITORY, "-B", tmp_path / "build", f"-DPython_EXECUTABLE={python}"]
        output = f"-DTRITON_DIST_OUTPUT_DIR={tmp_path / 'output'}"
        return subprocess.run([*command, output, *definitions], capture_output=True, text=True)

    return run


@pytest.fixture
def find(tmp_path: Path) -> Configure:
    """Runs one of our find modules alone and prints what it found: no compiler, a tenth of a second."""

    def run(package: str, *definitions: str, python: str | Path = sys.executable) -> subprocess.CompletedProcess[str]:
        project = tmp_path / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(f"""
            cmake_minimum_required(VERSION 3.20)
            project(find NONE)
            list(APPEND CMAKE_MODULE_PATH "{REPOSITORY}/cmake")
            find_package({package} REQUIRED)
            message(STATUS "found ${{{package}_VERSION}} plugin API ${{Triton_PLUGIN_API}} at ${{Triton_LIBRARY}}")
        """)
        command = ["cmake", "-S", project, "-B", project / "build", f"-DPython_EXECUTABLE={python}", *definitions]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})

    return run


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python without any package."""
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    return tmp_path / "bare" / "bin" / "python"


def lay_out(folder: Path, version: str, package: str = "", library: str = "_C/libtriton.so") -> Path:
    """Something that looks like a Triton of a version, its package and library where they are told to be."""
    for path, content in ((f"{package}/__init__.py", f"__version__ = '{version}'\n"), (f"{package}/{library}", "")):
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder


# Triton


def test_triton_is_found_in_the_python_that_builds(find: Configure) -> None:
    assert f"{SITE_PACKAGES}/triton/_C/libtriton.so" in said(find("Triton"))


@pytest.mark.parametrize("package", ["", "triton", "python/triton"], ids=["package", "site-packages", "source tree"])
def test_triton_dir_takes_packages_and_source_trees(find: Configure, tmp_path: Path, package: str) -> None:
    folder = lay_out(tmp_path / "given", NEWEST, package)
    message = said(find("Triton", f"-DTRITON_DIR={folder}"))
    assert f"found {NEWEST} plugin API {SUPPORTED[NEWEST]['plugin_api']} at {folder / package}" in message


def test_triton_dir_takes_a_build_tree(find: Configure, tmp_path: Path) -> None:
    sources = lay_out(tmp_path / "sources", NEWEST, "python/triton")
    (sources / "python/triton/_C/libtriton.so").unlink()
    build = tmp_path / "build"
    build.mkdir()
    (build / "libtriton.so").touch()
    (build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={sources}\n")
    assert f"found {NEWEST} plugin API 2 at {build}/libtriton.so" in said(find("Triton", f"-DTRITON_DIR={build}"))


@pytest.mark.parametrize("version", ["3.6.0", "4.0.0", f"{NEWEST}0"])
def test_another_triton_is_refused(find: Configure, tmp_path: Path, version: str) -> None:
    result = find("Triton", f"-DTRITON_DIR={lay_out(tmp_path / 'given', version)}")
    assert result.returncode != 0
    assert f"Triton {version}" in said(result)
    assert f"is not one that the plugin supports: {', '.join(SUPPORTED)}" in said(result)
    assert f"pip install {REQUIRED}" in said(result)


def test_a_local_build_of_a_supported_release_is_taken(find: Configure, tmp_path: Path) -> None:
    result = find("Triton", f"-DTRITON_DIR={lay_out(tmp_path / 'given', f'{NEWEST}+git1234')}")
    assert f"found {NEWEST}+git1234 plugin API" in said(result)


def test_a_folder_without_triton_is_refused(find: Configure, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = find("Triton", f"-DTRITON_DIR={tmp_path / 'empty'}")
    assert result.returncode != 0
    assert "No built Triton" in said(result)
    assert f"pip install {REQUIRED}" in said(result)


def test_a_python_without_triton_is_told_to_install_it(find: Configure, bare_python: Path) -> None:
    result = find("Triton", python=bare_python)
    assert result.returncode != 0
    assert f"{bare_python} -m pip install {REQUIRED}" in said(result)


# Plugins for other versions of Triton


@pytest.mark.parametrize(
    ("asked", "built"), [("none", False), pytest.param("all", True, marks=pytest.mark.slow), (OTHERS[-1], True)]
)
def test_plugins_for_other_versions_are_built_when_asked(configure: Configure, asked: str, built: bool) -> None:
    result = configure(f"-DALSO_FOR_TRITON={asked}")
    assert result.returncode == 0, said(result)
    folder = Path(re.findall(r"written to: (\S+)", said(result))[-1])
    planned = subprocess.run(["ninja", "-C", folder, "-n", "-v"], capture_output=True, text=True, check=True).stdout
    assert (f"fetch_triton.py {OTHERS[-1]}" in planned) == built
    assert (
        f"plugin-{OTHERS[-1]}:"
        in subprocess.run(["ninja", "-C", folder, "-t", "targets"], capture_output=True, text=True).stdout
    )


def environment_with_triton(tmp_path: Path, version: str) -> Path:
    """The Python of an environment that says which Triton it has, if any."""
    venv.EnvBuilder(symlinks=True).create(tmp_path / "environment")
    [site_packages] = (tmp_path / "environment" / "lib").glob("python*/site-packages")
    if version:
        facts = site_packages / f"triton-{version}.dist-info" / "METADATA"
        facts.parent.mkdir()
        facts.write_text(f"Metadata-Version: 2.1\nName: triton\nVersion: {version}\n")
    return tmp_path / "environment" / "bin" / "python"


@pytest.mark.parametrize(
    ("version", "built"),
    [
        (OTHERS[-1], [OTHERS[-1]]),
        pytest.param("3.6.0", [], marks=pytest.mark.slow),
        pytest.param(f"{OTHERS[-1]}+git12", [OTHERS[-1]], marks=pytest.mark.slow),
        pytest.param("", OTHERS, marks=pytest.mark.slow),
    ],
)
def test_pip_builds_for_the_triton_of_the_environment(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, built: list[str]
) -> None:
    python = environment_with_triton(tmp_path, version)
    monkeypatch.setenv("PYTHONPATH", str(SITE_PACKAGES))
    result = configure("-DSKBUILD_STATE=editable", python=python)
    assert result.returncode == 0, said(result)
    assert ("This environment has Triton 3.6.0" in said(result)) == (version == "3.6.0")
    folder = Path(re.findall(r"written to: (\S+)", said(result))[-1])
    planned = subprocess.run(["ninja", "-C", folder, "-n", "-v"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"fetch_triton.py (\S+)", planned) == built


def test_a_plugin_for_an_unsupported_version_is_refused(configure: Configure) -> None:
    result = configure("-DALSO_FOR_TRITON=3.6.0")
    assert result.returncode != 0
    assert f"ALSO_FOR_TRITON names Triton 3.6.0; the plugin supports {', '.join(SUPPORTED)}" in said(result)


# NVSHMEM


def test_nvshmem_is_found_in_the_python_that_builds(find: Configure) -> None:
    assert "found 3.4.5" in said(find("NVSHMEM"))


def test_a_python_without_nvshmem_is_told_to_install_it(find: Configure, bare_python: Path) -> None:
    result = find("NVSHMEM", python=bare_python)
    assert result.returncode != 0
    assert f"{bare_python} -m pip install nvidia-nvshmem-cu13==3.4.5" in said(result)


def test_a_folder_without_nvshmem_is_refused(find: Configure, tmp_path: Path) -> None:
    result = find("NVSHMEM", f"-DNVSHMEM_DIR={tmp_path}")
    assert result.returncode != 0
    assert f"NVSHMEM's headers were not found in '{tmp_path}'" in said(result)


# Python, MLIR and what LLVM needs


@pytest.mark.parametrize("variable", ["MLIR_DIR", pytest.param("LLVM_DIR", marks=pytest.mark.slow)])
def test_a_folder_without_llvm_is_refused(configure: Configure, tmp_path: Path, variable: str) -> None:
    result = configure(f"-D{variable}={tmp_path}")
    assert result.returncode != 0
    assert f"Config.cmake in {tmp_path}" in said(result)
    assert f"apt-get install libmlir-{LLVM}-dev mlir-{LLVM}-tools llvm-{LLVM}-dev" in said(result)


@pytest.mark.parametrize(
    ("project", "package"), [("mlir", "mlir-{}-tools"), pytest.param("llvm", "llvm-{}-dev", marks=pytest.mark.slow)]
)
@pytest.mark.skipif(not Path(f"/usr/lib/llvm-{LLVM}").exists(), reason=f"LLVM {LLVM} is unpacked here, not installed")
def test_llvm_without_tablegen_is_refused(configure: Configure, tmp_path: Path, project: str, package: str) -> None:
    llvm = tmp_path / "llvm"
    llvm.mkdir()
    (llvm / "lib").symlink_to(f"/usr/lib/llvm-{LLVM}/lib")
    result = configure(f"-D{project.upper()}_DIR={llvm}/lib/cmake/{project}")
    assert result.returncode != 0
    assert f"There is no {llvm}/bin/{project}-tblgen" in said(result)
    assert f"apt-get install {package.format(LLVM)}" in said(result)


@pytest.mark.parametrize(
    ("library", "package"), [("ZLIB", "zlib1g-dev"), pytest.param("zstd", "libzstd-dev", marks=pytest.mark.slow)]
)
def test_what_llvm_needs_is_named(configure: Configure, library: str, package: str) -> None:
    result = configure(f"-DCMAKE_DISABLE_FIND_PACKAGE_{library}=ON")
    assert result.returncode != 0
    assert f"needs {library}" in said(result)
    assert f"apt-get install {package}" in said(result)


# clang for the device library


def test_without_clang_its_package_is_named(configure: Configure, tmp_path: Path) -> None:
    result = configure(f"-DCLANG_FOR_DEVICES={tmp_path / 'clang'}")
    assert result.returncode != 0
    assert "which compiles the device library, was not found" in said(result)
    assert f"apt-get install clang-{min(version['llvm'] for version in SUPPORTED.values())}" in said(result)


def test_another_clang_is_refused(configure: Configure, tmp_path: Path) -> None:
    clang = tmp_path / "clang"
    clang.write_text("#!/bin/sh\necho Debian clang version 19.1.0\n")
    clang.chmod(0o755)
    result = configure(f"-DCLANG_FOR_DEVICES={clang}")
    assert result.returncode != 0
    assert f"is needed, and {clang} is clang 19" in said(result)


# Headers for a Triton whose LLVM lies between two releases


SHADOWED = "build/*/mlir/IR/Block.h"


def earlier_layouts(tmp_path: Path, layouts: str) -> subprocess.CompletedProcess[str]:
    """Runs EarlierLayouts.cmake alone, on headers of two small releases."""
    for release, text in (("before", "// before"), ("after", "unsigned id = 0;\nunsigned other = 0;")):
        header = tmp_path / release / "include/mlir/IR/Block.h"
        header.parent.mkdir(parents=True)
        header.write_text(text)
    (tmp_path / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.20)
        project(layouts NONE)
        function(find_debians_llvm version prefix)
          set(${{prefix}} "{tmp_path}/before" PARENT_SCOPE)
        endfunction()
        set(MLIR_INCLUDE_DIRS "{tmp_path}/absent" "{tmp_path}/after/include")
        set(Triton_VERSION 3.8.0)
        set(Triton_EARLIER_LAYOUTS [[{layouts}]])
        include({REPOSITORY}/cmake/EarlierLayouts.cmake)
    """)
    return subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build"], capture_output=True, text=True)


def test_a_member_of_the_later_release_becomes_static(tmp_path: Path) -> None:
    layouts = {"llvm": "22", "headers": [], "members": {"mlir/IR/Block.h": "unsigned id = 0;"}}
    result = earlier_layouts(tmp_path, json.dumps(layouts))
    assert result.returncode == 0, said(result)
    (header,) = tmp_path.glob(SHADOWED)
    assert header.read_text() == "static inline unsigned id = 0;\nunsigned other = 0;"


def test_a_header_of_the_release_before_is_taken(tmp_path: Path) -> None:
    layouts = {"llvm": "22", "headers": ["mlir/IR/Block.h"], "members": {}}
    assert earlier_layouts(tmp_path, json.dumps(layouts)).returncode == 0
    (header,) = tmp_path.glob(SHADOWED)
    assert header.read_text() == "// before"


def test_a_triton_of_a_release_changes_no_header(tmp_path: Path) -> None:
    assert earlier_layouts(tmp_path, "{}").returncode == 0
    assert not list(tmp_path.glob(SHADOWED))


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ({"headers": [], "members": {"mlir/IR/Block.h": "unsigned gone;"}}, "has no member `unsigned gone;`"),
        ({"headers": ["llvm/ADT/Gone.h"], "members": {}}, "apt-get install llvm-22-dev"),
    ],
)
def test_headers_without_what_is_named_are_refused(tmp_path: Path, layouts: dict[str, object], message: str) -> None:
    result = earlier_layouts(tmp_path, json.dumps({"llvm": "22", **layouts}))
    assert result.returncode != 0
    assert message in said(result)


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_ccache_keeps_tritons_apart(tmp_path: Path) -> None:
    """Two compilations that differ in a header alone, which hides another one. ccache does not notice such a header."""
    header = tmp_path / "include/mlir/IR/Block.h"
    header.parent.mkdir(parents=True)
    header.write_text("struct Block {\nunsigned id = 0;\nunsigned other = 0;\n};\n")
    (tmp_path / "size.cpp").write_text('#include "mlir/IR/Block.h"\nint main() { return sizeof(Block); }\n')
    (tmp_path / "CMakeLists.txt").write_text(f"""
        cmake_minimum_required(VERSION 3.20)
        project(layouts CXX)
        function(find_debians_llvm version prefix)
        endfunction()
        set(MLIR_INCLUDE_DIRS "{tmp_path}/include")
        include({REPOSITORY}/cmake/EarlierLayouts.cmake)
        file(WRITE ${{shadow}}/llvm/Config/abi-breaking.h "")
        include_directories(${{shadow}} {tmp_path}/include)
        add_executable(size size.cpp)
    """)
    settings = {
        "CCACHE_BASEDIR": str(tmp_path),
        "CCACHE_CONFIGPATH": os.devnull,
        "CCACHE_DIR": str(tmp_path / "cache"),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_SLOPPINESS": "include_file_ctime,include_file_mtime",  # else new headers are not cached
    }
    sizes = {}
    for version, layouts in (
        ("3.9.0", "{}"),
        ("3.8.0", json.dumps({"llvm": "22", "headers": [], "members": {"mlir/IR/Block.h": "unsigned id = 0;"}})),
    ):
        build = tmp_path / version
        definitions = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", f"-DTriton_EARLIER_LAYOUTS={layouts}"]
        for command in (["-S", tmp_path, "-B", build, "-G", "Ninja", *definitions], ["--build", build]):
            result = subprocess.run(["cmake", *command], capture_output=True, text=True, env=os.environ | settings)
            assert result.returncode == 0, said(result)
        sizes[version] = subprocess.run([build / "size"]).returncode
    assert sizes == {"3.9.0": 8, "3.8.0": 4}


# One list


def test_versions_are_told_once() -> None:
    """pyproject.toml cannot read the list of supported versions, so it is held to it here."""
    project = (REPOSITORY / "pyproject.toml").read_text()
    assert set(re.findall(r'"triton==([^"]+)"', project)) == {next(iter(SUPPORTED))}  # what the project is tested with
    nvshmem = set(re.findall(r'"nvidia-nvshmem-cu13==([^"]+)"', project))
    assert len(nvshmem) == 1
    assert f"nvidia-nvshmem-cu13=={nvshmem.pop()}" in (REPOSITORY / "cmake" / "FindNVSHMEM.cmake").read_text()
    version = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    assert version is not None
    assert triton_dist.__version__ == version[1], "make build"
