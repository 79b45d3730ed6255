"""A log as what each program does, in order, and which steps of others each of its waits is for.

A wait ends on the machine when the updates arrive that it was for in the log (``writes``). Programs do what they did in
the log, so a program that takes work from a queue, or a lock, takes what it took there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from triton_dist._C.op_table import OPS, Cmp, Effect
from triton_dist.check.log import HOST, Flag, Kind, Place
from triton_dist.check.run import Event, Run
from triton_dist.check.signals import Condition
from triton_dist.model.nodes import Action, Launch, Node, owner
from triton_dist.model.writes import Writes

__all__ = ["Graph", "UnknownCostError"]


class UnknownCostError(ValueError):
    """A log that does not say what the replay must know."""


class Graph:
    """What the PEs of a run do: ``hosts[pe]`` is a list of launches, copies and barriers, in order."""

    symmetric = False
    """One PE stands for all: ``representative.py``."""

    def __init__(self, run: Run) -> None:
        """Raises UnknownCostError where a log says that data moved, but not where to."""
        self.n_pes = run.n_pes
        self.hosts: list[list[Launch | Node]] = [[] for _ in range(run.n_pes)]
        self.side_streams: dict[int, list[Node]] = {}
        """By PE: what its host has copied beside the kernels. Of a log nothing, since the CPU world has one stream."""
        self.n_nodes = 0
        self._run = run
        self._writes = Writes(run, self._more_bounds())
        self._launch: dict[int, Launch] = {}
        self._programs: dict[tuple[int, int], list[Node]] = {}
        self._in_flight: dict[tuple[int, int], tuple[Node, Event]] = {}
        """By PE and number of their events: updates that have been sent."""
        self._loaded: list[set[bytes]] = [set() for _ in range(run.n_pes)]
        """By PE: the blocks that the running kernel has loaded."""
        for _, event in run:
            self._add(event)
        launches = [item for host in self.hosts for item in host if isinstance(item, Launch)]
        if not launches:
            raise UnknownCostError("the script launched no kernel after triton_dist.init(): there is nothing to replay")
        for launch in launches:
            nodes = [node for _, program in launch.programs for node in program]
            if not any(node.action is Action.DOT for node in nodes):  # what others load again has been stored again
                for node in nodes:
                    node.cached = False

    def _add(self, e: Event) -> None:
        if e.kind == Kind.PROGRAM:
            program = self._run.program(e.pe, e.program)
            assert program is not None
            if e.pe not in self._launch:
                self._launch[e.pe] = Launch(program.kernel)
                self.hosts[e.pe].append(self._launch[e.pe])
            nodes = self._programs[e.pe, e.program] = []
            self._launch[e.pe].programs.append((program.index, nodes))
        elif e.kind == Kind.END:
            self._programs.pop((e.pe, e.program), None)
        elif e.kind == Kind.LAUNCHED:
            self._launch.pop(e.pe, None)
            self._loaded[e.pe].clear()
        elif e.kind == Kind.FAILED:
            raise UnknownCostError(f"PE {e.pe} failed: {self._run.text(e.pe, e.a)}")
        elif e.kind == Kind.ARRIVED:  # perhaps when its program has ended
            self._arrived(e)
        elif e.program == HOST:
            self._host(e)
        elif (e.pe, e.program) in self._programs and e.kind in _OF_PROGRAMS:
            _OF_PROGRAMS[e.kind](self, e, self._programs[e.pe, e.program])

    def _node(self, e: Event, action: Action, nodes: list[Node | Launch] | list[Node], **more: object) -> Node:
        place = self._run.place(e.pe, e.place) if e.place >= 0 else None
        node = Node(e.pe, e.program, action, place, **more)  # type: ignore[arg-type]
        nodes.append(node)
        self.n_nodes += 1
        return node

    def _more_bounds(self) -> Iterable[tuple[int, NDArray[np.int64]]]:
        """Where updates begin or end, by space, that no event tells."""
        return ()

    def _write(self, node: Node, space: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self._writes.write(node, space, begins, ends)

    def _wait(self, node: Node, writers: NDArray[np.int64]) -> None:
        causes = (self._writes.nodes[index] for index in writers.tolist())
        node.causes = tuple(
            cause for cause in causes if cause is not node and (cause.pe, cause.program) != (node.pe, node.program)
        )
        for cause in node.causes:
            cause.awaited = True

    # ---- hosts

    def _host(self, e: Event) -> None:
        host = self.hosts[e.pe]
        if e.kind == Kind.ARRIVE:
            self._node(e, Action.BARRIER, host, pes=self._run.pes(e.pe, e.a))
        elif e.kind == Kind.ACCESS:
            space, begins, ends = self._run.ranges(e.pe, e.a)
            node = self._node(e, Action.COPY, host, target=owner(space), nbytes=int((ends - begins).sum()))
            node.releases = bool(e.flags & Flag.WRITES)  # else it reads
            if node.releases:
                self._write(node, space, begins, ends)

    # ---- programs

    def _access(self, e: Event, nodes: list[Node]) -> None:
        space, begins, ends = self._run.ranges(e.pe, e.a)
        nbytes, target = int((ends - begins).sum()), owner(space)
        if e.flags & Flag.ATOMIC:
            node = self._node(e, Action.ATOMIC, nodes, target=target, nbytes=nbytes)
            node.adds = node.place is not None and node.place.what == "tl.atomic_add"
            node.blocks = not e.flags & Flag.WRITES
            if e.flags & Flag.WRITES:
                self._write(node, space, begins, ends)
        elif e.flags & Flag.WRITES:
            node = self._node(e, Action.STORE, nodes, target=target, nbytes=nbytes)
            self._write(node, space, begins, ends)
        elif e.flags & Flag.VOLATILE:
            last = nodes[-1] if nodes else None
            again = last is not None and last.action is Action.WAIT and (last.target, last.nbytes) == (target, nbytes)
            node = last if again and last is not None else self._node(e, Action.WAIT, nodes)
            node.target, node.nbytes = target, nbytes
            self._writes.forget_look(node)
            self._wait(node, self._writes.awaited(node, space, begins, ends))
        else:
            node = self._node(e, Action.LOAD, nodes, target=target, nbytes=nbytes)
            if target == e.pe:
                block = b"".join((begins.tobytes(), ends.tobytes(), space.to_bytes(4, "little", signed=True)))
                node.cached = block in self._loaded[e.pe]
                self._loaded[e.pe].add(block)

    def _work(self, e: Event, nodes: list[Node]) -> None:
        if min(e.a, e.b, e.c, e.d) < 0:
            raise UnknownCostError(f"the log of PE {e.pe} has work of a negative size")
        if e.a:
            self._node(e, Action.LOAD, nodes, target=e.pe, nbytes=e.a)
        if e.b:
            self._node(e, Action.STORE, nodes, target=e.pe, nbytes=e.b)
        if e.c:
            self._node(e, Action.DOT, nodes, flops=e.c, size=e.size, stages=e.d)

    def _put(self, e: Event, nodes: list[Node]) -> None:
        space, begins, ends = self._run.ranges(e.pe, e.b)
        nbytes = int((ends - begins).sum())
        sends_to = owner(space) if e.flags & Flag.NBI else -1
        if not e.flags & Flag.ATOMIC:  # of one element, which is a register
            self._node(e, Action.LOAD, nodes, target=e.pe, nbytes=nbytes, sends_to=sends_to)
        node = self._node(e, Action.STORE, nodes, target=owner(space), nbytes=nbytes, sends_to=sends_to)
        self._write(node, space, begins, ends)

    def _get(self, e: Event, nodes: list[Node]) -> None:
        space, begins, ends = self._run.ranges(e.pe, e.a)
        node = self._node(e, Action.GET, nodes, target=owner(space), nbytes=int((ends - begins).sum()))
        node.blocks = not e.flags & Flag.NBI

    def _update(self, e: Event, nodes: list[Node]) -> None:
        self._change(self._sends(e, nodes), e, e)

    def _sends(self, e: Event, nodes: list[Node]) -> Node:
        node = self._node(e, Action.ATOMIC, nodes, target=e.a, nbytes=e.size)
        # The signal of a put follows its data on the same way.
        node.releases = not e.flags & (Flag.RELAXED | Flag.CARRIES)
        if e.flags & Flag.CARRIES and len(nodes) > 1:
            node.sends_to = nodes[-2].sends_to
        node.adds = bool(e.flags & Flag.ADDS)
        return node

    def _change(self, node: Node, update: Event, values: Event) -> None:
        """``node`` has changed the word of ``update``."""
        node.value = values.d if values.flags & Flag.VALUED else None
        begin = np.array([update.b], np.int64)
        self._write(node, update.a, begin, begin + update.size)

    def _send(self, e: Event, nodes: list[Node]) -> None:
        self._in_flight[e.pe, e.number] = self._sends(e, nodes), e

    def _arrived(self, e: Event) -> None:
        if sent := self._in_flight.pop((e.pe, e.a), None):
            self._change(*sent, e)

    def _release(self, e: Event, nodes: list[Node]) -> None:
        group = _group(nodes, self._run.place(e.pe, e.place))
        words = self._run.words(e.pe, e.a)
        if private := [word for word in words if word[0] < 0]:
            if not group:
                group = [self._node(e, Action.ATOMIC, nodes, target=e.pe, nbytes=8 * len(private))]
            self._writes.write_words(group[-1], private)
        if group and not e.flags & Flag.RELAXED:
            group[0].releases = True

    def _acquire(self, e: Event, nodes: list[Node]) -> None:
        if e.flags & Flag.RELAXED:
            return
        group = _group(nodes, self._run.place(e.pe, e.place))
        if not group:
            return
        for node in group:
            node.blocks = True
        if not any(node.releases for node in group):  # a look: what was there stays
            self._writes.undo(group)
            self._merge_looks(nodes, group)
            before = nodes[-len(group) - 1] if len(nodes) > len(group) else None
            of_group = (Action.WAIT, group[-1].target, group[-1].nbytes)
            if before is not None and (before.action, before.target, before.nbytes) == of_group:
                return  # it acquires what a loop of loads has waited for
        words = self._run.words(e.pe, e.a)
        writers = [self._writes.word_before(group, word) for word in words]
        self._wait(group[-1], np.unique(np.concatenate(writers)))

    def _merge_looks(self, nodes: list[Node], group: list[Node]) -> None:
        """Drop an equal look right before this one."""
        earlier = nodes[-2 * len(group) : -len(group)]
        if len(earlier) == len(group) and all(
            one.action is Action.ATOMIC and one.blocks and not one.releases and not one.awaited
            and (one.place, one.target, one.nbytes) == (other.place, other.target, other.nbytes)
            for one, other in zip(earlier, group, strict=True)
        ):  # fmt: skip
            self._writes.forget_look(earlier[-1])
            del nodes[-2 * len(group) : -len(group)]

    def _look(self, e: Event, nodes: list[Node]) -> None:
        words = self._run.words(e.pe, e.a)
        node = self._node(e, Action.WAIT, nodes, target=e.pe, nbytes=e.size * len(words))
        accepts = None
        if e.flags & Flag.WAITS:
            accepts = Condition(Cmp(e.cmp), e.c, 8 * e.size, bool(e.flags & Flag.SIGNED)).accepts
        writers = [self._writes.satisfied(word, accepts) if accepts else self._writes.word(*word) for word in words]
        self._wait(node, np.unique(np.concatenate(writers)))

    def _fence(self, e: Event, nodes: list[Node]) -> None:
        self._node(e, Action.FENCE, nodes, releases=True, blocks=e.kind == Kind.QUIET)

    def _arrive(self, e: Event, nodes: list[Node]) -> None:
        place = self._run.place(e.pe, e.place)
        op = OPS.get(place.what)
        if op is not None and op.effect is Effect.EXCHANGE:
            raise UnknownCostError(
                f"{place}: {place.what} in a kernel: the log does not say which bytes a collective of NVSHMEM sends to "
                "whom; use triton_dist.kernels, or puts"
            )
        self._node(e, Action.BARRIER, nodes, pes=self._run.pes(e.pe, e.a), releases=True)


_OF_PROGRAMS: dict[int, Callable[[Graph, Event, list[Node]], None]] = {
    Kind.ACCESS: Graph._access,
    Kind.WORK: Graph._work,
    Kind.PUT: Graph._put,
    Kind.GET: Graph._get,
    Kind.UPDATE: Graph._update,
    Kind.SENT: Graph._send,
    Kind.RELEASE: Graph._release,
    Kind.ACQUIRE: Graph._acquire,
    Kind.LOOK: Graph._look,
    Kind.FENCE: Graph._fence,
    Kind.QUIET: Graph._fence,
    Kind.ARRIVE: Graph._arrive,
}


def _group(nodes: list[Node], place: Place) -> list[Node]:
    """The atomic steps at the end of ``nodes`` that one operation at ``place`` made, one for each PE it touched."""
    begin = len(nodes)
    seen: set[int] = set()
    while begin and nodes[begin - 1].action is Action.ATOMIC and nodes[begin - 1].place == place:
        if nodes[begin - 1].target in seen:
            break
        seen.add(nodes[begin - 1].target)
        begin -= 1
    return nodes[begin:]
