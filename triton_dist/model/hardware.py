"""SMs, memories and links in simulated time, in µs and bytes.

What is shared is a server that takes its work first come, first served, so the end of each piece is known when it comes
and costs one event. Messages are at most ``_PIECE`` bytes, so that a large one does not keep others from its links. A
message occupies the links of its way as packets do: it reaches the second while it still leaves the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from triton_dist.check.log import Place
from triton_dist.model.machine import Machine

__all__ = ["Arrival", "Hardware", "Server", "Step"]

_PIECE = 128 << 10
_GB = 1e3
"""Bytes in a µs at 1 GB/s."""


@dataclass(eq=False)
class Step:
    """A span of simulated time, and why it did not end earlier."""

    pe: int
    program: int
    """-1: the host; -2: a link."""
    what: str
    place: Place | None
    begin: float
    end: float
    cause: Step | None = None
    """What ended right before this could end, on another program or link."""
    previous: Step | None = None
    """What the same program did before."""


class Server:
    """Something that does one piece of work after the other. ``busy`` is the time for which it has worked."""

    def __init__(self, name: str, pe: int, rate: float, each: float = 0.0) -> None:
        self.name, self.pe, self.rate, self.each = name, pe, rate, each
        self.free = 0.0
        self.busy = 0.0
        self.nbytes = 0.0
        self.spans: list[list[float]] = []

    def serve(self, now: float, amount: float, *, not_before: float = 0.0, rate: float = 0.0) -> tuple[float, float]:
        """Begin and end of work of ``amount`` that comes now, and does not end earlier than another time.

        ``rate``: of this work, if it is not the server's.
        """
        begin = max(now, self.free)
        took = self.each + amount / (rate or self.rate)
        self.free = begin + took
        self.busy += took
        self.nbytes += amount
        if self.spans and begin <= self.spans[-1][1] + 1e-6:
            self.spans[-1][1] = self.free
        else:
            self.spans.append([begin, self.free])
        return begin, max(self.free, not_before)


class Arrival:
    """The end of something that is sent; ``step`` is what it is."""

    def __init__(self, env: simpy.Environment) -> None:
        self.event = env.event()
        self.step: Step | None = None

    @property
    def happened(self) -> bool:
        return bool(self.event.triggered)


class Hardware:
    """All GPUs of ``n_pes`` PEs.

    ``symmetric``: one, whose PE does what all do. What it sends to another PE leaves by its links while another PE's,
    of the same size, comes in by them, so it passes this GPU's outgoing links, and then its incoming ones.
    """

    def __init__(self, env: simpy.Environment, machine: Machine, n_pes: int, *, symmetric: bool = False) -> None:
        self._env, self._machine, self._symmetric = env, machine, symmetric
        if symmetric:
            n_pes = 1
        self.memories = [Server("memory", pe, machine.memory.bandwidth * _GB) for pe in range(n_pes)]
        self.caches = [Server("L2 cache", pe, machine.memory.l2_bandwidth * _GB) for pe in range(n_pes)]
        self.egress = [Server("NVLink out", pe, machine.nvlink.bandwidth * _GB) for pe in range(n_pes)]
        self.ingress = [Server("NVLink in", pe, machine.nvlink.bandwidth * _GB) for pe in range(n_pes)]
        network = machine.network
        ports = min(network.ports, machine.gpus_per_host)
        if symmetric and ports < machine.gpus_per_host:
            raise ValueError(f"{machine.name}: GPUs that share a NIC are not replayed by one for all")
        hosts = (n_pes - 1) // machine.gpus_per_host + 1
        self.nic_out, self.nic_in = (
            [
                Server(f"NIC {way}", host * machine.gpus_per_host + port, network.bandwidth * _GB, network.message)
                for host in range(hosts)
                for port in range(ports)
            ]
            for way in ("out", "in")
        )
        self._ports = ports
        self.sms = [
            [Server("SM", pe, 1.0) for _ in range(machine.sm.count)] for pe in range(n_pes)
        ]  # in µs: what they do has different rates
        self.tensor_cores = {sm: Server("tensor cores", sm.pe, 1.0) for sms in self.sms for sm in sms}
        """Of each SM, likewise."""

    @property
    def links(self) -> list[Server]:
        return [
            *self.memories,
            *(cache for cache in self.caches if cache.busy),
            *self.egress,
            *self.ingress,
            *(nic for nic in (*self.nic_out, *self.nic_in) if nic.busy),
        ]

    def gpu(self, pe: int) -> int:
        """Which of the GPUs that there are is a PE's."""
        return 0 if self._symmetric else pe

    def same_host(self, one: int, other: int) -> bool:
        return self._machine.host(one) == self._machine.host(other)

    def latency(self, source: int, target: int) -> float:
        """From one PE's memory or SM to another's memory."""
        if source == target:
            return self._machine.memory.l2_latency
        return self._machine.nvlink.latency if self.same_host(source, target) else self._machine.network.latency

    def send(
        self, arrival: Arrival, source: int, target: int, nbytes: float, by: Step | None, what: str, *,
        delay: float = 0.0, rate: float = 0.0, cached: bool = False,
    ) -> None:  # fmt: skip
        """Have ``arrival`` happen when ``nbytes`` that leave ``source`` after ``delay`` have arrived at ``target``.

        ``rate``: of who sends, in GB/s, if it is not that of the links. ``cached``: from this GPU's L2 cache.
        """
        route = (self.caches[self.gpu(source)],) if cached else self._route(source, target)
        latency = self.latency(source, target)
        place = by.place if by is not None else None
        step = arrival.step = Step(source, -2, what, place, self._env.now, self._env.now, cause=by)
        pieces = max(1, -(-int(nbytes) // _PIECE))
        left = [pieces]

        def arrive(_: Any) -> None:
            left[0] -= 1
            if not left[0]:
                step.end = self._env.now
                arrival.event.succeed()

        def go(_: Any) -> None:
            _piece(self._env, route, 0, nbytes / pieces, rate * _GB, latency, 0.0, arrive)

        for _ in range(pieces):
            if delay > 0:
                _at(self._env, delay, go)
            else:
                go(None)

    def _route(self, source: int, target: int) -> Sequence[Server]:
        if source == target:
            return (self.memories[self.gpu(source)],)
        same_host = self.same_host(source, target)
        source, target = self.gpu(source), self.gpu(target)
        if same_host:
            return (self.egress[source], self.ingress[target])
        return (self.nic_out[self._port(source)], self.nic_in[self._port(target)])

    def _port(self, pe: int) -> int:
        machine = self._machine
        return machine.host(pe) * self._ports + pe % machine.gpus_per_host % self._ports


def _at(env: simpy.Environment, delay: float, call: Any) -> None:
    timeout = env.timeout(delay)
    assert timeout.callbacks is not None
    timeout.callbacks.append(call)


def _piece(
    env: simpy.Environment, route: Sequence[Server], i: int, nbytes: float, rate: float, latency: float, end: float,
    arrive: Any,
) -> None:  # fmt: skip
    """Pass server i of a route; ``end``: when the last byte has left the server before."""
    begin, end = route[i].serve(env.now, nbytes, not_before=end, rate=rate)
    if i + 1 < len(route):
        _at(env, begin - env.now, lambda _: _piece(env, route, i + 1, nbytes, rate, latency, end, arrive))
    else:
        _at(env, end + latency - env.now, arrive)
