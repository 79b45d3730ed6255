"""docs/migrating.md: every name in the columns of this project and of Triton-distributed exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs/migrating.md").read_text()
MODULES = {
    "dl": "triton_dist.language",
    "libshmem_device": "triton_dist.language.extra.libshmem_device",
    "language_extra": "triton_dist.language.extra.language_extra",
    "utils": "triton_dist.utils",
    "triton_dist": "triton_dist",
}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
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
