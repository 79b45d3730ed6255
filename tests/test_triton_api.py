"""Triton's internals are reached through triton_dist.triton_api alone."""

from __future__ import annotations

import contextlib
import gc
import importlib
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
from limits import HANG_SECONDS
from reaches import is_private, reaches
from triton.backends.nvidia.driver import CudaLauncher, wrap_handle_tensordesc
from triton.compiler import CompiledKernel
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_dist import triton_api
from triton_dist.triton_api import of_line

PACKAGE = Path(__file__).resolve().parents[1] / "triton_dist"

PUBLIC = (
    *("triton.language", "triton.experimental", "triton.errors", "triton.testing"),
    "triton.tools.tensor_descriptor",
)
"""What Triton documents; and of ``triton`` itself all names without an underscore, but for its packages."""

PACKAGES = (["runtime"], ["compiler"], ["backends"], ["tools"], ["profiler"], ["instrumentation"])


def _is_public(name: str) -> bool:
    """Whether ``triton.a.b`` is documented: a module, or a name in one."""
    return not is_private(name) and (name.startswith(PUBLIC) or name.split(".")[1:2] not in PACKAGES)


def test_triton_is_reached_through_the_seam() -> None:
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        part = str(file.relative_to(PACKAGE))
        if not part.startswith("triton_api/") and (reached := set(reaches(file, "triton", _is_public))):
            found[part] = reached
    assert not found


def test_each_kind_of_reach_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "reaches.py"
    file.write_text(
        "import triton\nimport triton.language as tl\nfrom triton.language import core\n"
        "from triton.errors import TritonError\nfrom triton import jit, _utils, runtime\n"
        "import triton.runtime.jit as inner\nfrom triton.language._core import x\nprint(triton.__version__)\n"
        "tl.load = 1\ninner.a.b[0] = 2\nsetattr(core, 'name', 3)\ndel jit.x\nmine = triton.jit\nmine.attribute = 1\n"
        "triton.compiler.compile(triton.knobs.cache)\ncore._private()\n"
    )
    assert set(reaches(file, "triton", _is_public)) == {
        *("triton._utils", "triton.runtime", "triton.runtime.jit", "triton.runtime.jit.a", "triton.runtime.jit.a.b"),
        *("triton.compiler", "triton.compiler.compile", "triton.language._core.x", "triton.language.core._private"),
        *("changes triton.language.load", "changes triton.runtime.jit.a.b"),
        *("changes triton.language.core.…", "changes triton.jit.x"),
    }


def test_the_seam_is_for_the_installed_triton() -> None:
    line = {"3.7": "v3_7", "3.8": "v3_8", "3.9": "v3_9"}[triton.__version__.rpartition(".")[0]]
    module = importlib.import_module(f"triton_dist.triton_api.{line}")
    assert module.__all__ == of_line.__all__
    assert [getattr(of_line, name) for name in module.__all__] == [getattr(module, name) for name in module.__all__]


def _launcher(signature: dict[str, object], meta: list[object], **more: object) -> tuple[object, object]:
    """Triton's launcher of a kernel that was not compiled, and that kernel."""
    launcher = object.__new__(CudaLauncher)
    none = ("launch", "launch_cooperative_grid", "launch_pdl", "arg_annotations", "kernel_signature")
    sizes = {"global_scratch_size": 0, "profile_scratch_size": 0}
    vars(launcher).update({**dict.fromkeys(none), **sizes, **more})
    kernel = SimpleNamespace(src=SimpleNamespace(signature=signature), metadata=SimpleNamespace(tensordesc_meta=meta))
    return launcher, kernel


def test_a_descriptor_becomes_what_tritons_own_launcher_makes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(driver), "active", SimpleNamespace(utils=SimpleNamespace(launch=None)))
    signature = {"x": "tensordesc<fp16[64, 64]>", "n": "i32"}
    descriptor = TensorDescriptor(torch.empty(128, 64), [128, 64], [64, 1], [64, 64])
    told: list[object] = []
    tritons = wrap_handle_tensordesc(lambda *arguments: told.extend(arguments[-1]), signature, [None])
    tritons(*(None,) * 15, (descriptor, 3))
    ours = triton_api.direct_launcher(*_launcher(signature, [None]))
    assert [*ours.expanded((descriptor, 3))] == told
    assert len(told) > 2


def test_what_a_direct_launcher_cannot_do_is_left_to_tritons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(driver), "active", SimpleNamespace(utils=SimpleNamespace(launch=None)))
    alone, kernel = _launcher({"n": "i32"}, [])
    assert triton_api.direct_launcher(alone, kernel) is not alone
    in_a_tuple, kernel = _launcher({"x": ("i32", "tensordesc<fp16[64, 64]>")}, [None])
    assert triton_api.direct_launcher(in_a_tuple, kernel) is in_a_tuple
    watched, kernel = _launcher({"n": "i32"}, [], gsan_enabled=True)
    assert triton_api.direct_launcher(watched, kernel) is watched


def test_a_kernel_is_loaded_once_and_nobody_launches_it_before_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    threads, begun = 8, threading.Event()

    def init_handles(kernel: SimpleNamespace) -> None:
        if kernel.module is None:
            kernel.module = 1  # as Triton's does, before it calls its hooks
            begun.set()
            threading.Event().wait(0.2)
            done.append("hooks")

    monkeypatch.setattr(CompiledKernel, "_init_handles", init_handles)
    triton_api.extend_loading(lambda kernel: done.append("extension"), lambda kernel: False)
    triton_api.extend_loading(lambda kernel: done.append("never"), lambda kernel: False)
    kernel = SimpleNamespace(module=None)

    def launch(number: int) -> list[str]:
        if number:
            begun.wait(HANG_SECONDS)
        CompiledKernel._init_handles(kernel)
        return list(done)

    with ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(launch, range(threads))) == [["hooks", "extension"]] * threads


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("fails", [False, True], ids=["loads", "fails after its module was loaded"])
def test_a_kernel_whose_module_must_stay_is_never_garbage(
    monkeypatch: pytest.MonkeyPatch, stays: bool, fails: bool
) -> None:
    class Kernel:
        module = None

    def init_handles(kernel: Kernel) -> None:
        kernel.module = 1
        if fails:
            raise RuntimeError

    monkeypatch.setattr(CompiledKernel, "_init_handles", init_handles)
    triton_api.extend_loading(lambda kernel: None, lambda kernel: stays)
    kernel = Kernel()
    with contextlib.suppress(RuntimeError):
        CompiledKernel._init_handles(kernel)
    alive = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert (alive() is not None) == stays
