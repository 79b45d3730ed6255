"""The programs of a graph on the hardware of a machine, as processes of a discrete-event engine (simpy).

A program, or a warp of one whose warps differ, issues its steps in order. Loads and stores are in flight beside it: a
step that needs what was loaded (a store, a signal, and a dot after as many others as the pipeline has stages) waits for
the loads before it, and a release for the stores before it. A wait ends with the latency of a look at memory after its
causes have arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import simpy

from triton_dist.check.log import HOST, Place
from triton_dist.model.graph import Graph, UnknownCostError
from triton_dist.model.hardware import Arrival, Hardware, Server, Step
from triton_dist.model.machine import Machine
from triton_dist.model.nodes import Action, Launch, Node

__all__ = ["Phase", "Replay", "StuckError"]

_Process = Generator[simpy.Event, Any, None]
_TERA = 1e6
"""Operations in a µs at 1 TFLOP/s."""


class StuckError(RuntimeError):
    """Programs wait for others that the machine has no SM for."""


@dataclass
class Phase:
    """What happens between two barriers of all hosts."""

    place: Place | None
    """Where it ends."""
    begin: float
    end: float
    launches: list[str]
    last: Step | None
    """Of the PE that came to its end last."""


@dataclass
class _State:
    """Of a program, or of a host."""

    pe: int
    program: int
    sm: Server | None = None
    last: Step | None = None
    loads: list[tuple[int, Arrival]] = field(default_factory=list)
    """In flight: the number of dots before each."""
    stores: list[Arrival] = field(default_factory=list)
    """In flight, to GPUs of the same host."""
    messages: list[Arrival] = field(default_factory=list)
    """In flight, to other hosts."""
    dots: int = 0
    sums: float = 0.0
    """When the last dot ends."""


class Replay:
    """Of one graph on one machine; :meth:`run` does it once."""

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.graph, self.machine = graph, machine
        self.env = simpy.Environment()
        self.hardware = Hardware(self.env, machine, graph.n_pes, symmetric=graph.symmetric)
        self.steps: list[Step] = []
        self.phases: list[Phase] = []
        self._arrivals: dict[Node, Arrival] = {}
        self._barriers: dict[Any, tuple[Arrival, list[_State]]] = {}
        self._rounds: dict[Any, int] = defaultdict(int)
        self._launches: list[str] = []
        self._slots = [simpy.Store(self.env) for _ in self.hardware.sms]
        for pe, slots in enumerate(self._slots):
            slots.items.extend(self.hardware.sms[pe] * machine.sm.programs)

    def run(self) -> None:
        """Raises StuckError, or UnknownCostError for a store to a PE that the machine does not reach."""
        hosts = [self.env.process(self._host(pe)) for pe in range(self.graph.n_pes)]
        hosts += [self.env.process(self._side_stream(pe, nodes)) for pe, nodes in self.graph.side_streams.items()]
        self.env.run()
        if any(host.is_alive for host in hosts):
            kernel = self._launches[-1] if self._launches else "the script"
            raise StuckError(
                f"{kernel}: programs wait for each other, and {self.machine.sm.count} SMs with "
                f"{self.machine.sm.programs} programs each have no room for all that do"
            )
        if self._launches:
            self._end_phase(None, self.steps[-1])

    # ---- steps

    def _step(self, state: _State, what: str, place: Place | None, begin: float, cause: Step | None = None) -> Step:
        step = Step(state.pe, state.program, what, place, begin, self.env.now, cause, state.last)
        state.last = step
        self.steps.append(step)
        return step

    def _await(self, state: _State, what: str, place: Place | None, arrivals: Iterable[Arrival]) -> _Process:
        missing = [arrival for arrival in arrivals if not arrival.happened]
        if missing:
            begin = self.env.now
            yield self.env.all_of([arrival.event for arrival in missing])
            latest = max((arrival.step for arrival in missing if arrival.step), key=lambda step: step.end)
            self._step(state, what, place, begin, latest)

    def _sleep(self, state: _State, what: str, place: Place | None, microseconds: float) -> _Process:
        begin = self.env.now
        yield self.env.timeout(microseconds)
        self._step(state, what, place, begin)

    def _arrival(self, node: Node) -> Arrival:
        arrival = self._arrivals.get(node)
        if arrival is None:
            arrival = self._arrivals[node] = Arrival(self.env)
        return arrival

    def _new_arrival(self, node: Node) -> Arrival:
        return self._arrival(node) if node.awaited else Arrival(self.env)

    # ---- hosts

    def _host(self, pe: int) -> _Process:
        state = _State(pe, HOST)
        copied = False
        for item in self.graph.hosts[pe]:
            if isinstance(item, Launch):
                yield from self._sleep(state, "launch", None, self.machine.sm.launch)
                self._launches.append(item.kernel)
                first = state.last
                programs = [
                    self.env.process(self._program(pe, number, nodes, item.warps.get(number, ()), first))
                    for number, (_, nodes) in enumerate(item.programs)
                ]
                begin = self.env.now
                done = yield self.env.all_of(programs)
                ends: list[Step | None] = [done[program] for program in programs]
                latest = max((step for step in ends if step is not None), key=lambda step: step.end, default=None)
                self._step(state, f"kernel {item.kernel}", None, begin, latest)
                copied = False
            elif item.action is Action.BARRIER:
                yield from self._meet(state, item)
                copied = False
            else:
                yield from self._copy(state, item, copied)
                copied = copied or item.target != pe

    def _side_stream(self, pe: int, nodes: Iterable[Node]) -> _Process:
        """Copies beside the kernels, each after what it waits for."""
        state, copied = _State(pe, HOST), False
        for node in nodes:
            if missing := [arrival for arrival in map(self._arrival, node.causes) if not arrival.happened]:
                copied = copied and node.action is Action.COPY
                yield from self._await(state, "wait for a signal", node.place, missing)
            if node.action is Action.COPY:
                yield from self._copy(state, node, copied)
                copied = True

    def _copy(self, state: _State, node: Node, again: bool) -> _Process:
        """By the copy engine, or within this PE's memory."""
        begin, engine = self.env.now, self.machine.copy_engine
        arrival = self._new_arrival(node)
        if node.target == state.pe:
            self.hardware.send(arrival, state.pe, state.pe, node.nbytes, state.last, "memory")
        else:
            if not self.hardware.same_host(state.pe, node.target):
                raise UnknownCostError(f"{node.place}: a copy to PE {node.target}, on another host")
            yield self.env.timeout(engine.interval if again else engine.start)
            ends = (state.pe, node.target) if node.releases else (node.target, state.pe)
            self.hardware.send(arrival, *ends, node.nbytes, state.last, "NVLink", rate=engine.bandwidth)
        yield arrival.event
        self._step(state, "copy", node.place, begin, arrival.step)

    def _meet(self, state: _State, node: Node) -> _Process:
        """A barrier of hosts, or of programs of several PEs."""
        whose = (node.pes, state.program == HOST, state.program if state.program == HOST else node.place)
        number = self._rounds[whose, state.pe]
        self._rounds[whose, state.pe] += 1
        key = (whose, number)
        arrival, came = self._barriers.setdefault(key, (Arrival(self.env), []))
        came.append(state)
        begin, last = self.env.now, state.last
        if len(came) == len(node.pes) or self.graph.symmetric:  # then all come when one does
            arrival.step = last
            if state.program == HOST and len(node.pes) == self.graph.n_pes:
                self._end_phase(node.place, last)
            arrival.event.succeed()
        yield arrival.event
        if state.program != HOST:
            others = (pe for pe in node.pes if pe != state.pe)
            yield self.env.timeout(max((self.hardware.latency(pe, state.pe) for pe in others), default=0.0))
            yield self.env.timeout(self.machine.memory.l2_latency)
        cause = arrival.step if arrival.step is not last else None
        self._step(state, "barrier", node.place, begin, cause)

    def _end_phase(self, place: Place | None, last: Step | None) -> None:
        begin = self.phases[-1].end if self.phases else 0.0
        self.phases.append(Phase(place, begin, self.env.now, self._launches, last))
        self._launches = []

    # ---- programs

    def _program(
        self, pe: int, number: int, nodes: list[Node], warps: Iterable[list[Node]], first: Step | None
    ) -> Generator[simpy.Event, Any, Step | None]:
        begin = self.env.now
        slots = self._slots[self.hardware.gpu(pe)]
        sm: Server = yield slots.get()
        state = _State(pe, number, sm, first)
        if self.env.now > begin:
            self._step(state, "wait for an SM", None, begin)
        others = [self.env.process(self._warp(_State(pe, number, sm, state.last), of_warp)) for of_warp in warps]
        ends = [(yield from self._warp(state, nodes))]
        if others:
            done = yield self.env.all_of(others)
            ends += [done[other] for other in others]
        slots.put(sm)
        return max((step for step in ends if step is not None), key=lambda step: step.end, default=None)

    def _warp(self, state: _State, nodes: list[Node]) -> Generator[simpy.Event, Any, Step | None]:
        """All steps of a program, or of one of its warps."""
        for node in nodes:
            yield from _ACTIONS[node.action](self, state, node)
        yield from self._await(state, "wait for loads", None, [arrival for _, arrival in state.loads])
        yield from self._summed(state, None)
        yield from self._await(state, "wait for stores", None, state.stores + state.messages)
        return state.last

    def _issue(self, state: _State, what: str, place: Place | None, microseconds: float) -> _Process:
        assert state.sm is not None
        begin = self.env.now
        _, end = state.sm.serve(begin, microseconds)
        if end > begin:
            yield self.env.timeout(end - begin)
        self._step(state, what, place, begin)

    def _loaded(self, state: _State, node: Node, dots: int | None = None) -> _Process:
        """Wait for its loads, or for those before so many dots."""
        needed = [arrival for at, arrival in state.loads if dots is None or at <= dots]
        state.loads = [(at, arrival) for at, arrival in state.loads if dots is not None and at > dots]
        yield from self._await(state, "wait for loads", node.place, needed)
        if dots is None:
            yield from self._summed(state, node.place)

    def _released(self, state: _State, node: Node) -> _Process:
        """Wait for its stores; of messages, which a NIC sends in their order, only ``quiet`` waits for the end."""
        needed, state.stores = state.stores, []
        if node.action is Action.FENCE and node.blocks:
            needed, state.messages = needed + state.messages, []
        yield from self._sleep(state, "fence", node.place, self.machine.sm.fence)
        yield from self._await(state, "wait for stores", node.place, needed)

    def _sent(self, state: _State, node: Node, arrival: Arrival) -> None:
        """``arrival`` is under way."""
        if self.hardware.same_host(state.pe, node.target):
            state.stores = [each for each in state.stores if not each.happened]
            state.stores.append(arrival)
        else:
            state.messages = [each for each in state.messages if not each.happened]
            state.messages.append(arrival)

    def _check_reach(self, state: _State, node: Node) -> None:
        if not self.hardware.same_host(state.pe, node.target):
            raise UnknownCostError(
                f"{node.place}: PE {state.pe} loads from PE {node.target}, on another host of {self.machine.name}"
            )

    def _is_read_by_nic(self, node: Node) -> bool:
        """Whether it is of a put to another host that the program hands to the NIC."""
        return node.sends_to >= 0 and not self.hardware.same_host(node.pe, node.sends_to)

    def _load(self, state: _State, node: Node) -> _Process:
        if self._is_read_by_nic(node):
            return
        self._check_reach(state, node)
        yield from self._issue(state, "issue", node.place, node.nbytes / (self.machine.sm.load * 1e3))
        state.loads.append((state.dots, self._fetch(state, node)))

    def _fetch(self, state: _State, node: Node) -> Arrival:
        """Bytes of ``target`` that come to this PE."""
        arrival, remote = Arrival(self.env), node.target != state.pe
        memory = self.machine.memory
        delay = memory.latency - memory.l2_latency if node.action is Action.LOAD and not node.cached else 0.0
        if remote:
            delay = self.hardware.latency(state.pe, node.target)
        what = "memory" if not remote else "NVLink" if self.hardware.same_host(state.pe, node.target) else "network"
        if node.cached:
            what = "L2 cache"
        self.hardware.send(
            arrival, node.target, state.pe, node.nbytes, state.last, what, delay=delay, cached=node.cached
        )
        return arrival

    def _send(self, state: _State, node: Node) -> Arrival:
        """Bytes of this PE that go to ``target``."""
        arrival = self._new_arrival(node)
        remote = node.target != state.pe
        what = "memory" if not remote else "NVLink" if self.hardware.same_host(state.pe, node.target) else "network"
        delay = self.machine.memory.latency if self._is_read_by_nic(node) else 0.0
        self.hardware.send(arrival, state.pe, node.target, node.nbytes, state.last, what, delay=delay)
        return arrival

    def _store(self, state: _State, node: Node) -> _Process:
        yield from self._loaded(state, node)
        if node.in_flight:
            state.stores = [each for each in state.stores if not each.happened]
            yield from self._await(state, "wait for stores", node.place, state.stores[: 1 - node.in_flight or None])
        begin = self.env.now
        if not self._is_read_by_nic(node):
            yield from self._issue(state, "issue", node.place, node.nbytes / (self.machine.sm.store * 1e3))
        self._sent(state, node, self._send(state, node))
        if (rest := begin + node.interval - self.env.now) > 0:
            yield from self._sleep(state, "throttle", node.place, rest)

    def _atomic(self, state: _State, node: Node) -> _Process:
        yield from self._loaded(state, node)
        if node.releases:
            yield from self._released(state, node)
        yield from self._await(state, "wait for a signal", node.place, map(self._arrival, node.causes))
        arrival = self._send(state, node)
        if node.blocks:
            yield from self._await(state, "atomic", node.place, [arrival])
            if node.target != state.pe:
                yield from self._sleep(state, "atomic", node.place, self.hardware.latency(node.target, state.pe))
        else:
            self._sent(state, node, arrival)

    def _wait(self, state: _State, node: Node) -> _Process:
        yield from self._loaded(state, node)
        yield from self._await(state, "wait for a signal", node.place, map(self._arrival, node.causes))
        yield from self._issue(state, "issue", node.place, node.nbytes / (self.machine.sm.load * 1e3))
        yield from self._await(state, "look at memory", node.place, [self._fetch(state, node)])

    def _get(self, state: _State, node: Node) -> _Process:
        yield from self._loaded(state, node)
        yield from self._issue(state, "issue", node.place, node.nbytes / (self.machine.sm.load * 1e3))
        arrival = self._fetch(state, node)
        if node.blocks:
            yield from self._await(state, "get", node.place, [arrival])
        else:
            self._sent(state, node, arrival)

    def _fence(self, state: _State, node: Node) -> _Process:
        yield from self._loaded(state, node)
        yield from self._released(state, node)

    def _dot(self, state: _State, node: Node) -> _Process:
        flops = self.machine.sm.flops.get(node.size)
        if flops is None:
            raise UnknownCostError(
                f"{node.place}: tl.dot of operands with {node.size} bytes an element: sm.flops of {self.machine.name} "
                f"has {', '.join(map(str, self.machine.sm.flops))}"
            )
        # The first one fills the pipeline.
        stages = node.stages or self.machine.sm.stages
        yield from self._loaded(state, node, state.dots - stages + 1 if state.dots else None)
        state.dots += 1
        # Tensor cores work beside what issues loads. A dot waits for the one before it.
        yield from self._summed(state, node.place)
        assert state.sm is not None
        took = node.flops / (flops * _TERA / self.machine.sm.count)
        _, state.sums = self.hardware.tensor_cores[state.sm].serve(self.env.now, took)

    def _summed(self, state: _State, place: Place | None) -> _Process:
        """Wait for its dots."""
        if state.sums > self.env.now:
            yield from self._sleep(state, "tl.dot", place, state.sums - self.env.now)

    def _hand_over(self, state: _State, node: Node) -> _Process:
        yield from self._loaded(state, node)
        yield from self._await(state, "wait for a warp", node.place, map(self._arrival, node.causes))
        arrival = self._new_arrival(node)
        arrival.step = state.last
        arrival.event.succeed()

    def _barrier(self, state: _State, node: Node) -> _Process:
        yield from self._loaded(state, node)
        yield from self._released(state, node)
        yield from self._meet(state, node)


_ACTIONS = {
    Action.LOAD: Replay._load,
    Action.STORE: Replay._store,
    Action.ATOMIC: Replay._atomic,
    Action.WAIT: Replay._wait,
    Action.GET: Replay._get,
    Action.FENCE: Replay._fence,
    Action.DOT: Replay._dot,
    Action.BARRIER: Replay._barrier,
    Action.HAND_OVER: Replay._hand_over,
}
