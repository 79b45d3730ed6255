"""Small programs whose time on a machine of round numbers can be computed by hand."""

from __future__ import annotations

import itertools
import json
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from forking import Forker

pytest.importorskip("simpy", reason="the extra `model` is not installed")

from triton_dist.model.graph import Graph, UnknownCostError
from triton_dist.model.machine import CopyEngine, Machine, Memory, Network, NVLink, Sm
from triton_dist.model.path import critical_path
from triton_dist.model.record import ScriptError, record
from triton_dist.model.replay import Replay, StuckError
from triton_dist.model.report import chosen_phase, report
from triton_dist.model.trace import write_trace

KIB = 1 << 10
MACHINE = Machine(
    name="round numbers",
    gpus_per_host=4,
    sm=Sm(count=8, programs=1, load=1e6, store=1e6, fence=2.0, stages=2, launch=10.0, flops={2: 0.008}),
    memory=Memory(bandwidth=1e6, latency=4.0, l2_bandwidth=2e6, l2_latency=1.0),
    nvlink=NVLink(bandwidth=1.024, latency=3.0),
    copy_engine=CopyEngine(bandwidth=0.512, start=100.0, interval=50.0),
    network=Network(ports=4, bandwidth=0.128, latency=20.0, message=5.0),
)
"""Of what has a rate, only links are slow enough to matter: 1 KiB takes 1 µs on NVLink, 8 on the network."""

HEAD = """
import torch, triton, triton_dist
import triton.language as tl
import triton_dist.language as dl
"""

Replayed = Callable[..., Replay]


@pytest.fixture
def replayed(forker: Forker, tmp_path: Path) -> Replayed:
    def run(program: str, n_pes: int = 2, machine: Machine = MACHINE) -> Replay:
        script = tmp_path / "script.py"
        script.write_text(HEAD + textwrap.dedent(program))
        run = record(forker, [str(script)], n_pes, machine, timeout=60, captures=True)
        replay = Replay(Graph(run), machine)
        replay.run()
        return replay

    return run


def _took(replay: Replay) -> float:
    phase = replay.phases[chosen_phase(replay, None)]
    parts = critical_path(phase)
    assert sum(part.end - part.begin for part in parts) == pytest.approx(phase.end - phase.begin), "the path is whole"
    assert all(one.end == pytest.approx(two.begin) for one, two in itertools.pairwise(parts))
    return phase.end - phase.begin


PUT = """
    @triton.jit
    def put(data, flag, SENDERS: tl.constexpr, KIB: tl.constexpr):
        me = dl.my_pe()
        if me < SENDERS:
            dl.putmem_signal(data + me * KIB * 1024, data, KIB * 1024, flag, 1, dl.SIGNAL_ADD, dl.n_pes() - 1)
        if me == dl.n_pes() - 1:
            dl.signal_wait_until(flag, dl.CMP_EQ, SENDERS)

    with triton_dist.init() as world:
        data, flag = triton_dist.zeros({kib} * 4096, dtype=torch.int8), triton_dist.zeros(1, dtype=torch.int64)
        triton_dist.barrier_all()
        put[(1,)](data, flag, {senders}, {kib})
        triton_dist.barrier_all()
"""


def test_a_put_takes_a_latency_and_its_bytes(replayed: Replayed) -> None:
    # launch, load of the source, bytes and 8 of the signal, latency, look
    expected = 10 + 4 + (64 * KIB + 8) / 1024 + 3 + 1
    replay = replayed(PUT.format(senders=1, kib=64))
    assert _took(replay) == pytest.approx(expected, abs=0.1)
    assert replay.hardware.egress[0].nbytes == replay.hardware.ingress[1].nbytes == 64 * KIB + 8
    assert replay.hardware.egress[1].nbytes == 0


def test_senders_share_the_receiver_s_link(replayed: Replayed) -> None:
    replay = replayed(PUT.format(senders=3, kib=64), 4)
    assert _took(replay) == pytest.approx(10 + 4 + 3 * (64 * KIB + 8) / 1024 + 3 + 1, abs=0.1)


def test_hosts_are_connected_by_nics(replayed: Replayed) -> None:
    machine = replace(MACHINE, gpus_per_host=1)
    replay = replayed(PUT.format(senders=1, kib=64), 2, machine)
    assert _took(replay) == pytest.approx(10 + 4 + 2 * 5 + (64 * KIB + 8) / 128 + 20 + 1, abs=0.1)
    assert replay.hardware.nic_out[0].nbytes == 64 * KIB + 8 and replay.hardware.egress[0].nbytes == 0


