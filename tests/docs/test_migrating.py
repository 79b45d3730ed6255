"""docs/migrating.md: every name in the columns of this project and of Triton-distributed exists, and of DeepEP's."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from triton_dist import deep_ep

PAGE = (Path(__file__).resolve().parents[2] / "docs/migrating.md").read_text()
OPERATIONS, _, DEEP_EP = PAGE.partition("## Programs with DeepEP")
MODULES = {
    "dl": "triton_dist.language",
    "libshmem_device": "triton_dist.language.extra.libshmem_device",
    "language_extra": "triton_dist.language.extra.language_extra",
    "utils": "triton_dist.utils",
    "triton_dist": "triton_dist",
}


def rows() -> list[list[str]]:
    lines = [line for line in OPERATIONS.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [line.strip("| ").split(" | ") for line in lines if not line.startswith("| here ")]


def names() -> list[str]:
    pattern = rf"\b({'|'.join(MODULES)})\.(\w+)(?![\w.])"
    found = {".".join(pair) for row in rows() for pair in re.findall(pattern, " ".join(row[:2]))}
    return sorted(found)


def resolve(name: str) -> Any:
    module, _, attribute = name.partition(".")
    return getattr(importlib.import_module(MODULES[module]), attribute)


def test_the_table_is_read() -> None:
    assert {len(row) for row in rows()} == {5}
    assert len(names()) > 90


@pytest.mark.parametrize("name", names())
def test_name_exists(name: str) -> None:
    value = resolve(name)
    assert callable(value) or type(value).__name__ == "constexpr", f"{name} is {value!r}"


def test_helpers_in_the_text_exist() -> None:
    sentence = re.search(r"`triton_dist\.utils` has what the tutorials import \((.*?)\), and so", PAGE, re.DOTALL)
    assert sentence
    for name in re.findall(r"`(\w+)`", sentence.group(1)):
        if name not in ("cuda", "cudart"):  # only where CUDA's bindings are installed
            assert resolve(f"utils.{name}") is not None


def test_names_of_deep_ep_exist() -> None:
    """Those of the table's first column: of the module, of its classes, or parameters of methods; and all are named."""
    lines = [
        line for line in DEEP_EP.splitlines() if line.startswith("| ") and not line.startswith(("| name", "| ---"))
    ]
    of_buffer = {name for name in dir(deep_ep.Buffer) if not name.startswith("_")}
    methods = [getattr(deep_ep.Buffer, name) for name in of_buffer if callable(getattr(deep_ep.Buffer, name))]
    parameters = {name for method in (deep_ep.Buffer, *methods) for name in inspect.signature(method).parameters}
    known = {*deep_ep.__all__, *of_buffer, *parameters, *dir(deep_ep.Config)}
    assert len(lines) > 20
    for line in lines:
        named = re.findall(r"`(\w+)", line.split(" | ")[0])
        assert all(name in known for name in named), (line, named)
    without = {"capture", "comm", "max_tokens", "low_latency_clean_mask_buffer"}  # as DeepEP's, or ours
    for name in of_buffer - without:
        assert f"`{name}" in DEEP_EP, name
