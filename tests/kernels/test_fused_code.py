"""The machine code of fused norms and flash decode: made for a GPU that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ptx import made_by, ptxas_report

HERE = Path(__file__).parent


def compiled(tmp_path: Path, script: str, *arguments: str) -> tuple[str, str, int]:
    """The kernel's PTX, what the script prints, and registers of a thread. Nothing is spilled to local memory."""
    file = tmp_path / "kernel.ptx"
    printed = made_by(HERE / script, *arguments, file)
    report = ptxas_report(file)
    assert " 0 bytes spill stores" in report, report
    ptx = file.read_text()
    registers = max(map(int, re.findall(r"Used (\d+) registers", report)))
    return ptx[ptx.index(".visible .entry") :].split("\n.func")[0], printed, registers


@pytest.mark.slow
def test_each_kernel_compiles_as_it_is_cut_for_gpus() -> None:
    lines = made_by(HERE / "fused_kernels_compile.py").splitlines()
    assert len(lines) == 13, lines


@pytest.mark.parametrize(
    "arguments",
    ["two_shot 8192 8 block", pytest.param("one_shot 16384 8 token", marks=pytest.mark.slow)],
)
def test_norms_send_and_poll_16_bytes_at_a_time(tmp_path: Path, arguments: str) -> None:
    ptx, _, _ = compiled(tmp_path, "norm_ptx.py", *arguments.split())
    assert "st.global.v4.b32" in ptx and "ld.volatile.global.v4.b32" in ptx
    assert "ld.volatile.global.b32" not in ptx and "lookAtClock" in ptx


@pytest.mark.parametrize("name", [pytest.param("one_shot", marks=pytest.mark.slow), "two_shot"])
def test_two_programs_of_a_norm_of_two_pes_share_an_sm_and_load_before_they_wait(tmp_path: Path, name: str) -> None:
    ptx, _, registers = compiled(tmp_path, "norm_ptx.py", name, "8192", "2", "none")
    assert registers <= 65536 // (2 * 256)
    # Of 32 elements of a thread: x (for two PEs in two_shot), bias, residual and weight.
    before, after = ptx.split("ld.volatile", 1)
    assert before.count("ld.global.v4.b32") >= 16 and after.count("ld.global.v4.b32") == 0


@pytest.mark.parametrize("case", ["gqa", pytest.param("mla", marks=pytest.mark.slow)])
def test_decode_is_pipelined_and_fits(tmp_path: Path, case: str) -> None:
    ptx, shared, _ = compiled(tmp_path, "decode_ptx.py", case, "4")
    assert 2 * (64 << 10) <= int(shared) <= 227 << 10  # two blocks of keys and values on their way, or more
    assert "cp.async.cg.shared.global" in ptx and "mma.sync" in ptx
    assert "st.global.v2.b64" in ptx and "ld.volatile.global.v2.b64" in ptx and "lookAtClock" in ptx
    if case == "gqa":  # eight parts of 16 heads are merged at a time: each of 128 threads has 32 loads in flight
        assert ptx.count("ld.global.v4.b32") >= 32


@pytest.mark.slow
@pytest.mark.parametrize("pes", ["1", "4"])
def test_what_follows_a_decode_may_begin_when_all_keys_are_loaded(tmp_path: Path, pes: str) -> None:
    ptx, _, _ = compiled(tmp_path, "decode_ptx.py", "gqa", pes, "dependent")
    order = re.findall(r"griddepcontrol\.\w+|ld\.global(?=\.v4)|cp\.async\.cg|ld\.volatile", ptx)
    assert order[0] == "griddepcontrol.wait"
    turn = order.index("griddepcontrol.launch_dependents")  # of programs without keys it may stand a second time
    assert "cp.async.cg" in order[:turn] and "cp.async.cg" not in order[turn:]
    assert "ld.volatile" not in order[:turn] and ("ld.volatile" in order) == (pes == "4")


@pytest.mark.parametrize("case", ["gqa", pytest.param("mla-16", marks=pytest.mark.slow)])
def test_decode_of_heads_that_pes_share_knows_no_peers(tmp_path: Path, case: str) -> None:
    ptx, _, _ = compiled(tmp_path, "decode_ptx.py", case, "1")
    assert "cp.async.cg.shared.global" in ptx and "mma.sync" in ptx
    assert "ld.volatile" not in ptx and ".sys" not in ptx and "lookAtClock" not in ptx


@pytest.mark.parametrize(
    "arguments",
    [
        *("all_reduce 4096 2", "reduce_scatter 1024 4", "two_exchanges 1024 4", "all_gather 1024 4"),
        *(pytest.param(f"all_reduce {case}", marks=pytest.mark.slow) for case in ("1024 2", "1024 8", "4096 8")),
        *(pytest.param(f"reduce_scatter {case}", marks=pytest.mark.slow) for case in ("4096 2", "1024 8", "4096 4")),
        *(pytest.param(f"all_gather {case}", marks=pytest.mark.slow) for case in ("1024 2", "4096 2", "4096 8")),
        *(pytest.param(f"two_exchanges {case}", marks=pytest.mark.slow) for case in ("1024 3", "1024 8")),
    ],
)
def test_sums_are_exchanged_16_bytes_at_a_time_however_many_elements_there_are(tmp_path: Path, arguments: str) -> None:
    ptx, _, registers = compiled(tmp_path, "exchange_ptx.py", *arguments.split())
    words, pes = map(int, arguments.split()[1:])
    assert registers <= 65536 // (2 * (128 if words == 1024 else 256)), "two programs share an SM"
    each = words // (4 * (128 if words == 1024 else 256))
    assert ptx.count("ld.global.v4.b32") >= each and "ld.volatile.global.b32" not in ptx
    # To the peers and to the result. Of two exchanges for up to 8 PEs at a time: two messages, two clears, the result.
    stored = 5 * min(8, 1 << (pes - 1).bit_length()) if "two_exchanges" in arguments else min(pes, 2)
    assert ptx.count("st.global.v4.b32") >= each * stored
