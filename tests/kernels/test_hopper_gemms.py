"""The machine code of the Hopper GEMMs: made for a GPU that is not there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from ptx import made_by, ptxas_report, without_machine_code
from sass import registers_by_limit
from shared_reads import released_before_read
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import triton_dist
from triton_dist.compiler import hooks
from triton_dist.kernels.gemm.config import FLAT, K_BYTES, LARGE, NARROW, WIDE, Config
from triton_dist.kernels.gemm.epilogue import Epilogue
from triton_dist.kernels.gemm.hopper import (
    all_gather_gemm,
    all_gather_gemm_push,
    gemm_all_reduce,
    gemm_all_reduce_direct,
    gemm_all_scatter,
    gemm_all_scatter_chunks,
    gemm_all_scatter_comm_programs,
    gemm_reduce_scatter,
    gemm_reduce_scatter_direct,
    launch,
    local_gemm,
)
from triton_dist.kernels.gemm.hopper.block_scales import BlockFactors
from triton_dist.kernels.gemm.hopper.epochs import Peers
from triton_dist.kernels.gemm.hopper.gemm_all_scatter_chunks import Chunks
from triton_dist.kernels.gemm.hopper.launch import fits
from triton_dist.kernels.gemm.hopper.load import PIECE
from triton_dist.kernels.gemm.hopper.multiply import SplitK
from triton_dist.kernels.gemm.hopper.pacing import piece_of
from triton_dist.kernels.gemm.hopper.scales import RowFactors
from triton_dist.kernels.gemm.hopper.store import Pacing
from triton_dist.kernels.gemm.hopper.warps import REGISTERS
from triton_dist.kernels.gemm.hopper.work import Work
from triton_dist.kernels.gemm.local_gemm import _scaled_mm_takes
from triton_dist.triton_api.mbarriers import forgotten_mbarriers

SLOW = pytest.mark.slow


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the hooks that compile the kernels' waits; in the CPU world the package does not install them."""
    monkeypatch.setattr(triton.knobs.cache, "dir", without_machine_code()["TRITON_CACHE_DIR"])
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(CUDABackend, "make_cubin", lambda *arguments: b"")  # spilt() runs ptxas
    hooks.install()


def descriptor(*block: int, dtype: Any = gl.bfloat16) -> str:
    layout = gl.NVMMASharedLayout.get_default_for(list(block), dtype)
    return f"tensordesc<{dtype.name}{list(block)},{layout!r}>"


def kernel_of(operation: Any) -> Any:
    return getattr(operation, f"{operation.__name__.rpartition('.')[2]}_kernel")


