"""The notation of --signature."""

from __future__ import annotations

import pytest
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_dist.ahead_of_time.signature import SignatureError, parse

NAMES = ["x", "n", "BLOCK"]


def test_types_hints_and_constants() -> None:
    parsed = parse(" *bf16:16 ,i32:16, 1024", NAMES, frozenset({"BLOCK"}), "f")
    assert parsed.types == {"x": "*bf16", "n": "i32", "BLOCK": "constexpr"}
    assert parsed.constants == {"BLOCK": 1024} and parsed.aligned == {"x", "n"}


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("-1", -1), ("0.5", 0.5), ("True", True), ("None", None), ("'a, b'", "a, b"), ("(1, (2, 3))", (1, (2, 3))),
        ("tl.bfloat16", tl.bfloat16), ('"it\'s"', "it's"),
    ],
)  # fmt: skip
def test_constants(entry: str, value: object) -> None:
    assert parse(f"*i8, {entry}, {entry}", NAMES, frozenset({"BLOCK"}), "f").constants == {"n": value, "BLOCK": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has 0 entries, and f takes 3: \(x, n, BLOCK: constexpr\)"),
        ("*i8, i32, 1, 2", r"has 4 entries"),
        ("*i8, i32, i32", r"BLOCK of f is a tl\.constexpr and needs a value, not the type i32"),
        ("*i8:8, i32, 1", r"x: \*i8:8: only :16 can be said"),
        ("*i8:, i32, 1", r"x: \*i8:: only :16"),
        ("*int8, i32, 1", r"x: '\*int8' is neither a type .* nor a constant"),
        ("*i8, i32, __import__('os')", r"BLOCK: .* is neither"),
        ("*i8, [1], 1", r"n: .* is neither"),
        ("*i8, tl.load, 1", r"n: 'tl\.load' is neither"),
        ("*i8, , 1", r"n: '' is neither"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        parse(text, NAMES, frozenset({"BLOCK"}), "f")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="*i8:16,()[]'\"tl. fp-\n\\0", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parsed = parse(text, NAMES, frozenset({"BLOCK"}), "f")
    except SignatureError:
        return
    assert list(parsed.types) == NAMES
