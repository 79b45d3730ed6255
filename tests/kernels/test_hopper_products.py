"""The machine code of the Hopper products: made for a GPU that is not there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import triton_dist
from triton_dist.compiler import hooks
from triton_dist.kernels.device import Gpu
from triton_dist.kernels.gemm.config import FLAT, K_BYTES, LARGE, WIDE, Config
from triton_dist.kernels.gemm.hopper import launch
from triton_dist.kernels.gemm.hopper.kernel import multiply
from triton_dist.kernels.gemm.hopper.launch import REGISTERS, fits
from triton_dist.kernels.gemm.local_gemm import _scaled_mm_takes


@pytest.fixture(autouse=True)
def _compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the hooks that compile the kernels' waits; in the CPU world the package does not install them."""
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    hooks.install()


PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"


def descriptor(*block: int, dtype: Any = gl.bfloat16) -> str:
    layout = gl.NVMMASharedLayout.get_default_for(list(block), dtype)
    return f"tensordesc<{dtype.name}{list(block)},{layout!r}>"


def compiled(
    config: Config,
    piece: tuple[int, int] | None = None,
    traced: bool = False,
    a: Any = gl.bfloat16,
    b: Any = gl.bfloat16,
    **options: Any,
) -> Any:
    part, block_k = config.block_m // config.groups, 8 * K_BYTES // a.primitive_bitwidth
    by_columns = options.get("B_BY_COLUMNS", False)
    types = dict.fromkeys(multiply.arg_names, "*i32")
    types |= dict.fromkeys(["a", "a_own"], descriptor(part, block_k, dtype=a))
    types |= {"b": descriptor(*((config.block_n, block_k) if by_columns else (block_k, config.block_n)), dtype=b)}
    types |= dict.fromkeys(["c", "staging"], descriptor(part, config.block_n))
    types |= dict.fromkeys(["following", *(f"c{i}" for i in range(8))], descriptor(*(piece or (part, config.block_n))))
    types |= dict.fromkeys(["slots", "scale"], "*fp32") | {"distances": "*i64"}
    types |= dict.fromkeys(["me", "tiles_n", "pace", "gap"], "i32")
    constants: dict[str, Any] = {
        "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": block_k, "STAGES": config.stages,
        "GROUPS": config.groups, "N_PES": 4, "OUT": "local", "GATHER": False, "SPLIT": False, "B_BY_COLUMNS": False,
        "SENDERS": 0, "IN_FLIGHT": 2, "trace": None,
    } | options  # fmt: skip
    if traced:
        del constants["trace"]
        types["trace"] = "*i64"
    types |= dict.fromkeys(constants, "constexpr")
    place = {name: (i,) for i, name in enumerate(multiply.arg_names)}
    source = GluonASTSource(multiply, types, {place[name]: value for name, value in constants.items()})
    flags = {"num_warps": 4, "maxnreg": REGISTERS[config.groups]}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=flags)


E4M3, E5M2 = gl.float8e4nv, gl.float8e5
FP8 = {"a": E4M3, "b": E4M3, "B_BY_COLUMNS": True}


