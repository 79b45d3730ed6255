"""Arguments of ops: a number that does not fit is an error with the user's value, and what fits arrives as it is."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import pytest
import triton.language as tl
from triton.compiler.errors import CompilationError

import triton_dist.language as dl
from triton_dist.compiler import transport

Compile = Callable[..., Any]

SIGNATURE = {
    "x": "*fp32",
    "words": "*i16",
    "small": "*i32",
    "unsigned": "*u32",
    "sig": "*i64",
    "flags": "*i1",
    "n": "i32",
    "pe": "i32",
    "wide": "i64",
    "ONE": 1,
}

INT32, INT64 = r"\[0, 2147483647\]", r"\[0, 9223372036854775807\]"

MISTAKES = {
    # constants out of range
    "dl.wait_until(words, dl.CMP_GE, 40000)": r"wait_until: cmp_value is 40000: it must be within \[-32768, 32767\]",
    "dl.test_all(words, 4, None, dl.CMP_EQ, -32769)": "test_all: cmp_value is -32769",
    "dl.atomic_compare_swap(small, 1 << 32, 7, 0)": "atomic_compare_swap: cond is 4294967296",
    "dl.atomic_set(unsigned, -1, pe)": r"atomic_set: value must not be negative, got -1",
    "dl.atomic_add(small, 1 << 32, pe)": r"atomic_add: value is 4294967296: .* \[-2147483648, 4294967295\]",
    "dl.p(words, 1 << 16, pe)": "p: value is 65536",
    "dl.putmem(x, x, 16, 1 << 32)": f"putmem: pe is 4294967296: it must be within {INT32}",
    "dl.symm_at(x, 1 << 31)": f"symm_at: pe is 2147483648: it must be within {INT32}",
    "dl.broadcast(dl.TEAM_WORLD, x, x, 4, 1 << 32)": f"broadcast: root is 4294967296: it must be within {INT32}",
    "dl.putmem(x, x, 1 << 63, pe)": f"putmem: nbytes is 9223372036854775808: it must be within {INT64}",
    "dl.put(x, x, 1 << 62, pe)": r"put: nelems is 4611686018427387904: it must be within \[0, 2305843009213693951\]",
    "dl.iput(x, x, 1 << 64, 1, 4, pe)": "iput: dst_stride is 18446744073709551616",
    "dl.ibput(x, x, 4, 4, -1, 4, pe)": "ibput: bsize must not be negative, got -1",
    "dl.ibget(x, small, 4, 4, 4, 4, pe)": "ibget: dst and src must have one element type, got fp32 and int32",
    "dl.ibget(x, x, 4, 4, 4, 1 << 63, pe)": f"ibget: nblocks is 9223372036854775808: it must be within {INT64}",
    "dl.signal_op(sig, 1 << 64, dl.SIGNAL_SET, pe)": "signal_op: signal is 18446744073709551616",
    "dl.team_n_pes(1 << 32)": "team_n_pes: team is 4294967296",
    "dl.team_my_pe(-2)": r"team_my_pe: team is -2: it must be within \[-1, 2147483647\]",
    "dl.notify(sig, pe, signal=1 << 65)": "notify: signal is 36893488147419103232|signal_op: signal is 368934881474191",
    # numbers at run time that would lose bits
    "dl.putmem(x, x, 16, wide)": r"putmem: pe must be an integer of at most 32 bits, got a value of type int64: "
    r"where its values fit, cast it with \.to\(tl\.int32\)",
    "dl.atomic_add(small, wide, pe)": r"atomic_add: value must be an integer of at most 32 bits.*\.to\(tl\.int32\)",
    "dl.wait_until(words, dl.CMP_EQ, n)": r"wait_until: cmp_value must be an integer of at most 16 bits",
    "dl.sync(wide)": "sync: team must be an integer of at most 32 bits",
    # other things than integers
    "dl.putmem(x, x, dl.CMP_GE, pe)": "putmem: nbytes must be an integer, got dl.CMP_GE",
    "dl.signal_op(sig, dl.SIGNAL_ADD, dl.SIGNAL_ADD, pe)": "signal_op: signal must be an integer, got dl.SIGNAL_ADD",
    "dl.atomic_add(small, dl.CMP_EQ, pe)": "atomic_add: value must be a number, got dl.CMP_EQ",
    "dl.putmem(x, x, True, pe)": "putmem: nbytes must be an integer, got True of type bool",
    "dl.atomic_add(small, True, pe)": "atomic_add: value must be a number, as int32 is, got True of type bool",
    "dl.atomic_add(small, n > 1, pe)": "atomic_add: value must be a number, as int32 is, got a value of type int1",
    "dl.atomic_add(small, 1.5, pe)": "atomic_add: value must be an integer, as int32 is, got 1.5 of type float",
    "dl.p(small, '1', pe)": "p: value must be a number, got '1' of type str",
    "dl.p(flags, 2, pe)": "p: value must be True or False, as the elements are, got 2 of type int",
    "dl.p(flags, n, pe)": r"p: value must be a truth value \(int1\), as int1 is, got a value of type int32",
    "dl.consume_token(True, dl.signal_wait_until(sig, dl.CMP_EQ, 1))": "consume_token: value must be a pointer",
    # pointers
    "dl.test_some(sig, 4, None, None, dl.CMP_EQ, 1)": "test_some: indices must be a pointer, got None",
    "dl.wait_until_some(sig, 4, None, None, dl.CMP_EQ, 1)": "wait_until_some: indices must be a pointer, got None",
    "dl.test_some_vector(sig, 4, None, None, dl.CMP_EQ, sig)": "test_some_vector: indices must be a pointer",
    "dl.wait_until_some_vector(sig, 4, small, None, dl.CMP_EQ, sig)": "indices must point to int64, got",
    "dl.atomic_add(small + tl.arange(0, 4), 1, pe)": r"got a block .* use tl\.atomic_add on dl\.symm_at\(dst, pe\)",
    "dl.atomic_fetch_inc(small + tl.arange(0, 4), pe)": r"use tl\.atomic_add\(…, 1\) on dl\.symm_at",
    "dl.atomic_swap(small + tl.arange(0, 4), 1, pe)": r"use tl\.atomic_xchg on dl\.symm_at",
    "dl.atomic_compare_swap(small + tl.arange(0, 4), 0, 1, pe)": r"use tl\.atomic_cas on dl\.symm_at",
    "dl.p(x + tl.arange(0, 4), 1, pe)": r"for one value per element use dl\.store",
    "dl.g(x + tl.arange(0, 4), pe)": r"for one value per element use dl\.load",
    "dl.wait_until(flags, dl.CMP_EQ, 1)": "ivar must point to 16-, 32- or 64-bit integers, got a pointer to int1",
    "dl.sum_reduce(dl.TEAM_WORLD, flags, flags, 4)": "sum_reduce: src points to int1, which OpenSHMEM",
    # no team
    "dl.barrier(dl.TEAM_INVALID)": "barrier: team is dl.TEAM_INVALID, which has no PEs",
    "dl.sync(-1)": "sync: team is dl.TEAM_INVALID, which has no PEs",
    "dl.broadcast(dl.TEAM_INVALID, x, x, 4, 0)": "broadcast: team is dl.TEAM_INVALID",
    "dl.alltoall(dl.TEAM_INVALID, x, x, 4)": "alltoall: team is dl.TEAM_INVALID",
    "dl.max_reducescatter(dl.TEAM_INVALID, x, x, 4)": "max_reducescatter: team is dl.TEAM_INVALID",
}

FINE = [
    "dl.wait_until(words, dl.CMP_GE, 32767)",
    "dl.atomic_add(unsigned, -1, pe)",
    "dl.atomic_and(small, 0xFFFF0000, pe)",
    "dl.signal_op(sig, (1 << 64) - 1, dl.SIGNAL_SET, pe)",
    "dl.signal_op(sig, -1, dl.SIGNAL_ADD, pe)",
    "dl.putmem(x, x, wide, wide.to(tl.int32))",
    "dl.wait(small, n, 'gpu', 'acquire', waitValue=1)",
    "dl.wait(small, ONE, 'gpu', 'acquire')",
    "dl.team_translate_pe(dl.TEAM_INVALID, -5, dl.TEAM_WORLD)",
    "dl.p(flags, True, pe)",
    "dl.p(flags, n > 1, pe)",
    "dl.store(flags, dl.g(flags, pe), pe)",
    "dl.iput(flags, flags, 2, 1, n, pe)",
    "dl.ibput(flags, flags, 4, 4, 2, n, pe)",
    "dl.ibget(flags, flags, -4, 4, n, 3, pe)",
]


@pytest.fixture(scope="module")
def kernel_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Callable[..., None]]:
    """A kernel that holds one call, in a file, since Triton reads the source."""
    folder = tmp_path_factory.mktemp("calls")

    def kernel_of(call: str) -> Callable[..., None]:
        name = f"call_{len(list(folder.iterdir()))}"
        file = folder / f"{name}.py"
        header = "import triton.language as tl\nimport triton_dist.language as dl\n"
        file.write_text(f"{header}def kernel({', '.join(SIGNATURE)}):\n    {call}\n")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kernel: Callable[..., None] = module.kernel
        return kernel

    return kernel_of


@pytest.mark.parametrize("call", MISTAKES)
def test_mistake(compile_kernel: Compile, kernel_of: Callable[[str], Any], call: str) -> None:
    with pytest.raises(CompilationError) as caught:
        compile_kernel(kernel_of(call), SIGNATURE)
    assert re.search(MISTAKES[call], str(caught.value)), str(caught.value)
    assert call in str(caught.value), "the message shows the user's line"


def test_what_fits_compiles(compile_kernel: Compile, kernel_of: Callable[[str], Any]) -> None:
    with transport.using("p2p"):
        compile_kernel(kernel_of("\n    ".join(FINE)), SIGNATURE)


@pytest.mark.parametrize("call", [call for call in FINE if call.startswith("dl.signal_op")])
def test_signals_are_bits(compile_kernel: Compile, kernel_of: Callable[[str], Any], call: str) -> None:
    with transport.using("p2p"):
        assert " -1;" in compile_kernel(kernel_of(call), SIGNATURE).asm["ptx"]


def test_an_element_of_bool_is_a_byte(compile_kernel: Compile) -> None:
    def kernel(flags, pe):
        dl.put(flags, flags, 48, pe)

    with transport.using("p2p"):
        ttir = compile_kernel(kernel, {"flags": "*i1", "pe": "i32"}).asm["ttir"]
    assert re.search(r"arith\.constant 48 : i64", ttir), ttir


@pytest.mark.parametrize("row", [0, 1, 7], ids="row {}".format)
@pytest.mark.parametrize("transport_name", ["p2p", "nvshmem"])
def test_a_constant_offset_carries_a_token(compile_kernel: Compile, row: int, transport_name: str) -> None:
    """The copy of a tile is issued behind the wait, in every turn of a pipelined loop, too."""

    def kernel(source, sig, out, n, ROW: tl.constexpr):
        i = tl.arange(0, 64)
        tile = i[:, None] * 64 + i[None, :]
        acc = tl.zeros((64, 64), tl.float32)
        for k in range(n):
            token = dl.signal_wait_until(sig + k, dl.CMP_GE, 1)
            left = source.load([dl.consume_token(ROW, token), k * 64])
            acc = tl.dot(left, left, acc)
        tl.store(out + tile, acc)

    signature = {"source": "tensordesc<fp16[64, 64]>", "sig": "*i64", "out": "*fp32", "n": "i32", "ROW": row}
    with transport.using(transport_name):
        compiled = compile_kernel(kernel, signature, num_stages=3)
    copies = [line for line in compiled.asm["ttgir"].splitlines() if "async_tma_copy_global_to_local" in line]
    assert len(copies) == 3, "one for each stage, all in the loop's prologue and body"
    assert "token_zero" in compiled.asm["ttgir"]
    for copy in copies:
        row_operand = re.search(r"\[(%\w+)", copy)
        assert row_operand, copy
        assert depends_on_a_wait(compiled.asm["ttgir"], row_operand[1]), copy


def depends_on_a_wait(ir: str, value: str) -> bool:
    """Whether a value is made from that of ``shmem.token_zero``."""
    definition = re.search(rf"^\s*{re.escape(value)} = (.*)$", ir, re.MULTILINE)
    if definition is None:
        return False
    if "token_zero" in definition[1]:
        return True
    return any(depends_on_a_wait(ir, operand) for operand in re.findall(r"%\w+", definition[1]))