def compiled(
    operation: Any,
    config: Config,
    *,
    split: bool = False,
    traced: bool = False,
    a: Any = gl.bfloat16,
    b: Any = gl.bfloat16,
    by_columns: bool = False,
    n_pes: int = 4,
    epilogue: dict[str, str] | None = None,
) -> Any:
    """The kernel of a module in gemm/hopper, with arguments as the host has them."""
    kernel = kernel_of(operation)
    block_k = 8 * K_BYTES // a.primitive_bitwidth
    config = replace(config, fold=2 if (epilogue or {}).get("activation") == "swiglu" else 1)
    c_block = (config.group_m, config.c_columns)
    piece = piece_of(config) if "pacing" in kernel.arg_names else c_block
    types: dict[str, Any] = dict.fromkeys(["a", "own_a"], descriptor(config.group_m, block_k, dtype=a))
    types |= dict.fromkeys(["a_piece", "own_a_piece"], descriptor(int(PIECE.value), block_k, dtype=a))
    types |= {"b": descriptor(*((config.block_n, block_k) if by_columns else (block_k, config.block_n)), dtype=b)}
    types |= dict.fromkeys(["c", "staging"], descriptor(*c_block))
    peers = (f"{of}{i}" for of in "cs" for i in range(1, 8))
    types |= dict.fromkeys(["next_staging", *peers], descriptor(*piece))
    types |= {
        "work": Work("*i32", "*i32"),
        "peers": Peers("i32", "*i32", "*i64"),
        "state": "*i32",
        "tiles_n": "i32",
        "each": "i32",
    }
    types |= {"pacing": Pacing("i32", "i32"), "chunks": Chunks("*i32", "*i32"), "padding": "i32", "rows": "i32"}
    types |= dict.fromkeys(["own_rows", "own_padding", "senders", "interval"], "i32")
    types |= dict.fromkeys([f"a{i}" for i in range(8)], types["a"])
    types |= {"split": SplitK("*fp32", "*i32"), "trace": "*i64"}
    types["scale"] = BlockFactors("*fp32", "*fp32", "i32", "i32") if config.of_blocks else "*fp32"
    if config.of_rows:
        types["scale"] = RowFactors("*fp32", "*fp32", "i32")
    missing = {"split": not split, "scale": a.primitive_bitwidth != 8, "trace": not traced}
    constants: dict[str, Any] = {"CONFIG": config, "B_BY_COLUMNS": by_columns, "N_PES": n_pes}
    constants |= {"COMM_PROGRAMS": 16, "STEPS": 8}
    constants |= {name: None for name, lacks in missing.items() if lacks}
    types |= dict.fromkeys(constants, "constexpr")
    parts = dict.fromkeys(Epilogue._fields, "constexpr") | (epilogue or {})
    activation = parts["activation"] if "activation" in (epilogue or {}) else None
    parts["activation"] = "constexpr"
    types["epilogue"] = Epilogue(**parts)
    places = {name: (i,) for i, name in enumerate(kernel.arg_names)}
    known = {places[name]: value for name, value in constants.items() if name in places}
    absent = [i for i, part in enumerate(parts.values()) if part == "constexpr"]
    source = GluonASTSource(
        kernel,
        {name: types[name] for name in places},
        known | {(*places["epilogue"], i): None for i in absent} | {(*places["epilogue"], 0): activation},
        {
            **{(*places["epilogue"], i): [["tt.divisibility", 16]] for i, _ in enumerate(parts) if i not in absent},
            **({(*places["split"], 0): [["tt.divisibility", 16]]} if split else {}),
        },
    )
    flags = {"num_warps": 4, "maxnreg": REGISTERS[config.groups]}
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=flags)
    assert not forgotten_mbarriers(found.asm["ttgir"])
    assert not released_before_read(found.asm["ptx"])
    return found


E4M3, E5M2 = gl.float8e4nv, gl.float8e5
FEW = 0 if triton.__version__.startswith("3.7.") else 24
"""Bytes that a thread may spill. Newer Tritons leave some kernels a few registers too few (docs/building.md)."""
FP8 = {"a": E4M3, "b": E4M3, "by_columns": True}


BIAS = {"bias": "*bf16", "columns": "i32"}
SWIGLU = BIAS | {"activation": "swiglu"}
RESIDUAL = BIAS | {"residual": "*bf16"}


OPERATIONS = (
    local_gemm,
    gemm_all_scatter,
    gemm_all_scatter_comm_programs,
    gemm_all_scatter_chunks,
    all_gather_gemm,
    all_gather_gemm_push,
    gemm_reduce_scatter,
    gemm_reduce_scatter_direct,
    gemm_all_reduce,
    gemm_all_reduce_direct,
)


