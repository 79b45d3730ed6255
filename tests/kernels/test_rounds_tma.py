"""The kernels of rounds by TMA, and their combines: machine code, for a GPU that is not there, by the host's code."""

from __future__ import annotations

from pathlib import Path

import pytest
from ptx import made_by, ptxas_report
from sass import ptx_that_fits, signals_all, takes_uniform_numbers
from shared_reads import released_before_read

COMPILE = Path(__file__).with_name("rounds_tma_ptx.py")


@pytest.mark.parametrize(
    "cases",
    [
        ("7168-8-2-24",),  # DeepSeek-V3's rows of fp8
        pytest.param(
            (
                "8192-1-2-64",  # one choice, and programs that only send
                *("7168-8-8-24", "7168-8-2-64", "14336-8-2-24", "14336-8-8-64", "1024-1-2-8", "4096-16-8-24"),
                *("28672-8-2-24", "32768-16-8-64", "16384-16-3-1"),
            ),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_it_moves_rows_by_tma_and_does_not_spill(
    tmp_path: Path, cases: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_DIST_WORLD", "gpu")  # for the host's choices
    made_by(COMPILE, tmp_path, *cases)
    for case in cases:
        ptx = ptx_that_fits(tmp_path, case)
        assert takes_uniform_numbers(tmp_path, case), case
        assert "cp.async.bulk.tensor.3d.shared" in ptx and "cp.async.bulk.tensor.3d.global" in ptx
        # A round is complete before its flag is released, and its rows are loaded behind the flag of the peer.
        assert "cp.async.bulk.wait_group 0" in ptx and signals_all(ptx)
        acquired = ptx.index("ld.global.sys.acquire")
        assert "fence.proxy.async" in ptx[acquired : ptx.index("cp.async.bulk.tensor", acquired)]
        combine = tmp_path / f"combine-{case}.ptx"
        if int(case.split("-")[1]) <= 8:
            ptx_that_fits(tmp_path, f"combine-{case}")
        code = combine.read_text()
        # What is read of shared memory has come to registers before TMA may overwrite it, wherever it is released.
        released = code.count("fence.proxy.async.shared::cta")
        assert released >= 3 and signals_all(code) and "cp.async.bulk.tensor.3d.shared" in code
        assert not released_before_read(code), case
        headers = tmp_path / f"headers-{case}.ptx"
        assert " 0 bytes spill stores" in ptxas_report(headers), case
        assert "ld.volatile.global" in headers.read_text() and "__assertfail" in headers.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_combines_without_weights_do_not_spill(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_DIST_WORLD", "gpu")
    cases = [f"{sizes}-{dtype}" for sizes in ("14336-8-4-24", "2944-3-2-20", "24576-8-2-24")]
    made_by(COMPILE, tmp_path, *cases)
    for case in cases:
        assert "st.global.v4.b32" in ptx_that_fits(tmp_path, f"combine-{case}")