SIGNALS = """
    @triton.jit
    def signal_all(flags):
        me, n = dl.my_pe(), dl.n_pes()
        for i in range(1, n):
            dl.signal_op(flags + me, 1, dl.SIGNAL_SET, (me + i) % n)
            {quiet}
        for i in range(1, n):
            dl.signal_wait_until(flags + (me + i) % n, dl.CMP_EQ, 1)

    with triton_dist.init() as world:
        flags = triton_dist.zeros(4, dtype=torch.int64)
        triton_dist.barrier_all()
        signal_all[(1,)](flags)
        triton_dist.barrier_all()
"""


def test_only_quiet_waits_for_messages_to_other_hosts(replayed: Replayed) -> None:
    machine = replace(MACHINE, gpus_per_host=1)
    message = 5 + 8 / 128
    # launch, a fence, three messages behind each other, the last one's latency, three looks
    expected = 10 + 2 + 3 * message + 20 + 3
    assert _took(replayed(SIGNALS.format(quiet="pass"), 4, machine)) == pytest.approx(expected, abs=0.1)
    expected = 10 + 3 * (2 + message + 20) + 3
    assert _took(replayed(SIGNALS.format(quiet="dl.quiet()"), 4, machine)) == pytest.approx(expected, abs=0.1)


PUTS = """
    @triton.jit
    def put_to_all(data, flag):
        if dl.my_pe() == 0:
            for pe in range(1, dl.n_pes()):
                dl.{put}(data, data, 16, flag, 1, dl.SIGNAL_SET, pe)
        else:
            dl.signal_wait_until(flag, dl.CMP_EQ, 1)

    with triton_dist.init() as world:
        data, flag = triton_dist.zeros(16, dtype=torch.int8), triton_dist.zeros(1, dtype=torch.int64)
        triton_dist.barrier_all()
        put_to_all[(1,)](data, flag)
        triton_dist.barrier_all()
"""


@pytest.mark.parametrize(("put", "loads"), [("putmem_signal", 3), ("putmem_signal_nbi", 1)])
def test_a_nic_reads_what_is_put_without_blocking(replayed: Replayed, put: str, loads: int) -> None:
    """The program goes on with the next put meanwhile; the signal arrives behind its data."""
    machine = replace(MACHINE, gpus_per_host=1, network=replace(MACHINE.network, message=1e-3))
    expected = 10 + 4 * loads + (16 + 8) / 128 * (1 if loads > 1 else 3) + 20 + 1
    assert _took(replayed(PUTS.format(put=put), 4, machine)) == pytest.approx(expected, abs=0.1)


BARRIERS = """
    from triton_dist.kernels.communicator import calling
    from triton_dist.kernels.protocols.barrier import barrier
    from triton_dist.kernels.protocols.workspace import barrier_state

    @triton.jit
    def barriers(state, N: tl.constexpr, MEMBERS: tl.constexpr):
        for _ in range(N):
            barrier(state, tl.program_id(0), MEMBERS)

    with triton_dist.init() as world:
        with calling("all_gather", None) as comm:
            state, members = barrier_state(comm), comm.members
        for n in (1, 6):
            triton_dist.barrier_all()
            barriers[({programs},)](state, n, members)
        triton_dist.barrier_all()
"""


def test_a_barrier_waits_for_the_arrival_that_it_needs(replayed: Replayed) -> None:
    """A PE that is ahead has overwritten its flag when others look at it: they were waiting for its first value."""
    replay = replayed(BARRIERS.format(programs=4), 4)
    one, six = (phase.end - phase.begin for phase in replay.phases if phase.launches)
    # load of the epoch, fence, flight, look and acquire; at the end of a kernel its own stores
    assert one == pytest.approx(10 + 4 + 2 + 3 + 1 + 1, abs=0.3)
    assert six == pytest.approx(one + 5 * (4 + 2 + 3 + 1 + 1), abs=1.5)


def test_programs_without_room_are_an_error(replayed: Replayed) -> None:
    program = """
        @triton.jit
        def wait_for_the_last(flags):
            me, last = tl.program_id(0), tl.num_programs(0) - 1
            if me == last:
                for i in range(last):
                    dl.signal_op(flags + i, 1, dl.SIGNAL_SET, dl.my_pe())
            else:
                dl.signal_wait_until(flags + me, dl.CMP_EQ, 1)

        with triton_dist.init() as world:
            wait_for_the_last[(9,)](triton_dist.zeros(9, dtype=torch.int64))
    """
    replayed(program, 1, replace(MACHINE, sm=replace(MACHINE.sm, count=9)))
    with pytest.raises(StuckError, match=r"wait_for_the_last: .* 8 SMs with 1 programs each have no room"):
        replayed(program, 1)


