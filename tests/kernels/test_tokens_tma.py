"""The kernels of tokens by TMA: machine code, for a GPU that is not there, by the host's code."""

from __future__ import annotations

from pathlib import Path

import pytest
from ptx import made_by, ptxas_report
from sass import ptx_that_fits, signals_all, takes_uniform_numbers, words_waited_for
from shared_reads import released_before_read

COMPILE = Path(__file__).with_name("tokens_ptx.py")


@pytest.mark.parametrize(
    "cases",
    [
        ("7168-8-2-24-56",),  # DeepSeek-V3's rows of fp8
        pytest.param(
            (
                *("14336-8-2-24-0", "7168-8-8-24-56", "1024-1-2-8-1", "4096-16-8-24-32", "32768-16-8-24-5"),
                *("14336-3-3-1-2500", "7168-8-2-24-56-rows", "14336-8-4-24-0-rows"),
            ),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_it_moves_tokens_by_tma_and_does_not_spill(
    tmp_path: Path, cases: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_DIST_WORLD", "gpu")  # for the host's choices
    made_by(COMPILE, tmp_path, *cases)
    for case in cases:
        ptx = ptx_that_fits(tmp_path, case)
        assert takes_uniform_numbers(tmp_path, case), case
        assert words_waited_for(tmp_path, case) <= 1, case  # that of early rounds
        assert "cp.async.bulk.tensor.3d.shared" in ptx and "cp.async.bulk.tensor.3d.global" in ptx
        # It begins early. By a handle it reads nothing before the end of the kernel in front; else only numbers do not
        # wait, and what sends early rounds: every group of warps waits before it reads the tables.
        if case.endswith("rows"):
            assert ptx.index("griddepcontrol.wait") < min(ptx.index("cp.async.bulk.tensor"), ptx.index("ld.global"))
        else:
            assert ptx.count("griddepcontrol.wait") == 6
        # A round has arrived before its flag is released, and its rows are loaded behind the flag of the peer.
        assert "cp.async.bulk.wait_group 0" in ptx and signals_all(ptx)
        assert "fence.proxy.async" in ptx and "ld.global.sys.acquire" in ptx
        if case.endswith("rows"):
            continue
        for name in ("tables", "direct-tables"):
            tables = (tmp_path / f"{name}-{case}.ptx").read_text()
            assert " 0 bytes spill stores" in ptxas_report(tmp_path / f"{name}-{case}.ptx"), case
            assert "griddepcontrol.launch_dependents" in tables and "__assertfail" in tables
        # To results: loads wait for no table; a release of early rounds, and one in the end.
        direct = ptx_that_fits(tmp_path, f"direct-{case}")
        assert takes_uniform_numbers(tmp_path, f"direct-{case}"), case
        if case.split("-")[2] == "2":  # of more PEs the compiler unrolls the loops of early rounds
            assert words_waited_for(tmp_path, f"direct-{case}") <= 2, case
        assert direct.count("griddepcontrol.wait") == 4 and "cp.async.bulk.wait_group 0" in direct
        assert signals_all(direct) and "ld.global.sys.acquire" in direct and "atom.global.gpu.relaxed.add" in direct
        if int(case.split("-")[0]) > 16384:
            continue
        combine = ptx_that_fits(tmp_path, f"combine-{case}")
        assert words_waited_for(tmp_path, f"combine-{case}") == 0, case
        # What is read of shared memory has come to registers before TMA may overwrite it.
        assert combine.count("fence.proxy.async.shared::cta") >= 2 and "st.global.v4.b32" in combine
        assert not released_before_read(combine), case
        # It reads the time at its beginning and in front of rows, if stores are throttled; those of small rows are not.
        assert combine.count("%globaltimer_lo") == (0 if int(case.split("-")[0]) < 4096 else 2), case