@pytest.mark.parametrize(
    ("config", "options"),
    [
        pytest.param(LARGE, {"OUT": "senders", "SENDERS": 16}, id="senders"),
        pytest.param(LARGE, {"OUT": "ring_all", "SPLIT": True}, id="ring_all"),
        pytest.param(LARGE, {"GATHER": True}, id="gather"),
        pytest.param(LARGE, {"OUT": "chunks"}, id="chunks"),
        pytest.param(LARGE, {**FP8, "OUT": "senders", "SENDERS": 16}, id="fp8_senders"),
        pytest.param(LARGE, {**FP8, "OUT": "ring_all", "SPLIT": True, "b": E5M2}, id="fp8_ring_all"),
        pytest.param(WIDE, {**FP8, "GATHER": True, "a": E5M2, "b": E5M2}, id="fp8_gather_wide"),
        pytest.param(WIDE, {**FP8, "OUT": "ring", "piece": (16, 64)}, id="fp8_ring_wide"),
        pytest.param(FLAT, {**FP8, "OUT": "scatter", "SPLIT": True, "piece": (16, 64)}, id="fp8_scatter_flat"),
    ],
)
def test_it_fits_and_does_not_spill_where_it_multiplies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config, options: dict[str, Any]
) -> None:
    kernel = compiled(config, **options)
    assert kernel.metadata.shared <= 227 << 10
    ptx = kernel.asm["ptx"]
    k, *types = (16, "bf16", "bf16")
    if "a" in options:
        k, *types = (32, *("e4m3" if options[factor] == E4M3 else "e5m2" for factor in "ab"))
    assert f"wgmma.mma_async.sync.aligned.m64n{config.block_n}k{k}.f32.{'.'.join(types)}" in ptx
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in ptx  # tiles leave by TMA
    assert ptx.count("cp.async.bulk.wait_group 0;") >= 1  # and are complete before anybody is told
    # Without a trace the kernel reads the clock only in long waits.
    assert ptx.count("%globaltimer;") == ptx.count("atom.sys.add.s32")  # which counts reports
    paced = options.get("OUT") in ("senders", "scatter", "ring", "ring_all")
    assert ("%globaltimer_lo" in ptx) == paced  # who sends to peers looks when the next piece is due
    assert spilt(tmp_path, ptx) <= 96  # single warps with few registers may keep some numbers


@pytest.mark.parametrize(
    ("config", "options"),
    [
        pytest.param(LARGE, {"OUT": "senders", "SENDERS": 16}, id="senders"),
        pytest.param(WIDE, {"OUT": "ring", "SPLIT": True}, id="ring"),
        pytest.param(FLAT, {"OUT": "scatter", "GATHER": True}, id="flat"),
        pytest.param(WIDE, {**FP8, "OUT": "ring_all", "SPLIT": True}, id="fp8_ring"),
    ],
)
def test_traced_it_looks_at_the_clock_and_fits_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config, options: dict[str, Any]
) -> None:
    ptx = compiled(config, traced=True, **options).asm["ptx"]
    assert ptx.count("%globaltimer;") >= 2 * (3 * config.groups + 3)
    assert spilt(tmp_path, ptx) <= 192  # times and reports of waits, in single warps with few registers


def spilt(tmp_path: Path, ptx: str) -> int:
    """Bytes that a thread of the kernel has to keep in memory."""
    (tmp_path / "kernel.ptx").write_text(ptx)
    command = [PTXAS, "-v", "-arch=sm_90a", tmp_path / "kernel.ptx", "-o", tmp_path / "kernel.cubin"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = re.search(r"(\d+) bytes spill stores", report)
    assert found is not None, report
    return int(found[1])


def test_it_says_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_dist, "kind", lambda: "gpu")
    monkeypatch.setattr(triton_dist, "n_pes", lambda: 4)
    monkeypatch.setattr(launch, "gpu", lambda: Gpu("H200", (9, 0), 132, 227 << 10))
    half, e4m3, e5m2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2

    def taken(a: torch.dtype, b: torch.dtype, c: torch.dtype, *, columns: bool, k: int = 48) -> tuple[bool, bool]:
        matrices = torch.zeros(8, k, dtype=a), torch.zeros(k, 16, dtype=b), torch.zeros(8, 16, dtype=c)
        if columns:
            matrices = matrices[0], torch.zeros(16, k, dtype=b).t(), matrices[2]
        return fits(*matrices), _scaled_mm_takes(*matrices)

    assert taken(half, half, half, columns=False)[0] and taken(half, half, half, columns=True)[0]
    assert taken(e4m3, e4m3, half, columns=True) == taken(e5m2, e4m3, half, columns=True) == (True, True)
    assert taken(e4m3, e4m3, half, columns=False) == (False, False)  # b is not in lines along K
    assert taken(e4m3, e4m3, torch.float32, columns=True) == (False, True)  # no room for such a tile of C
    assert taken(e5m2, e5m2, half, columns=True) == (True, False)  # cuBLAS has no such product
    assert taken(e4m3, e4m3, half, columns=True, k=40) == (False, False)  # rows of 40 bytes
