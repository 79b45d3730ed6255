"""Device code: attention of a tile of query heads to a run of keys, as a partial result that others can be merged with.

A partial result is the sum of the values, weighted by exp2(logit - largest); the largest logit, in powers of two; and
the sum of the weights: float32, not divided yet. That of no keys is zero, minus infinity and zero.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["attend", "load_queries", "merge"]


@triton.jit
def load_queries(q, heads, there, step, FIRST: tl.constexpr, D: tl.constexpr):
    """``D`` elements of each head's query, from element ``FIRST`` on."""
    inner = FIRST + tl.arange(0, D)
    return tl.load(q + heads.to(tl.int64)[:, None] * step + inner[None, :], mask=there[:, None], other=0.0)


@triton.jit
def _pages_of(table, keys, end, pages, page_size, PAGE: tl.constexpr):
    """In which of the ``pages`` each of the keys before ``end`` lies. Loads are of ``PAGE`` keys, if that is not 0.

    Without Triton's debug mode the assertion leaves nothing in a compiled kernel.
    """
    page = tl.load(table + keys // (PAGE if PAGE else page_size), mask=keys < end, other=0)
    assert (page >= 0) & (page < pages) | (keys >= end), "flash decode: block_table has an entry not in [0, P)"
    return page


@triton.jit
def attend(
    q, rest_of_q, k, v, table, begin, end, pages, page_size, k_page, k_token, v_page, v_token, scale,
    DV: tl.constexpr, D: tl.constexpr, REST: tl.constexpr, BLOCK_N: tl.constexpr, PAGED: tl.constexpr,
    PAGE: tl.constexpr, V_IN_K: tl.constexpr,
):  # fmt: skip
    """The partial result of queries ``q`` (their first ``D`` elements) and ``rest_of_q`` and keys from ``begin`` on.

    Args:
        k, v: where the KV head's keys and values begin: in the request's row or, with ``PAGED``, in page 0.
        table: which of the ``pages`` are the request's.
        PAGE: ``page_size``, where that is a power of two, else 0.
        scale: what logits are multiplied by, times log2(e).
        V_IN_K: values are the first ``DV`` elements of keys.
    """
    ROWS: tl.constexpr = q.shape[0]
    total = tl.zeros([ROWS, DV], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    inner = tl.arange(0, D)
    if PAGED:
        page = _pages_of(table, begin + tl.arange(0, BLOCK_N), end, pages, page_size, PAGE)
    for start in range(begin, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        there = keys < end
        if PAGED:
            tokens = (keys % (PAGE if PAGE else page_size)).to(tl.int64)
            k_rows = k + (page.to(tl.int64) * k_page + tokens * k_token)[:, None]
            v_rows = v + (page.to(tl.int64) * v_page + tokens * v_token)[:, None]
            # The next block's pages are loaded a block ahead: loads of keys, which wait for them, then need no stages
            # of Triton's pipeline for what they wait for.
            page = _pages_of(table, keys + BLOCK_N, end, pages, page_size, PAGE)
        else:
            k_rows = k + keys.to(tl.int64)[:, None] * k_token
            v_rows = v + keys.to(tl.int64)[:, None] * v_token
        key = tl.load(k_rows + inner[None, :], mask=there[:, None], other=0.0).to(q.dtype)
        logits = tl.dot(q, tl.trans(key), input_precision="ieee")
        if REST > 0:
            rest = tl.load(k_rows + (D + tl.arange(0, REST))[None, :], mask=there[:, None], other=0.0).to(q.dtype)
            logits = tl.dot(rest_of_q, tl.trans(rest), logits, input_precision="ieee")
        logits = tl.where(there[None, :], logits * scale, float("-inf"))
        now = tl.maximum(largest, tl.max(logits, axis=1))
        finite = tl.where(now == float("-inf"), 0.0, now)  # as long as all keys score -inf
        kept = tl.exp2(largest - finite)
        weights = tl.exp2(logits - finite[:, None])
        weight = weight * kept + tl.sum(weights, axis=1)
        if V_IN_K:
            value = key
        else:
            value = tl.load(v_rows + tl.arange(0, DV)[None, :], mask=there[:, None], other=0.0).to(q.dtype)
        total = tl.dot(weights.to(q.dtype), value, total * kept[:, None], input_precision="ieee")
        largest = now
    return total, largest, weight


@triton.jit
def _decay(largest, now):
    """What a partial result whose largest logit is ``largest`` is multiplied by, where ``now`` is that of all."""
    return tl.where(largest == float("-inf"), 0.0, tl.exp2(largest - now))


@triton.jit
def merge(total, largest, weight, totals, maxima, weights):
    """The partial result of the keys of one and of several others, whose parts have one more dimension in front."""
    now = tl.maximum(largest, tl.max(maxima, axis=0))
    kept, factors = _decay(largest, now), _decay(maxima, now[None, :])
    total = total * kept[:, None] + tl.sum(totals * factors[:, :, None], axis=0)
    return total, now, weight * kept + tl.sum(weights * factors, axis=0)
