"""Elements that are sent as int32 words: one of up to 32 bits, or as many smaller ones as fit.

Their values are computed with in float32, and in int32 those of integers.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["element_of", "elements_of", "word_of", "words_of"]


@triton.jit
def element_of(word, DTYPE: tl.constexpr):
    """The element in the lowest bits of a word, as float32 or int32."""
    if DTYPE == tl.float32:  # noqa: SIM300
        return word.to(tl.float32, bitcast=True)
    elif DTYPE == tl.int32:  # noqa: SIM300
        return word
    elif DTYPE.primitive_bitwidth == 8:
        return word.to(tl.int8).to(DTYPE, bitcast=True).to(tl.int32)
    else:
        return word.to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def word_of(element, DTYPE: tl.constexpr):
    """An element, a float32 or int32, as ``DTYPE`` in the lowest bits of a word, whose other bits are zero."""
    if DTYPE == tl.float32:  # noqa: SIM300
        return element.to(tl.int32, bitcast=True)
    elif DTYPE == tl.int32:  # noqa: SIM300
        return element
    elif DTYPE.primitive_bitwidth == 8:
        return element & 0xFF
    else:
        return element.to(DTYPE).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.jit
def words_of(elements, DTYPE: tl.constexpr):
    """Rows of float32 elements, rounded to ``DTYPE``, as rows of int32 words: pairs, where two of them fit."""
    if DTYPE == tl.float32:  # noqa: SIM300
        return word_of(elements, DTYPE)
    else:
        ROWS: tl.constexpr = elements.shape[0]
        lower, upper = tl.split(elements.reshape([ROWS, elements.shape[1] // 2, 2]))
        return word_of(lower, DTYPE) | (word_of(upper, DTYPE) << 16)


@triton.jit
def elements_of(words, DTYPE: tl.constexpr):
    """What :func:`words_of` made such words of, again in float32: a row for each row."""
    if DTYPE == tl.float32:  # noqa: SIM300
        return element_of(words, DTYPE)
    else:
        ROWS: tl.constexpr = words.shape[0]
        pairs = tl.join(element_of(words, DTYPE), element_of(words >> 16, DTYPE))
        return pairs.reshape([ROWS, words.shape[1] * 2])