@pytest.mark.parametrize(
    ("operation", "config", "options"),
    [
        pytest.param(local_gemm, LARGE, {}, id="local", marks=SLOW),
        pytest.param(gemm_all_scatter_comm_programs, LARGE, {}, id="comm_programs", marks=SLOW),
        pytest.param(gemm_all_reduce, LARGE, {"split": True}, id="ring_all", marks=SLOW),
        pytest.param(gemm_all_reduce_direct, WIDE, {}, id="direct_wide"),
        pytest.param(gemm_all_reduce_direct, LARGE, {"split": True, "epilogue": RESIDUAL}, id="direct", marks=SLOW),
        pytest.param(gemm_all_reduce_direct, WIDE, {**FP8, "n_pes": 8}, id="fp8_direct_wide", marks=SLOW),
        pytest.param(gemm_reduce_scatter_direct, WIDE, {}, id="direct_rows_wide", marks=SLOW),
        pytest.param(gemm_reduce_scatter_direct, LARGE, {"split": True, "epilogue": RESIDUAL}, id="direct_rows"),
        pytest.param(gemm_reduce_scatter_direct, WIDE, {**FP8, "n_pes": 8}, id="fp8_direct_rows_wide", marks=SLOW),
        pytest.param(all_gather_gemm, LARGE, {}, id="gather", marks=SLOW),
        pytest.param(all_gather_gemm_push, LARGE, {"split": True}, id="push"),
        pytest.param(all_gather_gemm_push, WIDE, {**FP8, "n_pes": 8, "epilogue": SWIGLU}, id="fp8_push", marks=SLOW),
        pytest.param(all_gather_gemm_push, NARROW, {"n_pes": 2, "epilogue": BIAS}, id="push_narrow", marks=SLOW),
        pytest.param(gemm_all_scatter_chunks, LARGE, {}, id="chunks"),
        pytest.param(gemm_all_scatter_comm_programs, LARGE, FP8, id="fp8_comm_programs", marks=SLOW),
        pytest.param(gemm_all_reduce, LARGE, {**FP8, "split": True, "b": E5M2}, id="fp8_ring_all", marks=SLOW),
        pytest.param(all_gather_gemm, WIDE, {**FP8, "a": E5M2, "b": E5M2}, id="fp8_gather_wide"),
        pytest.param(gemm_reduce_scatter, WIDE, FP8, id="fp8_ring_wide", marks=SLOW),
        pytest.param(gemm_all_scatter, FLAT, {**FP8, "split": True}, id="fp8_scatter_flat", marks=SLOW),
        pytest.param(all_gather_gemm, WIDE, {"epilogue": BIAS}, id="gather_bias", marks=SLOW),
        pytest.param(
            gemm_all_scatter, WIDE, {**FP8, "split": True, "epilogue": BIAS}, id="fp8_scatter_bias", marks=SLOW
        ),
        pytest.param(gemm_reduce_scatter, LARGE, {"split": True, "epilogue": RESIDUAL}, id="ring_residual", marks=SLOW),
        pytest.param(gemm_all_reduce, LARGE, {**FP8, "epilogue": RESIDUAL}, id="fp8_ring_all_residual", marks=SLOW),
        pytest.param(all_gather_gemm, WIDE, {"epilogue": SWIGLU}, id="gather_swiglu", marks=SLOW),
        pytest.param(
            gemm_all_scatter, WIDE, {**FP8, "split": True, "epilogue": SWIGLU}, id="fp8_scatter_swiglu", marks=SLOW
        ),
        pytest.param(gemm_all_scatter, FLAT, {"epilogue": SWIGLU}, id="scatter_flat_swiglu"),
        pytest.param(
            gemm_all_scatter_comm_programs, LARGE, {"epilogue": SWIGLU}, id="comm_programs_swiglu", marks=SLOW
        ),
        pytest.param(all_gather_gemm, LARGE, {"epilogue": BIAS | {"activation": "gelu"}}, id="gather_gelu", marks=SLOW),
        pytest.param(
            gemm_all_reduce,
            LARGE,
            {"epilogue": RESIDUAL | {"activation": "gelu_tanh"}},
            id="ring_gelu_tanh",
            marks=SLOW,
        ),
    ],
)
def test_it_fits_and_does_not_spill_where_it_multiplies(
    tmp_path: Path, operation: Any, config: Config, options: dict[str, Any]
) -> None:
    kernel = compiled(operation, config, **options)
    assert kernel.metadata.shared <= 227 << 10
    ptx = kernel.asm["ptx"]
    k, *types = (16, "bf16", "bf16")
    if "a" in options:
        k, *types = (32, *("e4m3" if options[operand] == E4M3 else "e5m2" for operand in "ab"))
    assert f"wgmma.mma_async.sync.aligned.m64n{config.block_n}k{k}.f32.{'.'.join(types)}" in ptx
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in ptx  # tiles are stored by TMA
    assert ptx.count("cp.async.bulk.wait_group 0;") >= 1  # and are complete before a flag says so
    # Without a trace only long waits read the clock, in a function that they call.
    assert "%globaltimer;" not in ptx[ptx.index(".visible .entry") :].split("\n.func")[0]
    paced = {"pacing", "interval"} & set(kernel_of(operation).arg_names)
    assert ("%globaltimer_lo" in ptx) == bool(paced)  # throttled stores wait until the next piece is due
    assert spilt(tmp_path, ptx) <= FEW


