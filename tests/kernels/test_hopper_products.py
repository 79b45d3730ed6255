"""The machine code of the Hopper products: made for a GPU that is not there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from triton_dist.kernels.gemm.config import FLAT, LARGE, WIDE, Config
from triton_dist.kernels.gemm.hopper.kernel import multiply
from triton_dist.kernels.gemm.hopper.launch import REGISTERS

PTXAS = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"


def descriptor(*block: int) -> str:
    layout = gl.NVMMASharedLayout.get_default_for(list(block), gl.bfloat16)
    return f"tensordesc<bf16{list(block)},{layout!r}>"


def compiled(config: Config, piece: tuple[int, int] | None = None, traced: bool = False, **options: Any) -> Any:
    part = config.block_m // config.groups
    types = dict.fromkeys(multiply.arg_names, "*i32")
    types |= {"a": descriptor(part, config.block_k), "a_own": descriptor(part, config.block_k)}
    types |= {"b": descriptor(config.block_k, config.block_n)}
    types |= dict.fromkeys(["c", "staging"], descriptor(part, config.block_n))
    types |= dict.fromkeys(["following", *(f"c{i}" for i in range(8))], descriptor(*(piece or (part, config.block_n))))
    types |= {"slots": "*fp32", "distances": "*i64", "me": "i32", "tiles_n": "i32", "pace": "i32"}
    constants: dict[str, Any] = {
        "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k, "STAGES": config.stages,
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


@pytest.mark.parametrize(
    ("config", "options"),
    [
        pytest.param(LARGE, {"OUT": "senders", "SENDERS": 16}, id="senders"),
        pytest.param(LARGE, {"OUT": "ring_all", "SPLIT": True}, id="ring_all"),
        pytest.param(LARGE, {"GATHER": True}, id="gather"),
    ],
)
def test_it_fits_and_does_not_spill_where_it_multiplies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    kernel = compiled(config, **options)
    assert kernel.metadata.shared <= 227 << 10
    ptx = kernel.asm["ptx"]
    assert "wgmma.mma_async.sync.aligned.m64n128k16" in ptx
    assert "cp.async.bulk.tensor.2d.global.shared::cta" in ptx  # tiles leave by TMA
    assert ptx.count("cp.async.bulk.wait_group 0;") >= 1  # and are complete before anybody is told
    assert "globaltimer" not in ptx  # who is not traced looks at no clock
    assert spilt(tmp_path, ptx) <= 64  # single warps with few registers may keep some numbers


@pytest.mark.parametrize(
    ("config", "options"),
    [
        pytest.param(LARGE, {"OUT": "senders", "SENDERS": 16}, id="senders"),
        pytest.param(WIDE, {"OUT": "ring", "SPLIT": True}, id="ring"),
        pytest.param(FLAT, {"OUT": "scatter", "GATHER": True}, id="flat"),
    ],
)
def test_traced_it_looks_at_the_clock_and_fits_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Config, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    ptx = compiled(config, traced=True, **options).asm["ptx"]
    assert ptx.count("globaltimer") >= 2 * (3 * config.groups + 3)
    assert spilt(tmp_path, ptx) <= 64


def spilt(tmp_path: Path, ptx: str) -> int:
    """Bytes that a thread of the kernel has to keep in memory."""
    (tmp_path / "kernel.ptx").write_text(ptx)
    command = [PTXAS, "-v", "-arch=sm_90a", tmp_path / "kernel.ptx", "-o", tmp_path / "kernel.cubin"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = re.search(r"(\d+) bytes spill stores", report)
    assert found is not None, report
    return int(found[1])
