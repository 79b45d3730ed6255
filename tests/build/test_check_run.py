"""The check that runs a plugin inside libtriton.so before it is published."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import triton
from limits import HANG_SECONDS

import _triton_dist_loader

REPOSITORY = Path(__file__).parents[2]
LIBTRITON = Path(triton.__file__).parent / "_C" / "libtriton.so"


def check(plugin: Path, libtriton: Path = LIBTRITON) -> subprocess.CompletedProcess[str]:
    """Run the check as the build does."""
    script = REPOSITORY / "cmake" / "check_run.py"
    command = [sys.executable, script, "--libtriton", libtriton, "--plugin", plugin]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)


def compiled(folder: Path, source: str) -> Path:
    """A shared library."""
    library = folder / "plugin.so"
    command = ["c++", "-xc++", "-", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    return library


def test_the_plugin_passes() -> None:
    done = check(Path(_triton_dist_loader.plugin_path()))
    assert done.returncode == 0, done.stderr
    assert "Run check passed" in done.stdout


def test_a_plugin_that_crashes_fails(tmp_path: Path) -> None:
    source = '#include <csignal>\nextern "C" void *tritonGetPluginInfo() { raise(SIGSEGV); return nullptr; }'
    done = check(compiled(tmp_path, source))
    assert done.returncode == 1
    assert "Run check failed (ended by signal 11)" in done.stderr
    assert "do not match this Triton" in done.stderr


def test_a_plugin_without_our_ops_fails(tmp_path: Path) -> None:
    source = f"""
        #include <cstddef>
        #include <cstdint>
        struct Table {{ void *entries; size_t count; }};
        struct Info {{ uint32_t api; const char *name, *version; Table passes, dialects, ops; const char *triton; }};
        extern "C" Info *tritonGetPluginInfo() {{
          static Info info = {{2, "other", "1", {{}}, {{}}, {{}}, "{triton.__version__}"}};
          return &info;
        }}
    """
    done = check(compiled(tmp_path, source))
    assert done.returncode == 1
    assert "Run check failed (exit status 1)" in done.stderr


def test_the_libtriton_of_another_python_is_no_failure(tmp_path: Path) -> None:
    library = compiled(tmp_path, "")
    done = check(library, libtriton=library)
    assert done.returncode == 0, done.stderr
    assert "Run check left out" in done.stdout
