"""Mistakes in a kernel are errors with the user's line, in the user's words."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import triton.language as tl
from triton.compiler.errors import CompilationError

import triton_dist.language as dl
from triton_dist import triton_api
from triton_dist.compiler import transport
from triton_dist.compiler.hooks import ShmemCompilationError
from triton_dist.language._builtin import builtin

Compile = Callable[..., Any]

SIGNATURE = {"x": "*fp32", "h": "*fp16", "small": "*i32", "sig": "*i64", "n": "i32", "pe": "i32", "f": "fp32"}


def dst_is_a_number(x, h, small, sig, n, pe, f):
    dl.putmem(n, x, n, pe)  # mistake


def src_is_a_block(x, h, small, sig, n, pe, f):
    dl.putmem(x, x + tl.arange(0, 128), n, pe)  # mistake


def pe_is_a_float(x, h, small, sig, n, pe, f):
    dl.putmem(x, x, n, f)  # mistake


def pe_is_a_literal_float(x, h, small, sig, n, pe, f):
    dl.getmem(x, x, n, 1.0)  # mistake


def pe_is_negative(x, h, small, sig, n, pe, f):
    dl.symm_at(x, -1)  # mistake


def pe_is_a_block(x, h, small, sig, n, pe, f):
    dl.symm_at(x, tl.arange(0, 4))  # mistake


def pe_is_a_bool(x, h, small, sig, n, pe, f):
    dl.symm_at(x, n > 1)  # mistake


def size_is_negative(x, h, small, sig, n, pe, f):
    dl.putmem_nbi(x, x, -4, pe)  # mistake


def size_is_a_float(x, h, small, sig, n, pe, f):
    dl.getmem_nbi(x, x, f, pe)  # mistake


def elements_differ(x, h, small, sig, n, pe, f):
    dl.put(x, h, n, pe)  # mistake


def signal_is_32_bits(x, h, small, sig, n, pe, f):
    dl.signal_op(small, 1, dl.SIGNAL_ADD, pe)  # mistake


def signal_of_a_put_is_32_bits(x, h, small, sig, n, pe, f):
    dl.putmem_signal(x, x, n, small, 1, dl.SIGNAL_ADD, pe)  # mistake


def unknown_update(x, h, small, sig, n, pe, f):
    dl.signal_op(sig, 1, 9, pe)  # mistake


def unknown_comparison(x, h, small, sig, n, pe, f):
    dl.signal_wait_until(sig, 17, 1)  # mistake


def comparison_is_an_update(x, h, small, sig, n, pe, f):
    dl.signal_wait_until(sig, dl.SIGNAL_ADD, 1)  # mistake


def comparison_is_a_runtime_value(x, h, small, sig, n, pe, f):
    dl.signal_wait_until(sig, n, 1)  # mistake


def token_is_a_number(x, h, small, sig, n, pe, f):
    dl.consume_token(x, n)  # mistake


def float_consumes(x, h, small, sig, n, pe, f):
    dl.consume_token(f, dl.signal_wait_until(sig, dl.CMP_EQ, 1))  # mistake


MISTAKES = {
    dst_is_a_number: "putmem: dst must be a pointer, got a value of type int32",
    src_is_a_block: "putmem: src must be one pointer, got a block of them",
    pe_is_a_float: "putmem: pe must be one integer, got a value of type fp32",
    pe_is_a_literal_float: "getmem: pe must be an integer, got 1.0 of type float",
    pe_is_negative: "symm_at: pe must not be negative, got -1",
    pe_is_a_block: "symm_at: pe must be one integer",
    pe_is_a_bool: "symm_at: pe must be one integer, got a value of type int1",
    size_is_negative: "putmem_nbi: nbytes must not be negative, got -4",
    size_is_a_float: "getmem_nbi: nbytes must be one integer, got a value of type fp32",
    elements_differ: "put: dst and src must have one element type, got fp32 and fp16; use putmem to copy bytes",
    signal_is_32_bits: "signal_op: sig_addr must point to 64-bit signals",
    signal_of_a_put_is_32_bits: "putmem_signal: sig_addr must point to 64-bit signals",
    unknown_update: "signal_op: sig_op must be one of dl.SIGNAL_SET, dl.SIGNAL_ADD, got 9 of type int",
    unknown_comparison: "signal_wait_until: cmp must be one of dl.CMP_EQ, dl.CMP_NE",
    comparison_is_an_update: "signal_wait_until: cmp must be one of dl.CMP_EQ",
    comparison_is_a_runtime_value: "signal_wait_until: cmp must be one of dl.CMP_EQ",
    token_is_a_number: "consume_token: token must be what a wait returned",
    float_consumes: "consume_token: value must be a pointer or an integer",
}


@pytest.mark.parametrize("kernel", MISTAKES, ids=lambda kernel: kernel.__name__)
def test_mistake_names_the_line(compile_kernel: Compile, kernel: Callable[..., None]) -> None:
    with pytest.raises(CompilationError) as caught:
        compile_kernel(kernel, SIGNATURE)
    message = str(caught.value)
    assert MISTAKES[kernel] in message
    assert "# mistake" in message, "the message shows the user's line"


@builtin
def emitted(op, operands, attributes, _semantic=None):
    """An op as the language's functions emit them, behind their checks."""
    handles = [(operand.value if isinstance(operand, tl.constexpr) else operand).handle for operand in operands]
    numbers = [attribute.value for attribute in attributes]
    triton_api.build_plugin_op(_semantic, f"shmem_{op.value}", handles, numbers, None)


