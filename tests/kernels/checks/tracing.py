"""What programs note, and the file that is made of it."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
import triton.language as tl
from harness import main, raises

import triton_dist
from triton_dist import kernels
from triton_dist.kernels.gemm import gemm_all_scatter as scatters
from triton_dist.kernels.tracing.events import COMPUTE, SEND, clock, record_event
from triton_dist.kernels.tracing.recorder import paused, record


@triton.jit
def work(x, trace, tiles):
    for tile in range(tiles):
        began = clock(trace)
        tl.store(x + tile, tile)
        record_event(trace, COMPUTE, tile, began)
        began = clock(trace)
        tl.store(x + tile, tile + 1)
        record_event(trace, SEND, tile, began)


@contextmanager
def traced(found: list[dict[str, Any]]) -> Iterator[None]:
    """``found`` gets what the file says, on PE 0."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        with kernels.tracing(file):
            yield
        if triton_dist.my_pe() == 0:
            found += json.loads(file.read_text())["traceEvents"]
        else:
            assert not file.exists()


def timed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def threads(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """The events of each thread of each PE, in the order of their begins; none begins before another has ended."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in sorted(timed(events), key=lambda event: float(event["ts"])):
        assert 0 <= event["ts"] < 60e6 and event["dur"] >= 0, event
        found.setdefault((event["pid"], event["tid"]), []).append(event)
    for mine in found.values():
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in itertools.pairwise(mine)), mine
    return found


def check_a_kernel_of_ones_own(world: Any) -> None:
    x = triton_dist.zeros(8)
    for _ in range(2):
        events: list[dict[str, Any]] = []
        with traced(events):
            work[(3,)](x, record("work", 3), 4)
        if world.pe != 0:
            continue
        expected = [f"{kind} {tile}" for tile in range(4) for kind in ("compute", "send")]
        found = threads(events)
        assert sorted(found) == [(pe, thread) for pe in range(world.n_pes) for thread in (1, 2, 3)]
        assert all([event["name"] for event in mine] == expected for mine in found.values())
        names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
        assert names == {f"work: program {program}" for program in range(3)}


def check_events_beyond_the_capacity_are_counted(world: Any) -> None:
    events: list[dict[str, Any]] = []
    with traced(events):
        work[(1,)](triton_dist.zeros(8), record("work", 1, capacity=3), 4)
    if world.pe == 0:
        assert len(timed(events)) == 3 * world.n_pes
        assert any("5 events lost" in event["args"].get("name", "") for event in events)


def check_nothing_is_recorded_without_a_trace(world: Any) -> None:
    x, events = triton_dist.zeros(8), []  # type: tuple[torch.Tensor, list[dict[str, Any]]]
    assert record("work", 1) is None
    work[(1,)](x, None, 4)
    assert x[:4].tolist() == [1, 2, 3, 4]
    with traced(events):
        pass
    work[(1,)](x, record("work", 1), 4)
    assert not timed(events)
    with traced(events):
        with paused():  # as an operation that tries what is fastest does
            work[(1,)](x, record("work", 1), 4)
        work[(1,)](x, record("work", 1), 1)
    assert len(timed(events)) == (2 * world.n_pes if world.pe == 0 else 0)


def check_more_events_than_fit_in_a_message(world: Any) -> None:
    """Each PE hands over its events by the megabyte."""
    events: list[dict[str, Any]] = []
    x = triton_dist.zeros(8)
    with traced(events):
        for _ in range(12 if world.pe else 1):
            trace = record("work", 1, 1000)
            assert trace is not None
            trace.view(-1, 4)[1:] = torch.tensor([1, 5, 10**18, 2 * 10**18])
            trace[0] = 1000
        work[(1,)](x, record("work", 1), 1)
    if world.pe == 0:
        assert len(timed(events)) == 1000 * (12 * (world.n_pes - 1) + 1) + 2 * world.n_pes


def check_one_at_a_time(world: Any) -> None:
    with traced([]), raises(RuntimeError, "traced already, to .*trace.json"), kernels.tracing("another.json"):
        pass
    with traced([]):
        pass


def check_a_block_that_fails_writes_nothing(world: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        try:
            with kernels.tracing(file):
                raise KeyError("mine")
        except KeyError:
            assert not file.exists()
    assert record("work", 1) is None


def product(world: Any, algorithm: str) -> Callable[[], object]:
    a, b = torch.ones(100, 40), torch.ones(40, 70)
    out = triton_dist.empty(100, 70 * world.n_pes, dtype=torch.float32)
    return lambda: kernels.gemm_all_scatter(a, b, out, algorithm=algorithm)


def check_every_tile_of_a_gemm(world: Any) -> None:
    """Of 4 × 3 tiles, on every PE, each is computed once and then sent; with flags, it is awaited between."""
    for algorithm, waits in (
        ("fused_sequential", False),
        ("bulk_synchronous", False),
        ("producer_consumer", True),
        ("fused_producer_consumer", True),
    ):
        events: list[dict[str, Any]] = []
        with (
            traced(events),
            mock.patch.object(scatters, "side_by_side_algorithm", return_value=""),
        ):  # tiles, and no words
            product(world, algorithm)()
        if world.pe != 0:
            continue
        threads(events)
        for pe in range(world.n_pes):
            mine = {e["name"]: e for e in timed(events) if e["pid"] == pe and e["args"]["kernel"] != "stream barrier"}
            names = [f"{kind} {tile}" for kind in ("compute", "send", *["wait"] * waits) for tile in range(12)]
            assert sorted(mine) == sorted(names), (algorithm, pe, sorted(mine))
            for tile in range(12):
                computed, sent = mine[f"compute {tile}"], mine[f"send {tile}"]
                # With a flag a tile may leave before its program has noted that it has raised it.
                assert computed["ts"] <= sent["ts"], (algorithm, pe, tile)
                if waits:
                    assert mine[f"wait {tile}"]["ts"] + mine[f"wait {tile}"]["dur"] <= sent["ts"] + 1e-3
                else:
                    assert computed["ts"] + computed["dur"] <= sent["ts"] + 1e-3, (algorithm, pe, tile)


def check_small_m_gemms(world: Any) -> None:
    """A tile is computed, then sent, then awaited; where all shall have all of it, it is sent and awaited again."""
    a, b = torch.ones(4 * world.n_pes, 40), torch.ones(40, 70)
    out = triton_dist.zeros(4 * world.n_pes, 70)
    once = ["compute", "send", "wait"]
    calls = (kernels.gemm_reduce_scatter, once), (partial(kernels.gemm_all_reduce, out=out), [*once, "send", "wait"])
    for call, kinds in calls:
        events: list[dict[str, Any]] = []
        with traced(events):
            assert call(a, b, algorithm="fused").eq(40 * world.n_pes).all()
        found: dict[tuple[int, int], list[str]] = {}
        for mine in threads(events).values():
            for event in mine:
                found.setdefault((event["pid"], event["args"]["tile"]), []).append(event["cat"])
        assert all(mine == kinds for mine in found.values()), found
        assert len(found) == (0 if world.pe else world.n_pes * -(-70 // 16))


def check_collectives(world: Any) -> None:
    """Their results are right, every program of every PE sends and waits, sums are computed, and all of it in turn."""
    n = world.n_pes
    one, all_ = triton_dist.full(300, 1.0), triton_dist.zeros(300 * n)
    calls: dict[str, tuple[Callable[[str], torch.Tensor], str]] = {
        "all_gather": (lambda how: kernels.all_gather(all_, one, algorithm=how), "low_latency push"),
        "all_to_all": (lambda how: kernels.all_to_all(all_, torch.ones(300 * n), algorithm=how), "low_latency push"),
        "broadcast": (lambda how: kernels.broadcast(one, algorithm=how), "low_latency push scatter"),
        "reduce_scatter": (
            lambda how: kernels.reduce_scatter(all_[:300], torch.ones(300 * n), algorithm=how) / n,
            "low_latency exchange push",
        ),
        "all_reduce": (
            lambda how: kernels.all_reduce(one, out=all_[:300], algorithm=how) / n,
            "one_shot two_shot exchange two_exchanges push direct",
        ),
    }
    for name, (call, algorithms) in calls.items():
        for algorithm in algorithms.split():
            all_.zero_()
            triton_dist.barrier_all()
            events: list[dict[str, Any]] = []
            with traced(events):
                assert call(algorithm).eq(1).all(), (name, algorithm)
            found = threads(events)
            assert not any("lost" in event["args"].get("name", "") for event in events), (name, algorithm)
            for pe in range(n if world.pe == 0 else 0):
                kinds = [{event["cat"] for event in mine} for (at, _), mine in found.items() if at == pe]
                expected = {"wait"}
                expected |= {"send"} if (name, algorithm) != ("broadcast", "push") or pe == 0 else set()
                expected |= {"compute"} if algorithm in ("push", "direct") and "reduce" in name else set()
                assert set().union(*kinds) == expected, (name, algorithm, pe, kinds)
            for event in timed(events):
                assert event["args"]["kernel"] == f"{name}, {algorithm}"


if __name__ == "__main__":
    main(globals())
