"""Kernels of collectives count elements in 64 bits where parts have 2**31 of them, and in 32 bits elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ptx
import pytest

from triton_dist.kernels.collectives.parts import is_wide


def offsets_of(ir: str) -> set[str]:
    """The types of the offsets of blocks of pointers."""
    return set(re.findall(r"tt\.addptr .* : tensor<2048x!tt\.ptr<i8>>, tensor<2048x(i\d+)>", ir))


@pytest.fixture(scope="module")
def compiled() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(ptx.made_by(Path(__file__).with_name("wide_offsets.py")))
    return found


@pytest.mark.parametrize("kernel", ["all_gather", "all_to_all", "broadcast", "copies", "all_reduce, direct"])
def test_offsets(compiled: dict[str, list[str]], kernel: str) -> None:
    narrow, wide = compiled[kernel]
    assert offsets_of(narrow) == {"i32"}
    assert offsets_of(wide) == {"i64"}


@pytest.mark.parametrize("kernel", ["all_reduce, push", "reduce_scatter"])
def test_rounds(compiled: dict[str, list[str]], kernel: str) -> None:
    """Of places in staging memory offsets have 32 bits. The elements of all parts are counted in 64 bits, always."""
    narrow, wide = compiled[kernel]
    assert offsets_of(narrow) == {"i32"}
    assert offsets_of(wide) == {"i32", "i64"}
    for ir in (narrow, wide):
        assert not re.search(r"arith\.muli %part, %c[34]_i32", ir) and re.search(r"arith\.extsi %part : i32 to i64", ir)


@pytest.mark.parametrize("kernel", ["all_reduce, exchange", "all_reduce, two_exchanges", "reduce_scatter, exchange"])
def test_blocks(compiled: dict[str, list[str]], kernel: str) -> None:
    """What offsets are computed from, the numbers of blocks."""
    narrow, wide = compiled[kernel]
    assert re.findall(r"scf\.for %block = .* : (i\d+) {", narrow) == ["i32"]
    assert re.findall(r"scf\.for %block = .* : (i\d+) {", wide) == ["i64"]


def test_which_need_them() -> None:
    """An offset behind the end, in the last block, overflows as well."""
    for block in (1, 2048):
        assert not is_wide((1 << 31) - block, block)
        assert is_wide((1 << 31) - block + 1, block) and is_wide(1 << 40, block)