def number_is_no_element_type(x, h, small, sig, n, pe, f):
    emitted("p", (small, n, pe), (99,))  # mistake


def value_is_of_another_type(x, h, small, sig, n, pe, f):
    emitted("p", (small, f, pe), (5,))  # mistake


def op_lacks_an_attribute(x, h, small, sig, n, pe, f):
    emitted("p", (small, n, pe), ())  # mistake


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (number_is_no_element_type, r"'shmem\.p' op attribute 'type' failed to satisfy constraint: .*i8, u8"),
        (value_is_of_another_type, r"'shmem\.p' op value is 'f32', and the element type u32 is 'i32' in IR"),
        (op_lacks_an_attribute, r"an attribute of a shmem op was not passed as a constant i32"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_plugin_refuses_what_the_language_does_not_check(
    compile_kernel: Compile, kernel: Callable[..., None], said: str
) -> None:
    with pytest.raises(CompilationError, match=said) as caught:
        compile_kernel(kernel, SIGNATURE)
    assert "# mistake" in str(caught.value)


def test_ops_outside_of_kernels_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime import interpreter

    monkeypatch.setattr(interpreter, "interpreter_builder", object())  # as without the CPU world
    with pytest.raises(ValueError, match="my_pe was called outside of a kernel"):
        dl.my_pe()


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_clusters_are_refused(compile_kernel: Compile) -> None:
    def kernel(x, sig, pe):
        tl.store(x + tl.arange(0, 128), 1.0)
        dl.signal_op(sig, 1, dl.SIGNAL_ADD, pe)

    place = re.escape(f"{__file__}:{line_of(kernel, 'signal_op')}:")
    with pytest.raises(ShmemCompilationError, match=rf"^{place}\d+: shmem\.signal_op in a kernel with num_ctas=2"):
        compile_kernel(kernel, {"x": "*fp32", "sig": "*i64", "pe": "i32"}, num_ctas=2)


def test_clusters_are_refused_without_a_store(compile_kernel: Compile) -> None:
    """Triton's passes for clusters cannot do with such a kernel, and run before ours."""

    def kernel(sig, pe):
        dl.signal_op(sig, 1, dl.SIGNAL_ADD, pe)

    place = re.escape(f"{__file__}:{line_of(kernel, 'signal_op')}:")
    with pytest.raises(ShmemCompilationError, match=rf"^{place}\d+: shmem\.signal_op in a kernel with num_ctas=2"):
        compile_kernel(kernel, {"sig": "*i64", "pe": "i32"}, num_ctas=2)


def test_what_the_library_lacks_is_said_with_the_line(compile_kernel: Compile) -> None:
    """NVSHMEM 3.4.5 has no atomic addition to floats; our own library has."""

    def kernel(x, pe):
        dl.atomic_add(x, 1.0, pe)

    place = re.escape(f"{__file__}:{line_of(kernel, 'atomic_add')}:")
    with pytest.raises(
        ShmemCompilationError, match=rf"^{place}\d+: shmem\.atomic_add is not available on transport nvsh"
    ):
        compile_kernel(kernel, {"x": "*fp32", "pe": "i32"})
    with transport.using("p2p"):
        ptx = compile_kernel(kernel, {"x": "*fp32", "pe": "i32"}).asm["ptx"]
    assert re.search(r"(atom|red)\.(relaxed\.)?(sys\.)?(global\.)?(sys\.)?add\.f32", ptx)


def test_a_pe_that_the_world_does_not_have_is_warned_of(compile_kernel: Compile) -> None:
    """A warning, no error: there may be a branch on n_pes() around it."""

    def kernel(x, pe):
        dl.putmem(x, x, 4, 4)
        dl.putmem(x, x, 4, 3)

    place = re.escape(f"{__file__}:{line_of(kernel, 'x, 4, 4')}:")
    transport.choose(None, 4)
    try:
        with pytest.warns(UserWarning, match=rf"^{place}\d+: shmem\.putmem: pe 4 is out of range \[0, 4\)") as caught:
            compile_kernel(kernel, {"x": "*fp32", "pe": "i32"})
    finally:
        transport.choose(None)
    assert len(caught) == 1
