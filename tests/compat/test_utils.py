"""``triton_dist.utils``: names that scripts of Triton-distributed import, with and without CUDA's bindings."""

from __future__ import annotations

import sys
import warnings

import pytest

from triton_dist import utils


@pytest.mark.parametrize("name", ["cuda", "cudart"])
def test_bindings_that_are_missing_are_a_missing_attribute(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert not hasattr(utils, name)
    with pytest.raises(AttributeError, match=rf"triton_dist\.utils\.{name} needs cuda-python"):
        getattr(utils, name)
    with pytest.raises(ImportError):
        exec(f"from triton_dist.utils import {name}")


def test_status_is_checked() -> None:
    for check in (utils.CUDA_CHECK, utils.HIP_CHECK):
        check(0)
        with pytest.raises(RuntimeError, match="700"):
            check(700)


def test_native_atomics(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    @utils.requires_p2p_native_atomic
    def add(number: int, *, more: int = 0) -> int:
        """Adds."""
        calls.append(number)
        return number + more

    assert add.__name__ == "add" and add.__doc__ == "Adds."
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(utils, "supports_p2p_native_atomic", lambda: True)
        assert add(1, more=2) == 3
    monkeypatch.setattr(utils, "supports_p2p_native_atomic", lambda: False)
    with pytest.warns(UserWarning, match="add needs atomics between GPUs"):
        assert add(2) == 2
    assert calls == [1, 2]


def test_the_cpu_world_has_native_atomics() -> None:
    assert utils.supports_p2p_native_atomic()
