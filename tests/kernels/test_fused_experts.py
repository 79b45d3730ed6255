"""The fused layer's kernels for Hopper GPUs: machine code, made for a GPU that is not there, by the host's code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ptx import made_by
from sass import ptx_that_fits

COMPILE = Path(__file__).with_name("fused_experts_ptx.py")


@pytest.mark.parametrize(
    "cases",
    [
        ("dispatch-1024-2", "combine-1024-2"),
        pytest.param(("dispatch-8-8", "combine-8-8", "dispatch-1024-8", "combine-1024-8"), marks=pytest.mark.slow),
    ],
)
def test_it_overlaps_by_flags_and_does_not_spill(
    tmp_path: Path, cases: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_DIST_WORLD", "gpu")  # for the host's choices
    made_by(COMPILE, tmp_path, *cases)
    for case in cases:
        ptx = ptx_that_fits(tmp_path, case)
        assert "wgmma.mma_async" in ptx and "cp.async.bulk.tensor.2d.shared" in ptx
        # Rows and sums go to peers 16 bytes at a time, and are released and acquired for all of the system.
        assert "st.global.v4" in ptx and not re.search(r"st\.global\.b16", ptx)
        assert re.search(r"(?:ld|atom)\.global\.sys\.acquire", ptx), "an atomic where each lane looks at a peer's flag"
        assert "atom.global.sys.release" in ptx or "fence.acq_rel.sys" in ptx
        if case.startswith("dispatch"):
            copied = ptx.rindex("ld.global.gpu.acquire")
            assert "fence.proxy.async" in ptx[copied : ptx.index("cp.async.bulk.tensor", copied)]
        else:  # products are complete before they are counted
            assert "cp.async.bulk.wait_group 0" in ptx
