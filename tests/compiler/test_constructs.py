"""Python in kernels: what Triton's compiler refuses the CPU world refuses, too, and what it takes runs there.

What the taken ones compute is checked in both worlds by ``tests/gpu/ops/constructs.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime.interpreter import InterpretedFunction

PLAIN = 3
CONSTANT = tl.constexpr(3)
ARGUMENTS = {"p": "*i32", "q": "*i32", "n": "i32", "f": "fp32", "N": 16}


def and_of_blocks(p, q, n, f, N: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(p + i, 1, mask=(n < 3) and (i < n) and True)


def or_not_of_blocks(p, q, n, f, N: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(p + i, 1, mask=not (i < n) or (i == 7))


def and_of_numbers(p, q, n, f, N: tl.constexpr):
    if n and (n < 3):
        tl.store(p, 1)


def not_of_a_number(p, q, n, f, N: tl.constexpr):
    if not n:
        tl.store(p, 1)


def not_of_a_constant(p, q, n, f, N: tl.constexpr):
    if not N and N > 3:
        tl.store(p, 1)


def if_block(p, q, n, f, N: tl.constexpr):
    if tl.arange(0, 16) < n:
        tl.store(p, 1)


def if_block_of_one(p, q, n, f, N: tl.constexpr):
    if tl.arange(0, 1) < n:
        tl.store(p, 1)


def if_float(p, q, n, f, N: tl.constexpr):
    if f:
        tl.store(p, 1)


def if_constant_float(p, q, n, f, N: tl.constexpr):
    if 1.5:
        tl.store(p, 1)


def if_string(p, q, n, f, N: tl.constexpr):
    if "a":
        tl.store(p, 1)


def if_none(p, q, n, f, N: tl.constexpr):
    x = None
    if x is None and CONSTANT is not None:
        tl.store(p, 1)


def branch_not_taken(p, q, n, f, N: tl.constexpr):
    if N == 3:
        q[0] = 1 < n < N
    else:
        tl.store(p, 1)


def choice_by_a_block(p, q, n, f, N: tl.constexpr):
    x = 1 if tl.arange(0, 16) < n else 2
    tl.store(p, x)


def choice(p, q, n, f, N: tl.constexpr):
    tl.store(p, (1 if n > 2 else 2) // (N if N > 3 else 0.5))


def chained_comparison(p, q, n, f, N: tl.constexpr):
    if 0 < n < 5:
        tl.store(p, 1)


def membership(p, q, n, f, N: tl.constexpr):
    if N in (1, 2):
        tl.store(p, 1)


def while_comparison(p, q, n, f, N: tl.constexpr):
    i = 0
    while i < n and tl.load(q + i) != 1:
        i += 1
    tl.store(p, i)


def while_number(p, q, n, f, N: tl.constexpr):
    while n:
        n -= 1


def while_true(p, q, n, f, N: tl.constexpr):
    while True:
        tl.store(p, 1)


def while_block(p, q, n, f, N: tl.constexpr):
    while tl.arange(0, 16) < n:
        n -= 1


def while_condition(p, q, n, f, N: tl.constexpr):
    while tl.condition(tl.load(p) == 9, disable_licm=True):
        tl.store(p, 1)


def for_scalar(p, q, n, f, N: tl.constexpr):
    for i in range(0, n, tl.load(q)):
        tl.store(p + i, (i - 4) // 3)


def for_range_of_triton(p, q, n, f, N: tl.constexpr):
    for i in tl.range(n, 0, -1, num_stages=2):
        tl.store(p + i, i)


def for_tuple(p, q, n, f, N: tl.constexpr):
    for i in (1, 2):
        tl.store(p + i, 1)


def for_block(p, q, n, f, N: tl.constexpr):
    for i in range(tl.arange(0, 16)):
        tl.store(p + i, 1)


def for_float(p, q, n, f, N: tl.constexpr):
    for i in range(f):
        tl.store(p + i, 1)


def static_range_of_a_number(p, q, n, f, N: tl.constexpr):
    for i in tl.static_range(n):
        tl.store(p + i, 1)


def static_range(p, q, n, f, N: tl.constexpr):
    for i in tl.static_range(0, N, step=5):
        tl.store(p + tl.arange(0, 2 ** (i // 5)), 1)


def arange_of_a_loop_variable(p, q, n, f, N: tl.constexpr):
    for i in range(1, N):
        tl.store(p + tl.arange(0, i), 1)


def arange_of_a_variable(p, q, n, f, N: tl.constexpr):
    size = 16
    tl.store(p + tl.arange(0, size), 1)


def arange_of_a_constant(p, q, n, f, N: tl.constexpr):
    size: tl.constexpr = 2 * N
    tl.store(p + tl.arange(0, size), 1)


def break_from_loop(p, q, n, f, N: tl.constexpr):
    for i in range(4):
        if i == 2:
            break


def return_from_loop(p, q, n, f, N: tl.constexpr):
    for i in range(n):
        if i == tl.load(q):
            return


def return_early(p, q, n, f, N: tl.constexpr):
    if n == 4:
        return
    tl.store(p, 1)


def min_of_blocks(p, q, n, f, N: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(p + i, min(i, 5) + max(n, 3))


def absolute(p, q, n, f, N: tl.constexpr):
    tl.store(p, abs(n))


def int_of_a_number(p, q, n, f, N: tl.constexpr):
    tl.store(p, int(n))


def float_of_a_number(p, q, n, f, N: tl.constexpr):
    tl.store(p, float(n))


def index_by_a_number(p, q, n, f, N: tl.constexpr):
    t = (1, 2)
    tl.store(p, t[n])


def global_number(p, q, n, f, N: tl.constexpr):
    tl.store(p, PLAIN)


def global_constant(p, q, n, f, N: tl.constexpr):
    tl.store(p, CONSTANT)


def string_variable(p, q, n, f, N: tl.constexpr):
    x = "abc"
    tl.static_print(x)


def changed_list(p, q, n, f, N: tl.constexpr):
    x = [1, 2]
    x[0] = 3


def tuples(p, q, n, f, N: tl.constexpr):
    a, b = 7, 2
    c = [x + 1 for x in (a, n)]
    tl.store(p, (b - a) // 2 + c[1])


def changed_constant(p, q, n, f, N: tl.constexpr):
    N += 1
    tl.store(p, N)


def dictionary(p, q, n, f, N: tl.constexpr):
    x = {"a": 1}
    tl.store(p, x["a"])


def walrus(p, q, n, f, N: tl.constexpr):
    if (x := n) > 1:
        tl.store(p, x)


def lambda_(p, q, n, f, N: tl.constexpr):
    tl.store(p, (lambda: 1)())


def try_(p, q, n, f, N: tl.constexpr):
    try:
        tl.store(p, 1)
    finally:
        pass


def plus(p, q, n, f, N: tl.constexpr):
    tl.store(p, +n)


def assertion(p, q, n, f, N: tl.constexpr):
    assert n > 3, "n"
    assert tl.arange(0, 16) < 99
    tl.store(p, 1)


def static_assertion(p, q, n, f, N: tl.constexpr):
    tl.static_assert(N > 3, f"{N}")
    tl.store(p, 1)


def static_assertion_of_a_number(p, q, n, f, N: tl.constexpr):
    tl.static_assert(n > 3)


CONSTRUCTS = [f for f in globals().values() if callable(f) and getattr(f, "__module__", "") == __name__]


def compiles(compile_kernel: Callable[..., Any], function: Callable[..., None]) -> bool:
    try:
        compile_kernel(function, ARGUMENTS)
    except (CompilationError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("function", CONSTRUCTS, ids=lambda function: function.__name__)
def test_compiler_and_interpreter_take_the_same(
    compile_kernel: Callable[..., Any], function: Callable[..., None], capfd: pytest.CaptureFixture[str]
) -> None:
    p, q = torch.zeros(64, dtype=torch.int32), torch.ones(64, dtype=torch.int32)
    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is deprecated
        taken = compiles(compile_kernel, function)
        try:
            InterpretedFunction(function)[(1,)](p, q, 4, 1.5, 16)
        except RuntimeError as found:
            error = found
    assert taken == (error is None), (
        f"{'only the compiler takes it' if taken else 'only the interpreter takes it'}: {error}"
    )
    if error is not None:
        assert f"{__file__}:" in str(error), "the line is missing"


def test_options_of_a_launch() -> None:
    x = torch.zeros(1, dtype=torch.int32)
    kernel = InterpretedFunction(global_constant)
    kernel[(1,)](x, x, 1, 1.0, 1, num_warps=8, waves_per_eu=2)
    assert x.item() == 3
    with pytest.raises(KeyError, match="num_warp was specified but unrecognised"):
        kernel[(1,)](x, x, 1, 1.0, 1, num_warp=8)


def test_closures() -> None:
    """A kernel may use constants of the function that made it."""
    limit = tl.constexpr(5)

    def kernel(p):
        tl.store(p, limit)

    x = torch.zeros(1, dtype=torch.int32)
    triton.jit(kernel)[(1,)](x)
    assert x.item() == 5
