"""The check that stands between linking the plugin and putting it where Triton would load it, on small fakes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

# Two libraries' worth of classes; EXTRA_* gives one of them another virtual function, as another LLVM's headers would.
HEADER = """
namespace mlir {
struct Op { virtual ~Op() {}
  virtual void run() {}
#ifdef EXTRA_OP
  virtual void more() {}
#endif
};
__attribute__((visibility("default"))) void apply(Op *);
}
namespace llvm {
struct Stream { virtual ~Stream() {}
  __attribute__((visibility("default"))) void write();
#ifdef EXTRA_STREAM
  virtual void flush() {}
#endif
};
struct Backend { virtual ~Backend() {}
#ifdef EXTRA_BACKEND
  virtual void emit() {}
#endif
};
}
"""
# What libtriton.so and libMLIR.so/libLLVM.so have in common: the code, and a vtable of each class.
LIBRARY = (
    HEADER + "void mlir::apply(Op *) {} void llvm::Stream::write() {} mlir::Op a; llvm::Stream b; llvm::Backend c;"
)
PLUGIN = HEADER + "void act(llvm::Stream *s) { mlir::Op op; mlir::apply(&op); s->write(); }"
PLUGIN_WITH_A_GAP = PLUGIN + "namespace triton_dist { void forgotten(); } void call() { triton_dist::forgotten(); }"
PLUGIN_OF_ANOTHER_TRITON = PLUGIN + "namespace mlir { void renamed(int); } void call() { mlir::renamed(1); }"

Build = Callable[..., Path]
Check = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Compiles a shared library, as the plugin is compiled."""

    def compile_library(name: str, source: str, *flags: str) -> Path:
        library = tmp_path / f"{name}.so"
        command = ["c++", "-xc++", "-", "-shared", "-fPIC", "-fno-rtti", "-std=c++17", *flags, "-o", str(library)]
        subprocess.run(command, input=source, text=True, check=True)
        return library

    return compile_library


@pytest.fixture
def check() -> Check:
    """Runs the check as the build does."""

    def run(plugin: Path, libtriton: Path, *llvm: Path) -> subprocess.CompletedProcess[str]:
        script = REPOSITORY / "cmake" / "check_abi.py"
        command = [sys.executable, script, "--plugin", plugin, "--libtriton", libtriton, "--llvm", *llvm]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def test_a_plugin_that_fits_passes(build: Build, check: Check) -> None:
    result = check(build("plugin", PLUGIN, "-fvisibility=hidden"), build("triton", LIBRARY), build("llvm", LIBRARY))
    assert result.returncode == 0, result.stderr
    assert "2 shared vtables agree" in result.stdout  # Op and Stream; Backend is none of the plugin's business


@pytest.mark.parametrize(
    ("source", "name"),
    [(PLUGIN_WITH_A_GAP, "triton_dist::forgotten()"), (PLUGIN_OF_ANOTHER_TRITON, "mlir::renamed(int)")],
)
def test_a_symbol_that_libtriton_lacks_fails(build: Build, check: Check, source: str, name: str) -> None:
    result = check(build("plugin", source), build("triton", LIBRARY))
    assert result.returncode == 1
    assert "libtriton.so does not export (1)" in result.stderr
    assert name in result.stderr
    assert "What to do" in result.stderr


@pytest.mark.parametrize("visibility", ["hidden", "default"])
def test_a_vtable_of_the_plugin_of_another_size_fails(build: Build, check: Check, visibility: str) -> None:
    plugin = build("plugin", PLUGIN, "-DEXTRA_OP", f"-fvisibility={visibility}")
    result = check(plugin, build("triton", LIBRARY))
    assert result.returncode == 1
    assert "vtable for mlir::Op: 48 bytes here, 40 in libtriton.so" in result.stderr


@pytest.mark.parametrize(
    ("flag", "name"), [("-DEXTRA_OP", "vtable for mlir::Op"), ("-DEXTRA_STREAM", "vtable for llvm::Stream")]
)
def test_a_vtable_of_llvms_libraries_of_another_size_fails(build: Build, check: Check, flag: str, name: str) -> None:
    plugin = build("plugin", HEADER + "void act(llvm::Stream *s) { s->write(); }")  # has no vtable of its own
    result = check(plugin, build("triton", LIBRARY), build("llvm", LIBRARY, flag))
    assert result.returncode == 1
    assert name in result.stderr


def test_an_llvm_class_that_the_plugin_never_mentions_may_differ(build: Build, check: Check) -> None:
    libraries = build("triton", LIBRARY), build("llvm", LIBRARY, "-DEXTRA_BACKEND")
    assert check(build("plugin", PLUGIN), *libraries).returncode == 0


def test_long_lists_are_cut(build: Build, check: Check) -> None:
    calls = "".join(f"void f{i}(); void g{i}() {{ f{i}(); }}" for i in range(30))
    result = check(build("plugin", calls), build("triton", LIBRARY))
    assert "does not export (30)" in result.stderr
    assert "… and 10 more" in result.stderr
