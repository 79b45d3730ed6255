"""Every variable of ours: what is no value of it is refused with its name, its text and what is allowed."""

from __future__ import annotations

import math

import pytest

from triton_dist import environment

WRONG = ["", " ", "nan", "inf", "-inf", "-1", "0x10", "1e15", "1e400", "9" * 400, "½", "٣", "a b", "1 2", "None"]
SIZES = ["0", "infG", "nanM", "-1G", "1e3G", "1_000", "1Q", "G", "65T", "9999999999999999999G", "1.5.2M", "1 G B"]
SECONDS = ["0", "0.0001", "1e15", "1000001", "1_0", "+5", "5s", " 5"]


@pytest.mark.parametrize("name", environment.VARIABLES)
def test_nonsense(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is an error that says all there is to say, or a value; never another error."""
    for text in sorted({*WRONG, *SIZES, *SECONDS}):
        monkeypatch.setenv(name, text)
        try:
            environment.get(name)
        except ValueError as error:
            told = str(error)
        else:
            continue  # such as a path that is called so, or an empty flag
        assert told.startswith(f"{name}={text[:60]!r}") and "expected" in told and len(told) < 300


@pytest.mark.parametrize("text", [*WRONG, *SIZES])
def test_no_sizes(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TRITON_DIST_SYMMETRIC_SIZE", text)
    with pytest.raises(ValueError, match=r"expected a size of 1 to 64T bytes, such as 512M or 2G"):
        environment.get("TRITON_DIST_SYMMETRIC_SIZE")


@pytest.mark.parametrize("text", [*WRONG, *SECONDS])
@pytest.mark.parametrize("name", ["TRITON_DIST_INIT_TIMEOUT", "TRITON_DIST_WAIT_TIMEOUT"])
def test_no_seconds(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    if (name, text) == ("TRITON_DIST_WAIT_TIMEOUT", "0"):
        assert environment.get(name) == math.inf, "never"
        return
    with pytest.raises(ValueError, match=r"expected a number of seconds from 0.001 to 1000000, such as 30 or 0.5"):
        environment.get(name)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("512M", 512 << 20), ("2g", 2 << 30), ("1.5GiB", 3 << 29), ("64T", 64 << 40), (" 16 KB ", 16 << 10)],
)
def test_sizes(text: str, size: int) -> None:
    assert environment.size(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("0.5", 0.5), ("30", 30.0), ("1000000", 1e6), ("5.", 5.0)])
def test_seconds(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("TRITON_DIST_INIT_TIMEOUT", text)
    assert environment.get("TRITON_DIST_INIT_TIMEOUT") == seconds
