"""The collectives' machine code: words move 16 bytes at a time, and nothing is spilled to local memory."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
from ptx import made_by
from spelling import ATOM_SYS

LARGE = [
    "collectives.all_gather.all_gather_push",
    "collectives.all_to_all.all_to_all_push",
    "collectives.all_reduce.all_reduce_direct",
]
STAGED = ["collectives.reduce_scatter.reduce_scatter_push", "collectives.all_reduce.all_reduce_push"]
SMALL = ["collectives.all_gather.all_gather_low_latency", "collectives.all_reduce.all_reduce_two_shot"]


REDUCTIONS = ("sum of int8", "avg of float64")
OTHER_REDUCTIONS = ("max of uint8", "min of int32", "sum of int64")


@functools.cache
def compiled(script: str, *arguments: str) -> dict[str, str]:
    """The PTX that a script of this folder prints."""
    found: dict[str, str] = json.loads(made_by(Path(__file__).with_name(script), *arguments))
    return found


@pytest.fixture(scope="module")
def ptx() -> dict[str, str]:
    return compiled("kernels_ptx.py", *REDUCTIONS)


def kernel(text: str) -> str:
    """Of PTX the kernel, without the function that its waits call when they last long."""
    return text[text.index(".visible .entry") :].split("\n.func")[0]


@pytest.mark.parametrize("name", LARGE)
def test_large_ones_move_16_bytes_at_a_time(ptx: dict[str, str], name: str) -> None:
    assert "ld.global.v4.b32" in ptx[name] and "st.global.v4.b32" in ptx[name]
    # What is left is the counter, twice: of the barrier before and of the one after.
    text = kernel(ptx[name])
    assert len(re.findall(r"ld\.global\.b\d+", text)) == 2
    assert len(re.findall(r"st\.global\.b\d+", text)) == 2


@pytest.mark.parametrize("name", SMALL)
def test_messages_are_stored_and_awaited_16_bytes_at_a_time(ptx: dict[str, str], name: str) -> None:
    assert "st.global.v2.b64" in ptx[name] and "ld.volatile.global.v2.b64" in ptx[name]
    text = kernel(ptx[name])
    assert not re.findall(r"ld\.volatile\.global\.b64", text)
    assert len(re.findall(r"st\.global\.b64", text)) == 1, "only the counter is a scalar"


def test_a_barrier_releases_once_and_acquires(ptx: dict[str, str]) -> None:
    steps = [
        "bar.sync",
        "atom.global.sys.release.exch",
        "ld.volatile.global",
        "atom.global.sys.acquire.add",
        "bar.sync",
    ]
    pattern = ".*?".join(map(re.escape, steps))
    assert len(re.findall(pattern, ptx["protocols.stream_barrier.stream_barrier_kernel"], re.DOTALL)) == 1


def test_a_wait_for_the_root_of_a_broadcast_acquires(ptx: dict[str, str]) -> None:
    lines = ptx["collectives.broadcast.broadcast_scatter"].splitlines()
    # All PEs in the first and in the last barrier, the root before each round.
    assert sum("atom.global.sys.acquire.add" in line for line in lines) == 2
    assert sum("ld.global.sys.acquire" in line for line in lines) == 1
    # And all signal all in the first and the last, the root after each round.
    assert sum("atom.global.sys.release.exch" in line for line in lines) == 3
    # Whole vectors come and go, the root's to three PEs and the others' to two and, maybe, the root.
    assert sum("st.global.v4" in line for line in lines) == 12


@pytest.mark.parametrize("name", STAGED)
def test_what_is_staged_moves_16_bytes_at_a_time(ptx: dict[str, str], name: str) -> None:
    assert ptx[name].count("ld.global.v4.b32") >= 10 and ptx[name].count("st.global.v4.b32") >= 6


@pytest.mark.parametrize(
    "reduction", [*REDUCTIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_REDUCTIONS)]
)
def test_reductions_of_other_types(reduction: str) -> None:
    ptx = compiled("kernels_ptx.py", *(REDUCTIONS if reduction in REDUCTIONS else OTHER_REDUCTIONS))
    for algorithm in ("all_reduce_push", "all_reduce_direct", "all_reduce_two_shot"):
        text = ptx[f"{algorithm}, {reduction}"]
        assert re.search(r"st\.global\.(v4\.b32|v2\.b64)", text), "16 bytes at a time"
        assert ".local" not in text
        assert ".f32" not in text, "no float32 in between"


@pytest.mark.parametrize("name", [*LARGE, *STAGED, *SMALL])
def test_nothing_lies_in_local_memory(ptx: dict[str, str], name: str) -> None:
    assert ".local" not in ptx[name]


def test_a_trace_that_is_off_costs_nothing(ptx: dict[str, str]) -> None:
    untraced = ptx["untraced"].replace("untraced", "traced")
    assert instructions(ptx["off"]) == instructions(untraced) != instructions(ptx["traced"])
    for name, text in ptx.items():
        assert ("%globaltimer;" in kernel(text)) == (name.endswith("traced") and name != "untraced"), name


def instructions(text: str) -> list[str]:
    """Of PTX the instructions of its kernel."""
    body = text[text.index(".reqntid") :].split("\n\t.section")[0].splitlines()
    return [line.strip() for line in body if line.startswith("\t") and not line.strip().startswith((".", "//"))]


def test_members_of_the_whole_world_cost_nothing() -> None:
    texts = {name: text.replace("of_members", "of_all") for name, text in compiled("members_ptx.py").items()}
    found = {name: instructions(text) for name, text in texts.items()}
    assert found["members of the world"] == found["all"]
    assert len(found["every other PE"]) > len(found["all"]), "ranks and PEs differ there"


def test_what_long_waits_do_is_one_function(ptx: dict[str, str]) -> None:
    for name, text in ptx.items():
        if re.search("lookAtClock", text):
            assert text.count("%globaltimer;") == kernel(text).count("%globaltimer;") + 1, name
            assert "lookAtClock" in kernel(text) and not re.search(rf"{ATOM_SYS}add\.[su]32", kernel(text)), name