@pytest.mark.parametrize(
    ("operation", "config", "options"),
    [
        pytest.param(local_gemm, LARGE, {}, id="local", marks=SLOW),
        pytest.param(local_gemm, FLAT, {"split": True, "epilogue": BIAS}, id="local_flat", marks=SLOW),
        pytest.param(local_gemm, NARROW, {"split": True, "a": E5M2}, id="local_narrow", marks=SLOW),
        pytest.param(all_gather_gemm, LARGE, {"n_pes": 2}, id="gather", marks=SLOW),
        pytest.param(all_gather_gemm, LARGE, {"n_pes": 8, "epilogue": SWIGLU}, id="gather_8", marks=SLOW),
        pytest.param(gemm_reduce_scatter, LARGE, {"n_pes": 2, "split": True}, id="ring"),
        pytest.param(gemm_reduce_scatter, LARGE, {"n_pes": 8, "epilogue": RESIDUAL}, id="ring_8", marks=SLOW),
        pytest.param(gemm_all_reduce, LARGE, {"n_pes": 2, "traced": True}, id="ring_all", marks=SLOW),
        pytest.param(gemm_all_reduce_direct, LARGE, {"traced": True}, id="direct", marks=SLOW),
        pytest.param(gemm_reduce_scatter_direct, LARGE, {"n_pes": 8, "epilogue": RESIDUAL}, id="rows", marks=SLOW),
        pytest.param(gemm_all_scatter, LARGE, {"split": True}, id="scatter", marks=SLOW),
        pytest.param(gemm_all_scatter, FLAT, {"n_pes": 2, "epilogue": SWIGLU}, id="scatter_flat", marks=SLOW),
        pytest.param(gemm_all_scatter_comm_programs, LARGE, {"split": True}, id="programs", marks=SLOW),
        pytest.param(gemm_all_scatter_comm_programs, LARGE, {"epilogue": SWIGLU}, id="programs_swiglu", marks=SLOW),
        pytest.param(gemm_all_scatter_chunks, LARGE, {"n_pes": 2, "epilogue": BIAS}, id="chunks", marks=SLOW),
        pytest.param(gemm_all_scatter_chunks, NARROW, {"traced": True}, id="chunks_narrow", marks=SLOW),
    ],
)
def test_scales_of_blocks_fit_and_do_not_spill(
    tmp_path: Path, operation: Any, config: Config, options: dict[str, Any]
) -> None:
    """Each block of 128 along K is four instructions, of which the first overwrites the sums; the sums of a tile are
    added to in float32 registers."""
    kernel = compiled(operation, replace(config, of_blocks=True), **{**FP8, **options})
    assert kernel.metadata.shared <= 227 << 10
    ptx = kernel.asm["ptx"]
    assert ptx.count("wgmma.mma_async") == 4 * config.groups
    # Rows' scales come from the L1 cache. That of a peer's row must not have been there before it arrived: an acquire
    # drops the cache's lines.
    assert operation is not all_gather_gemm or "ld.global.sys.acquire" in ptx
    assert "ld.global.cg" not in ptx
    assert spilt(tmp_path, ptx) <= FEW


@pytest.mark.parametrize(
    ("operation", "config", "options"),
    [
        pytest.param(local_gemm, FLAT, {"split": True, "epilogue": BIAS}, id="local_flat", marks=SLOW),
        pytest.param(all_gather_gemm, WIDE, {"n_pes": 2, "epilogue": BIAS}, id="gather_wide", marks=SLOW),
        pytest.param(gemm_reduce_scatter, WIDE, {"n_pes": 2}, id="ring_wide", marks=SLOW),
        pytest.param(gemm_reduce_scatter, LARGE, {"split": True, "epilogue": RESIDUAL}, id="ring", marks=SLOW),
        pytest.param(gemm_all_reduce, LARGE, {"n_pes": 2, "traced": True}, id="ring_all", marks=SLOW),
        pytest.param(gemm_all_reduce_direct, WIDE, {}, id="direct_wide", marks=SLOW),
        pytest.param(gemm_reduce_scatter_direct, WIDE, {}, id="direct_rows", marks=SLOW),
        pytest.param(gemm_all_scatter, LARGE, {"split": True, "epilogue": SWIGLU}, id="scatter", marks=SLOW),
        pytest.param(gemm_all_scatter_comm_programs, LARGE, {"split": True}, id="programs", marks=SLOW),
        pytest.param(gemm_all_scatter_chunks, NARROW, {"n_pes": 2}, id="chunks_narrow"),
    ],
)
def test_scales_of_rows_fit_and_do_not_spill(
    tmp_path: Path, operation: Any, config: Config, options: dict[str, Any]
) -> None:
    """Sums stay in the tensor cores for the whole of K, as with one scale, and are scaled once."""
    kernel = compiled(operation, replace(config, of_rows=True), **{**FP8, **options})
    assert kernel.metadata.shared <= 227 << 10
    ptx = kernel.asm["ptx"]
    assert ptx.count("wgmma.mma_async") == 4 * config.groups
    assert ptx.count("ld.global.cg") >= 2 * config.groups  # scales of rows, which peers may have sent
    assert spilt(tmp_path, ptx) <= FEW