def test_copies_of_the_host_are_the_copy_engine_s(replayed: Replayed) -> None:
    program = """
        @triton.jit
        def nothing(data):
            tl.store(data, 1)

        with triton_dist.init() as world:
            data = triton_dist.zeros(8 << 10, dtype=torch.int8)
            triton_dist.barrier_all()
            nothing[(1,)](data)
            if world.pe == 0:
                for _ in range(2):
                    world.peer(data, 1).fill_(2)
            triton_dist.barrier_all()
    """
    # launch, a store in the kernel; two copies of 16 µs each at the engine's rate, and their latency
    assert _took(replayed(program)) == pytest.approx(10 + 1 + 100 + 50 + 2 * (16 + 3), abs=0.1)


DOTS = """
    @triton.jit
    def dots(a, out, N: tl.constexpr, K: tl.constexpr):
        i, k = tl.arange(0, 16), tl.arange(0, K)
        total = tl.zeros((16, 16), tl.float32)
        for _ in range(N):
            x = tl.load(a + i[:, None] * K + k[None, :])
            total += tl.dot(x, tl.trans(x))
        tl.store(out + i[:, None] * 16 + i[None, :], total)

    with triton_dist.init() as world:
        dots[(1,)](torch.ones(16, {k}, dtype=torch.{dtype}), torch.empty(16, 16), 5, {k})
"""


def test_dots_take_their_operations_and_hide_loads(replayed: Replayed) -> None:
    # The first load is not hidden; a dot is 2 * 16 * 16 * 16 operations of an SM that does 1000 in a µs.
    assert _took(replayed(DOTS.format(k=16, dtype="float16"), 1)) == pytest.approx(10 + 4 + 5 * 8.192 + 1, abs=0.1)
    with pytest.raises(UnknownCostError, match=r"script\.py:\d+: tl\.dot of operands with 4 bytes .* has 2"):
        replayed(DOTS.format(k=16, dtype="float32"), 1)


def test_report_and_trace(replayed: Replayed, tmp_path: Path) -> None:
    replay = replayed(PUT.format(senders=1, kib=64))
    text = report(replay, chosen_phase(replay, None))
    assert "simulated: 2 PEs on round numbers" in text and "put × 2" in text
    assert "NVLink out      0.0 to 7" in text and "putmem_signal" in text
    with pytest.raises(ValueError, match="there is no phase 99"):
        chosen_phase(replay, 99)
    write_trace(replay, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in spans} == {0, 1} and all(event["dur"] >= 0 for event in spans)
    begins, ends = ({e["id"]: e for e in events if e["ph"] == kind} for kind in "sf")
    assert begins and begins.keys() == ends.keys()
    assert all(begins[i]["ts"] <= ends[i]["ts"] and begins[i]["pid"] != ends[i]["pid"] for i in begins)


@pytest.mark.parametrize(
    ("program", "error", "told"),
    [
        ("print(1)", ScriptError, r"made no world"),
        ("1 / 0", ScriptError, r"(?s)ZeroDivisionError.*PE 0 ended with status 1; triton-dist-check says more"),
        ("triton_dist.init().finalize()", UnknownCostError, r"the script launched no kernel"),
    ],
)
def test_scripts_that_cannot_be_replayed(replayed: Replayed, program: str, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        replayed(program)


def test_collectives_of_the_op_table_have_no_cost(replayed: Replayed) -> None:
    program = """
        @triton.jit
        def gather(dst, src):
            dl.fcollect(dl.TEAM_WORLD, dst, src, 64)

        with triton_dist.init() as world:
            gather[(1,)](triton_dist.zeros(128, dtype=torch.int8), triton_dist.zeros(64, dtype=torch.int8))
    """
    with pytest.raises(UnknownCostError, match=r"script\.py:\d+: fcollect in a kernel: the log does not say"):
        replayed(program)


def test_pes_fill_hosts(replayed: Replayed) -> None:
    with pytest.raises(ScriptError, match="5 PEs do not fill hosts of 4 GPUs"):
        replayed("print(1)", 5)
