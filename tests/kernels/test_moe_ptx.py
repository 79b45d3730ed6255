"""The machine code of dispatch, combine and the grouped GEMMs: made for a GPU that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from ptx import made_by, ptxas_report

COMPILE = Path(__file__).parent / "moe_ptx.py"
WITH_GEMMS = "gather_and_multiply", "multiply_and_scatter", "dispatch_and_multiply", "multiply_and_combine"
LARGE = "dispatch_rounds", "many", *WITH_GEMMS
MANY = "many_8", "many_8_margin", "many_2"


@pytest.mark.parametrize(
    ("hidden", "dtype", "large", "of_pes"),
    [
        pytest.param(7168, "bfloat16", LARGE, (2, 8), marks=pytest.mark.slow),
        (2048, "float8_e4m3fn", (), (2,)),
        # The two kernels with GEMMs, each in one of its forms.
        pytest.param(
            *(2048, "float8_e4m3fn", ("gather_and_multiply", "multiply_and_combine"), (2,)), marks=pytest.mark.slow
        ),
        pytest.param(2048, "float8_e4m3fn", LARGE, (2, 8), marks=pytest.mark.slow),
    ],
)
def test_it_moves_16_bytes_at_a_time_and_does_not_spill(
    tmp_path: Path, hidden: int, dtype: str, large: tuple[str, ...], of_pes: tuple[int, ...]
) -> None:
    """``of_pes``: of how many PEs the kernels with GEMMs are."""
    made_by(COMPILE, tmp_path, str(hidden), dtype, ",".join(large), *map(str, of_pes))
    of_slices = [f"{name}_{n}" for name in WITH_GEMMS if name in large for n in of_pes]
    placed = [f"{name}_{n}" for name in ("pack", "count", "place") for n in of_pes]
    many = MANY if "many" in large else MANY[:1]
    moved = ["dispatch", *(f"dispatch_{name}" for name in many), "grouped_gemm"]
    moved += ["dispatch_rounds"] if "dispatch_rounds" in large else []
    if dtype == "bfloat16":  # what is combined is that always
        moved += ["combine", *(f"combine_{name}" for name in many), "combine_rounds"]
    local = "group_by_expert", "sum_over_experts"
    for name in (*moved, *of_slices, *placed, *local):
        file = tmp_path / f"{name}.ptx"
        report = ptxas_report(file)
        assert " 0 bytes spill stores" in report, (name, report)
        ptx = file.read_text()
        if name == "grouped_gemm" or name in of_slices:
            assert "wgmma.mma_async" in ptx, name
        if name in of_slices:  # rows, also those that are gathered, are loaded and sent 16 bytes at a time
            assert "st.global.v4.b32" in ptx and "cp.async.cg.shared.global" in ptx, name
            assert "atom.global.sys.acquire" in ptx and "release" in ptx, name
        if name in moved and name != "grouped_gemm":
            assert "st.global.v4.b32" in ptx and "ld.volatile.global.v4.b32" in ptx, name
        if name in local:
            assert "st.global.v4.b32" in ptx and "ld.global.v4.b32" in ptx, name
    assert "__assertfail" in (tmp_path / "group_by_expert.ptx").read_text()
    assert "__assertfail" in (tmp_path / f"pack_{of_pes[0]}.ptx").read_text()
    assert (
        "an expert id is not in [-1, num_experts)" in (tmp_path / "dispatch.ptx").read_text()
        or "__assertfail" in (tmp_path / "dispatch.ptx").read_text()
    )


@pytest.fixture(scope="module")
def receivers() -> dict[str, str]:
    """PTX of receivers with 8 warps, by how many words they wait for."""
    printed = made_by(Path(__file__).parent / "take_words_ptx.py")
    names = "32", "64", "256", "64, held once", "counts"
    return dict(zip(names, printed.split(".entry receive")[1:], strict=True))


def test_all_warps_have_seen_words_before_one_clears_them(receivers: dict[str, str]) -> None:
    """Each of 8 warps polls 32 words for itself: one that is late would wait for ever for words that are cleared."""
    for words, body in receivers.items():
        if words != "counts":  # which are not cleared
            last_poll, first_store = body.rindex("ld.volatile"), body.index("st.global")
            assert "bar.sync" in body[last_poll:first_store], body


def test_words_that_warps_hold_several_times_are_loaded_once_more(receivers: dict[str, str]) -> None:
    """Two of 8 warps decide that 64 words have arrived: the others have polled their own copies, maybe too early."""
    loads = {words: body.count("ld.volatile.global") for words, body in receivers.items() if words.isdigit()}
    assert loads == {"32": 2, "64": 3, "256": 2}
    polling = receivers["64"].index("bar.sync")
    assert receivers["64"].rindex("ld.volatile.global") > polling


def test_scales_of_rows_and_counts_of_two_pes_are_held_once(receivers: dict[str, str]) -> None:
    """In blocks that are padded to a word for each thread: one load before the loop and one in it, and none behind."""
    for words in ("64, held once", "counts"):
        body = receivers[words]
        assert body.count("ld.volatile.global") == 2, body
        assert body.count("bar.sync") >= 1, body  # the decision of all warps
