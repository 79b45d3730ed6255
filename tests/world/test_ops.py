"""The CPU world's functions take what the op table says, in its order: operands, then attributes."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from triton_dist.cpu.ops import IMPLEMENTATIONS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from op_table import Op, ops

OPS = [op for op in ops() if op.name != "poll"]  # not part of the CPU world, which detects polling by itself
ATTRIBUTES = {"sig_op", "cmp", "op", "type", "sem", "mem_scope", "scope"}


def test_there_are_no_others() -> None:
    assert set(IMPLEMENTATIONS) == {op.name for op in OPS}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_arguments(op: Op) -> None:
    expected = sorted(op.arguments, key=ATTRIBUTES.__contains__)
    taken = list(inspect.signature(IMPLEMENTATIONS[op.name]).parameters)
    assert taken == [name.replace("cmp_values", "cmp_value") for name in expected]
