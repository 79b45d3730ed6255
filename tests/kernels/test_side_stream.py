"""Operations that work in two streams, on a machine of streams without a GPU: each does in order what it is given."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from triton_dist.kernels import cuda
from triton_dist.kernels.gemm import all_gather_gemm, portable, streams
from triton_dist.kernels.gemm.config import LARGE
from triton_dist.kernels.gemm.hopper import all_gather_gemm as hopper
from triton_dist.kernels.gemm.hopper import launch
from triton_dist.kernels.gemm.hopper.layout import ENTERED, GATHERED
from triton_dist.kernels.gemm.operands import Operands
from triton_dist.kernels.protocols import side_stream
from triton_dist.world.base import World

Operation = Callable[[], bool]
"""Done if it can be, and whether it was."""

NON_BLOCKING = 1


class Stream:
    """What torch has of a stream, as far as it is used here."""

    def __init__(self, machine: Machine, handle: int) -> None:
        self.machine, self.cuda_stream = machine, handle

    def record_event(self) -> list[bool]:
        event: list[bool] = []
        self.machine.put(self.cuda_stream, lambda: event.append(True) or True)
        if self.cuda_stream in self.machine.capturing:
            event.append(True)
            self.machine.captured_events[id(event)] = self.machine.capturing[self.cuda_stream]
        self.machine.events.append(event)
        return event

    def wait_event(self, event: list[bool]) -> None:
        mine, theirs = self.machine.capturing.get(self.cuda_stream), self.machine.captured_events.get(id(event))
        assert mine is None or mine == theirs, "a stream of one capture waits for what is not in it"
        if theirs is not None:
            self.machine.capturing[self.cuda_stream] = theirs
        self.machine.put(self.cuda_stream, lambda: bool(event))

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())


class Machine:
    """Streams, and the driver's functions for them. Torch's are 32, handed out in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queues: dict[int, deque[Operation]] = {}
        self.words: dict[int, int] = {}
        self.events: list[list[bool]] = []
        self.created: list[int] = []
        self.destroyed: list[int] = []
        self.capturing: dict[int, int] = {}
        self.captured_events: dict[int, int] = {}
        self.mode = "global"
        self.current = Stream(self, 0)
        self.gpu = 0  # the current one, whose streams torch hands out
        self._handles, self._pools = count(1000), (count(), count())
        monkeypatch.setattr(torch.cuda, "Stream", self._of_pool)
        monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: Stream(self, handle))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.current)
        monkeypatch.setattr(
            torch.cuda, "is_current_stream_capturing", lambda: self.current.cuda_stream in self.capturing
        )
        driver = SimpleNamespace(
            CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=SimpleNamespace(value=NON_BLOCKING)),
            CUstreamCaptureMode=SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed"),
            CUmemorytype=SimpleNamespace(CU_MEMORYTYPE_DEVICE=2),
            CUDA_MEMCPY2D=SimpleNamespace,
            cuStreamCreate=self._create,
            cuStreamDestroy=lambda stream: (self.destroyed.append(stream) or 0,),
            cuThreadExchangeStreamCaptureMode=self._exchange_mode,
            cuStreamGetCaptureInfo=lambda stream: (
                0, int(stream in self.capturing), self.capturing.get(stream, 0), "graph", [], [], 0,
            ),
            cuStreamWaitValue32=lambda stream, at, value, flags: self._done(
                stream, lambda: self.words.get(at, 0) == value
            ),
            cuStreamWriteValue32=lambda stream, at, value, flags: self._done(
                stream, lambda: self.words.update({at: value}) or True
            ),
            cuMemcpy2DAsync=lambda what, stream: self._done(stream, lambda: True),
        )  # fmt: skip
        for module in (cuda, side_stream, streams):
            monkeypatch.setattr(module, "driver", lambda: driver)

    def put(self, stream: int, operation: Operation) -> None:
        if stream not in self.capturing:
            self.queues.setdefault(stream, deque()).append(operation)

    def run(self) -> None:
        """All streams, until all is done. Fails where none can go on."""
        while any(self.queues.values()):
            done = [queue.popleft() for queue in self.queues.values() if queue and queue[0]()]
            assert done, f"streams wait for ever: {[handle for handle, queue in self.queues.items() if queue]}"

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def capture(self, stream: Stream, number: int) -> Iterator[None]:
        self.capturing[stream.cuda_stream] = number
        yield
        self.end_capture(number)

    def end_capture(self, number: int) -> None:
        self.capturing = {handle: capture for handle, capture in self.capturing.items() if capture != number}

    @property
    def gpus(self) -> Iterator[int]:
        """Both, each while it is the current one."""
        for self.gpu in range(2):
            yield self.gpu

    def _of_pool(self) -> Stream:
        return Stream(self, 1 + 100 * self.gpu + next(self._pools[self.gpu]) % 32)

    def _create(self, flags: int) -> tuple[int, int]:
        assert flags == NON_BLOCKING, "it would wait for the legacy default stream, and that for it"
        assert not self.capturing or self.mode == "relaxed", "a capture forbids this"
        self.created.append(next(self._handles))
        return 0, self.created[-1]

    def _exchange_mode(self, mode: str) -> tuple[int, str]:
        before, self.mode = self.mode, mode
        return 0, before

    def _done(self, stream: int, operation: Operation) -> tuple[int]:
        self.put(stream, operation)
        return (0,)