@SLOW
@pytest.mark.parametrize(
    ("operation", "epilogue"),
    [(gemm_all_reduce, RESIDUAL), (gemm_all_scatter, BIAS), (gemm_all_scatter_comm_programs, BIAS)],
    ids=["ring_all", "scatter", "programs"],
)
def test_scales_of_blocks_spill_nothing_more_on_8_pes(tmp_path: Path, operation: Any, epilogue: dict[str, str]) -> None:
    """The store warp of these operations has descriptors of C on all PEs, and 24 registers, with any scales. One has a
    word more to keep, which it reads once."""
    options: dict[str, Any] = {**FP8, "n_pes": 8, "epilogue": epilogue}
    spills = [
        spilt(tmp_path, compiled(operation, replace(LARGE, of_blocks=of_blocks), **options).asm["ptx"])
        for of_blocks in (False, True)
    ]
    more = spills[1] - spills[0]
    assert more in (0, 4 if operation is gemm_all_scatter_comm_programs else 0) or more <= FEW != 0, spills


@pytest.mark.parametrize(
    ("operation", "config", "options"),
    [
        pytest.param(gemm_all_scatter_comm_programs, LARGE, {}, id="comm_programs", marks=SLOW),
        pytest.param(gemm_reduce_scatter, WIDE, {"split": True}, id="ring", marks=SLOW),
        pytest.param(all_gather_gemm, FLAT, {}, id="gather_flat"),
        pytest.param(all_gather_gemm_push, LARGE, {"n_pes": 8}, id="push", marks=SLOW),
        pytest.param(gemm_all_scatter, FLAT, {}, id="scatter_flat", marks=SLOW),
        pytest.param(gemm_all_reduce, WIDE, {**FP8, "split": True}, id="fp8_ring", marks=SLOW),
    ],
)
def test_traced_it_looks_at_the_clock_and_fits_as_well(
    tmp_path: Path, operation: Any, config: Config, options: dict[str, Any]
) -> None:
    ptx = compiled(operation, config, traced=True, **options).asm["ptx"]
    assert ptx.count("%globaltimer;") >= 2 * (3 * config.groups + 2)
    # Rings of tiles of 256 columns that several programs sum up have a few registers too few for a trace.
    of_rings = {gemm_reduce_scatter: 8, gemm_all_reduce: 16}
    assert spilt(tmp_path, ptx) <= max(of_rings.get(operation, 0), FEW)


@pytest.mark.parametrize(
    ("operation", "alone", "with_peers"),
    [
        # Two groups of 64 rows, and two instructions for a block of 128 columns: 4 for a tile to one destination.
        pytest.param(gemm_all_scatter_comm_programs, 4, 4 + 7 * 4 + 7 * 4, id="comm_programs", marks=SLOW),
        # A piece is one instruction, in a loop; the loop for a ring's one destination is unrolled.
        pytest.param(gemm_all_scatter, 4, 4 + 7 * 2, id="scatter"),
        pytest.param(gemm_reduce_scatter, 4 + 16, 4 + 16, id="ring", marks=SLOW),
        pytest.param(gemm_all_reduce, 4 + 16, 4 + 16 + 7 * 2, id="ring_all", marks=SLOW),
        # To all peers, or to one of seven owners: in 14 loops of two groups each.
        pytest.param(gemm_all_reduce_direct, 4, 4 + 7 * 2 + 7 * 16, id="direct", marks=SLOW),
        pytest.param(gemm_reduce_scatter_direct, 4, 4 + 7 * 16, id="direct_rows", marks=SLOW),
    ],
)
def test_a_tile_is_stored_to_each_peer_once(operation: Any, alone: int, with_peers: int) -> None:
    """The numbers of PEs at both ends: without peers, and with all descriptors in use."""
    for n_pes, stores in ((1, alone), (8, with_peers)):
        ptx = compiled(operation, LARGE, n_pes=n_pes).asm["ptx"]
        assert ptx.count("cp.async.bulk.tensor.2d.global.shared::cta") == stores, n_pes


