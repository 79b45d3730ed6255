"""Sums in float32 of elements that are sent as words: a float32, two 16-bit floats, or a single one, in an int32."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["elements_of", "sum_of_rows", "words_of"]


@triton.jit
def _element(word, DTYPE: tl.constexpr):
    if DTYPE == tl.float32:  # noqa: SIM300
        return word.to(tl.float32, bitcast=True)
    else:
        return word.to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def _word(element, DTYPE: tl.constexpr):
    if DTYPE == tl.float32:  # noqa: SIM300
        return element.to(tl.int32, bitcast=True)
    else:
        return element.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.jit
def sum_of_rows(words, N_ROWS: tl.constexpr, DTYPE: tl.constexpr, PAIRS: tl.constexpr):
    """The sum of the first ``N_ROWS`` rows of int32 words, word by word, that hold one element of ``DTYPE`` or two.

    The order of additions is the same on every PE.
    """
    used = (tl.arange(0, words.shape[0]) < N_ROWS)[:, None]
    total = _word(tl.sum(tl.where(used, _element(words, DTYPE), 0.0), axis=0), DTYPE)
    if PAIRS:
        upper = _word(tl.sum(tl.where(used, _element(words >> 16, DTYPE), 0.0), axis=0), DTYPE)
        total = total | (upper << 16)
    return total


@triton.jit
def words_of(elements, DTYPE: tl.constexpr):
    """Rows of float32 elements, rounded to ``DTYPE``, as rows of int32 words: pairs, where two of them fit."""
    if DTYPE == tl.float32:  # noqa: SIM300
        return _word(elements, DTYPE)
    else:
        ROWS: tl.constexpr = elements.shape[0]
        lower, upper = tl.split(elements.reshape([ROWS, elements.shape[1] // 2, 2]))
        return _word(lower, DTYPE) | (_word(upper, DTYPE) << 16)


@triton.jit
def elements_of(words, DTYPE: tl.constexpr):
    """What :func:`words_of` made such words of, again in float32: a row for each row."""
    if DTYPE == tl.float32:  # noqa: SIM300
        return _element(words, DTYPE)
    else:
        ROWS: tl.constexpr = words.shape[0]
        pairs = tl.join(_element(words, DTYPE), _element(words >> 16, DTYPE))
        return pairs.reshape([ROWS, words.shape[1] * 2])