class Owner:
    """A World with one PE's communicator, as far as they are used here: what both do for what they own."""

    own, _closing = World.own, World._closing

    def __init__(self) -> None:
        self.device, self._owned, self._owning = torch.device("cpu"), {}, threading.RLock()
        self.world = self


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def world() -> Owner:
    return Owner()


def test_all_gather_gemm_ends_on_each_of_forty_streams(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel waits for rows that copies bring, which wait for the kernel: in one stream, for ever."""
    n_pes, owners = 2, [Owner() for _ in range(2)]
    flags = [torch.zeros(64, dtype=torch.int32) for _ in range(n_pes)]
    gathered = [torch.zeros(256 * n_pes, 64) for _ in range(n_pes)]
    plans: list[dict[object, Any]] = [{} for _ in range(n_pes)]
    pe = 0  # whose host is at work

    def word(owner: int, number: int) -> int:
        return flags[owner].data_ptr() + 4 * number

    class Kernel:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return self.launch

        def launch(self, *arguments: object, **keywords: object) -> None:
            me, other, began = pe, 1 - pe, []

            def kernel() -> bool:
                if not began:
                    began.append(True)
                    machine.words[word(other, ENTERED.value + me)] = 1
                if not machine.words.get(word(me, GATHERED.value + other)):
                    return False
                machine.words[word(me, GATHERED.value + other)] = 0
                return True

            machine.put(machine.current.cuda_stream, kernel)

    def peer(tensor: torch.Tensor, there: int) -> torch.Tensor:
        return flags[there] if tensor is flags[pe] else gathered[there][:256]

    for me, owner in enumerate(owners):
        owner.n_pes, owner.my_rank, owner.peer = n_pes, me, peer
    monkeypatch.setattr(portable, "programs", lambda sm_margin: 132)
    monkeypatch.setattr(hopper, "all_gather_gemm_kernel", Kernel())
    monkeypatch.setattr(hopper, "operand_maps", lambda *arguments: (None, None, False))
    monkeypatch.setattr(hopper, "tile_map", lambda *arguments: None)
    monkeypatch.setattr(launch.Plan, "flags", property(lambda plan: flags[pe]))
    monkeypatch.setattr(launch, "current_world", lambda: owners[pe])
    monkeypatch.setattr(launch, "claim", lambda *what: None)  # no trace
    monkeypatch.setattr(
        all_gather_gemm, "cached", lambda comm, key, make: plans[pe].get(key) or _keep(plans[pe], key, make)
    )
    monkeypatch.setattr(all_gather_gemm, "choose", lambda *given, **options: LARGE)
    monkeypatch.setattr(all_gather_gemm, "_gathered", lambda comm, a, rows: gathered[pe])
    a, b, c = torch.zeros(256, 64), torch.zeros(64, 128), torch.zeros(512, 128)
    for _ in range(40):
        for pe in machine.gpus:
            with machine.on(torch.cuda.Stream()):
                all_gather_gemm._copy_engine(Operands(owners[pe], a, b, c))
        machine.run()


def _keep(plans: dict[object, Any], key: object, make: Callable[[], Any]) -> Any:
    plans[key] = make()
    return plans[key]


def test_it_is_never_a_stream_of_torch_s_and_ends_with_the_world(machine: Machine, world: Owner) -> None:
    for _ in range(40):
        stream = torch.cuda.Stream()
        with machine.on(stream), side_stream.side_stream(world) as beside:
            assert beside.cuda_stream in machine.created and beside.cuda_stream != stream.cuda_stream
        machine.run()
    assert len(machine.created) == 1
    with machine.on(stream), machine.capture(stream, 1), side_stream.side_stream(world):
        pass
    with world._closing():
        assert not machine.destroyed
    assert sorted(machine.destroyed) == sorted(machine.created) and len(machine.created) == 2
    with machine.on(stream), side_stream.side_stream(world) as beside:
        assert beside.cuda_stream not in machine.destroyed


def test_what_comes_behind_waits_for_both(machine: Machine, world: Owner) -> None:
    order: list[str] = []

    def put(stream: Stream, name: str, after: str = "") -> None:
        machine.put(stream.cuda_stream, lambda: (not after or after in order) and (order.append(name) or True))

    here = torch.cuda.Stream()
    with machine.on(here):
        put(here, "before")
        with side_stream.side_stream(world) as beside:
            put(beside, "copy", after="kernel")
            put(here, "kernel")
        put(here, "behind")
    machine.run()
    assert order == ["before", "kernel", "copy", "behind"]


def test_captures_and_direct_calls_do_not_meet(machine: Machine, world: Owner) -> None:
    def used(stream: Stream) -> int:
        with machine.on(stream), side_stream.side_stream(world) as beside:
            return beside.cuda_stream

    here, there = torch.cuda.Stream(), torch.cuda.Stream()
    with machine.capture(here, 7):
        first = used(here)
        assert used(here) == first, "a capture needs no second stream"
        direct = used(there)
        assert direct != first, "a direct call would be captured"
        with machine.capture(there, 8):
            second = used(there)
            assert second not in (first, direct), "two captures would be one"
            assert used(here) == first
    with machine.capture(there, 9):
        assert used(there) in (first, second), "a stream whose capture has ended serves the next"
    assert used(here) == direct and machine.mode == "global" and len(machine.created) == 3