@pytest.mark.parametrize(
    "cases",
    [
        ["1"],
        pytest.param(["swiglu"], marks=SLOW),
        pytest.param(["0", "2", "bias", "residual"], marks=SLOW),
        pytest.param(["ragged", "ragged residual"], marks=SLOW),
        pytest.param(["uneven"], marks=SLOW),
        pytest.param(["uneven residual"], marks=SLOW),
        pytest.param(["blocks", "rows"], marks=SLOW),
    ],
    ids=", ".join,
)
def test_the_host_passes_what_the_kernels_take(cases: list[str]) -> None:
    printed = made_by(Path(__file__).with_name("hopper_launches.py"), *cases)
    names = [kernel_of(operation).__name__ for operation in OPERATIONS]
    local, to_all, gather, push, scatter, reduce = names[0], names[1:4], *names[4:7], names[7:]
    to_rows, reduce = [scatter, reduce[0]], reduce[1:]
    few, many = [gather, *to_rows, *reduce * 2], [gather, push, *to_rows, *reduce * 2]
    launched = {"swiglu": [local, *to_all] * 3 + [gather, push]}
    launched |= dict.fromkeys(["ragged", "ragged residual"], few * 2 + many * 4)
    launched |= dict.fromkeys(["uneven", "uneven residual"], [*to_rows, gather] * 3 + [*to_rows, gather, push] * 3)
    launched["blocks"] = [local, gather, *to_rows, *reduce, *to_all] * 3
    launched["rows"] = [local, gather, gather, *to_rows, *reduce, *to_all] * 3
    assert printed.split() == [name for case in cases for name in launched.get(case, names)]


def spilt(tmp_path: Path, ptx: str) -> int:
    """Bytes that a thread of the kernel has to keep in memory. Warps use no registers that they have given back."""
    (tmp_path / "kernel.ptx").write_text(ptx)
    report = ptxas_report(tmp_path / "kernel.ptx")
    assert "serialized" not in report, report  # wgmma, by a call that ptxas does not see through
    used = registers_by_limit(tmp_path / "kernel.cubin")
    assert len(used) > 2 and all(count <= limit for limit, count in used.items() if limit), used
    found = re.findall(r"(\d+) bytes spill stores", report)
    assert found, report
    return sum(map(int, found))


def test_it_says_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_dist, "kind", lambda: "gpu")
    monkeypatch.setattr(launch, "is_hopper", lambda: True)
    comm: Any = SimpleNamespace(n_pes=4)
    half, e4m3, e5m2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2

    def taken(a: torch.dtype, b: torch.dtype, c: torch.dtype, *, columns: bool, k: int = 48) -> tuple[bool, bool]:
        matrices = torch.zeros(8, k, dtype=a), torch.zeros(k, 16, dtype=b), torch.zeros(8, 16, dtype=c)
        if columns:
            matrices = matrices[0], torch.zeros(16, k, dtype=b).t(), matrices[2]
        return fits(comm, *matrices), _scaled_mm_takes(*matrices)

    assert taken(half, half, half, columns=False)[0] and taken(half, half, half, columns=True)[0]
    assert taken(e4m3, e4m3, half, columns=True) == taken(e5m2, e4m3, half, columns=True) == (True, True)
    assert taken(e4m3, e4m3, half, columns=False) == (False, False)  # b is not in lines along K
    assert taken(e4m3, e4m3, torch.float32, columns=True) == (False, True)  # no room for such a tile of C
    assert taken(e5m2, e5m2, half, columns=True) == (True, False)  # cuBLAS has no such product
    assert taken(e4m3, e4m3, half, columns=True, k=40) == (False, False)  # rows of 40 bytes
