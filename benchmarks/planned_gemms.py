"""What the Hopper kernels of the fused GEMMs do, from their plans, for triton_dist.model.

    python benchmarks/planned_gemms.py NAME PES MxNxK …    # of a PE's GEMM, bfloat16; prints simulated times

These kernels are in Gluon and do not run in the CPU world. But the host computes which program computes which tile,
in which order, and how fast it may send; and what the warps of a program do with a tile is the same for every tile. So
the steps that a recording would have are made here, with the schedules and intervals of the kernels' own functions:

- The warps that load and multiply are one list of steps: they wait for rows of A that a peer's copy engine sends, and
  for partial sums of other programs along K. The products of a unit take their operations at the machine's rate;
  operands are not loaded one by one, for that rate was measured of local GEMMs, which load them, too.
- The store warp has the tile next, and sends it in pieces, throttled. It signals, where a ring goes on.
- The receive warp of a ring loads what the previous PE has sent of a tile.

The last program of a launch, which signals and awaits the peers, is program 0 here, after all others have ended.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace

import torch

from triton_dist.kernels.gemm.config import Config, block_k, ring_rows
from triton_dist.kernels.gemm.hopper import gemm_all_scatter, ring
from triton_dist.kernels.gemm.hopper.all_gather_gemm import arrival_schedule
from triton_dist.kernels.gemm.hopper.launch import grouped_schedule
from triton_dist.kernels.gemm.hopper.pacing import FLOPS_PER_CYCLE, pacing_of, piece_of
from triton_dist.kernels.gemm.hopper.store import IN_FLIGHT, Pacing
from triton_dist.kernels.gemm.schedule import Schedule, Tile, grouped, make_schedule
from triton_dist.kernels.gemm.tile_sizes import choose
from triton_dist.model.machine import Machine
from triton_dist.model.nodes import Action, Launch, Node
from triton_dist.model.planned import PlannedGraph
from triton_dist.model.replay import Replay

__all__ = ["ALGORITHMS", "Gemm", "graph_of", "plan_of", "simulated"]

ALGORITHMS = {
    "local_gemm": "hopper",
    "all_gather_gemm": "copy_engine",
    "gemm_all_scatter": "warp_specialized",
    "gemm_reduce_scatter": "ring",
    "gemm_all_reduce": "ring",
}
"""Of each function, the algorithm that is planned here."""

_PIECES = 8
"""Pieces of a tile that are one step, to have fewer of them."""


@dataclass(frozen=True)
class Gemm:
    """A call on ``n_pes`` PEs: M, N and K of what each of them computes."""

    name: str
    n_pes: int
    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.bfloat16
    out_dtype: torch.dtype = torch.bfloat16
    config: Config | None = None
    """Of a local GEMM: a tile other than the one that is chosen."""

    @property
    def sums(self) -> bool:
        return self.name in ("gemm_reduce_scatter", "gemm_all_reduce")

    @property
    def to_all(self) -> bool:
        """Whether the results of a PE go to all peers."""
        return self.name in ("gemm_all_scatter", "gemm_all_reduce")


def simulated(gemm: Gemm, machine: Machine) -> float:
    """Microseconds of one call."""
    replay = Replay(graph_of(gemm, machine), machine)
    replay.run()
    return replay.phases[-1].end


def graph_of(gemm: Gemm, machine: Machine) -> PlannedGraph:
    """The graph of one call.

    Raises ValueError if the function has no planned algorithm, or its rows are not those of whole PEs.
    """
    if gemm.name not in ALGORITHMS:
        raise ValueError(f"{gemm.name}: planned are {', '.join(ALGORITHMS)}")
    if min(gemm.n_pes, gemm.m, gemm.n, gemm.k) < 1 or (
        gemm.m % gemm.n_pes and gemm.name in ("all_gather_gemm", "gemm_reduce_scatter")
    ):
        raise ValueError(f"{gemm}: M, N, K and PEs are positive, and M is a multiple of the PEs where they share rows")
    steps = _Steps()
    kernels = [_Kernel(gemm, machine, me, steps) for me in range(gemm.n_pes)]
    side = {kernel.me: kernel.copies() for kernel in kernels} if gemm.name == "all_gather_gemm" else {}
    return PlannedGraph([kernel.launch() for kernel in kernels], side)


class _Steps:
    """Steps that other programs wait for, perhaps before it is known who takes them."""

    def __init__(self) -> None:
        self._named: dict[tuple[object, ...], Node] = {}

    def __call__(self, *name: object) -> Node:
        return self._named.setdefault(name, Node(-1, -1, Action.ATOMIC, None))


def plan_of(gemm: Gemm, programs: int, me: int) -> tuple[Schedule, Config, Pacing | None]:
    """What the host of PE ``me`` computes for the kernel."""
    a = torch.empty(gemm.m, gemm.k, dtype=gemm.dtype, device="meta")
    c = torch.empty(gemm.m, gemm.n, dtype=gemm.out_dtype, device="meta")
    if gemm.name == "all_gather_gemm":
        config = choose(a, c, programs)
        return arrival_schedule(a, c, config, programs, gemm.n_pes, me), config, None
    if gemm.sums:
        shards = gemm.n_pes if gemm.name == "gemm_reduce_scatter" else 1
        staging = torch.empty(ring_rows(gemm.m, shards), gemm.n, dtype=gemm.out_dtype, device="meta")
        owned = ring.by_shards if shards > 1 else ring.by_tiles
        schedule, config = ring.ring_schedule(a, staging, owned, programs, gemm.n_pes, me)
        peers = gemm.n_pes - 1 if gemm.to_all else 1
        return schedule, config, pacing_of(config, ring.SHARE, peers, programs)
    if gemm.config is not None:
        tiles = [Tile(*place, 0) for place in grouped(*gemm.config.tiles(c))]
        return make_schedule(tiles, gemm.config.k_steps(a), programs), gemm.config, None
    peers = gemm.n_pes - 1 if gemm.to_all else 0
    schedule, config = grouped_schedule(a, c, programs, peers=peers) if peers else _local_schedule(a, c, programs)
    return schedule, config, pacing_of(config, gemm_all_scatter.SHARE, peers, programs) if peers else None


def _local_schedule(a: torch.Tensor, c: torch.Tensor, programs: int) -> tuple[Schedule, Config]:
    config = choose(a, c, programs)
    return make_schedule([Tile(*place, 0) for place in grouped(*config.tiles(c))], config.k_steps(a), programs), config


@dataclass
class _Program:
    """The steps of one program, by warp, as they are made."""

    number: int
    multiply: list[Node] = field(default_factory=list)
    store: list[Node] = field(default_factory=list)
    receive: list[Node] = field(default_factory=list)
    released: Node | None = None
    """The store warp's step that lets the tile buffer be written again."""


class _Kernel:
    """The kernel of one PE."""

    def __init__(self, gemm: Gemm, machine: Machine, me: int, steps: _Steps) -> None:
        self.gemm, self.machine, self.me, self.steps = gemm, machine, me, steps
        self.schedule, self.config, self.pacing = plan_of(gemm, machine.sm.count, me)
        self.programs = len(self.schedule.starts) - 1
        self.peers = [(me + i) % gemm.n_pes for i in range(1, gemm.n_pes)]
        if gemm.dtype.itemsize not in machine.sm.flops:
            raise ValueError(f"sm.flops of {machine.name} has no rate for elements of {gemm.dtype.itemsize} bytes")
        per_cycle = FLOPS_PER_CYCLE * 2 // gemm.dtype.itemsize
        self.clock = machine.sm.flops[gemm.dtype.itemsize] * 1e6 / machine.sm.count / per_cycle
        """Cycles in a µs, at the rate of the tensor cores."""

    def launch(self) -> Launch:
        made = Launch(f"{self.gemm.name}, {ALGORITHMS[self.gemm.name]}")
        for number in range(self.programs):
            program = self._program(number)
            made.programs.append(((number, 0, 0), program.multiply))
            made.warps[number] = [nodes for nodes in (program.store, program.receive) if nodes]
        return made

    def copies(self) -> list[Node]:
        """Of this PE's rows of A to the peers by the copy engine, each when that PE's kernel has begun."""
        found = []
        nbytes = self.gemm.m // self.gemm.n_pes * self.gemm.k * self.gemm.dtype.itemsize
        for pe in reversed(self.peers):
            found.append(self._node(-1, Action.WAIT, causes=(self.steps("entered", pe, self.me),)))
            copy = self.steps("copied", self.me, pe)
            self._take(found, copy, -1, Action.COPY, target=pe, nbytes=nbytes, releases=True)
        return found

    # ---- steps

    def _node(self, program: int, action: Action, **more: object) -> Node:
        return Node(self.me, program, action, None, **more)  # type: ignore[arg-type]

    def _take(self, nodes: list[Node], node: Node, program: int, action: Action, **more: object) -> None:
        """Add a step that others may know already."""
        node.pe, node.program, node.action = self.me, program, action
        for name, value in more.items():
            setattr(node, name, value)
        nodes.append(node)

    def _signal(self, nodes: list[Node], program: int, target: int, *name: object) -> None:
        """Set a flag, with release semantics."""
        self._take(nodes, self.steps(*name), program, Action.ATOMIC, target=target, nbytes=4, releases=True)

    def _wait(self, nodes: list[Node], program: int, *causes: Node) -> None:
        nodes.append(self._node(program, Action.WAIT, target=self.me, nbytes=4, causes=causes))

    def _hand_over(self, nodes: list[Node], program: int, *causes: Node | None) -> Node:
        found = tuple(cause for cause in causes if cause is not None)
        nodes.append(self._node(program, Action.HAND_OVER, causes=found))
        return nodes[-1]

    # ---- a program

    def _program(self, number: int) -> _Program:
        program = _Program(number)
        gemm, me = self.gemm, self.me
        if number == 0:
            for pe in self.peers:
                self._signal(program.store, number, pe, "entered", me, pe)
        units = self.schedule.units[self.schedule.starts[number] : self.schedule.starts[number + 1]]
        arrived, sends = {me}, False
        for i, unit in enumerate(units):
            loads = i == 0
            if gemm.name == "all_gather_gemm":
                for pe in self._pes_of_rows(unit[0]):
                    if pe not in arrived:
                        self._wait(program.multiply, number, self.steps("copied", pe, me))
                        arrived.add(pe)
                        loads = True
            if not self._multiply(program, unit, loads):
                continue
            if self.pacing is not None and not sends:
                for pe in self.peers:
                    self._wait(program.store, number, self.steps("entered", pe, me))
                sends = True
            self._finish(program, unit, units[i + 1] if i + 1 < len(units) else None)
        self._signal(program.store, number, me, "ended", me, number)
        if number == 0 and gemm.to_all and self.peers:
            self._wait(program.store, number, *(self.steps("ended", me, other) for other in range(self.programs)))
            for pe in self.peers:
                self._signal(program.store, number, pe, "done", me, pe)
            for pe in self.peers:
                self._wait(program.store, number, self.steps("done", pe, me))
        return program

    def _pes_of_rows(self, tile_row: int) -> range:
        rows = self.gemm.m // self.gemm.n_pes
        last = min(self.gemm.m, (tile_row + 1) * self.config.block_m) - 1
        return range(tile_row * self.config.block_m // rows, last // rows + 1)

    def _multiply(self, program: _Program, unit: tuple[int, ...], loads: bool) -> bool:
        """The sums of a unit; returns whether it finishes its tile.

        Args:
            loads: nothing of it could be loaded beside the unit before.
        """
        _, _, begin, end, slot, inputs, first_input, _ = unit
        config, gemm, nodes, number = self.config, self.gemm, program.multiply, program.number
        if loads:
            stage = (config.block_m + config.block_n) * block_k(gemm.dtype) * gemm.dtype.itemsize
            nodes.append(self._node(number, Action.LOAD, target=self.me, nbytes=stage))
        flops = 2 * config.block_m * config.block_n * (end - begin) * block_k(gemm.dtype)
        size, flops = gemm.dtype.itemsize, int(flops / config.rate)
        nodes.append(self._node(number, Action.DOT, flops=flops, size=size, stages=1))
        sums = config.block_m * config.block_n * 4
        if slot >= 0:
            nodes.append(self._node(number, Action.STORE, target=self.me, nbytes=sums))
            self._signal(nodes, number, self.me, "part", self.me, slot)
            return False
        for part in range(first_input, first_input + inputs):
            self._wait(nodes, number, self.steps("part", self.me, part))
            nodes.append(self._node(number, Action.LOAD, target=self.me, nbytes=sums))
        return True

    def _finish(self, program: _Program, unit: tuple[int, ...], following: tuple[int, ...] | None) -> None:
        """Take a tile whose sums are complete through the tile buffer to where it belongs."""
        gemm, me, number = self.gemm, self.me, program.number
        row, column, *_, owner = unit
        received = self._receive(program, row, column, owner) if gemm.sums else program.released
        handed = self._hand_over(program.multiply, number, received)
        self._hand_over(program.store, number, handed)
        nbytes = self._tile_bytes(row, column)
        if not gemm.sums or owner == me:
            program.store.append(self._node(number, Action.STORE, target=me, nbytes=nbytes))
        if gemm.sums and owner != me:
            self._send(program, nbytes, [self._next], following)
        elif gemm.to_all and self.peers:
            self._send(program, nbytes, self.peers, following)
        program.released = self._hand_over(program.store, number)
        if gemm.sums and owner != me:
            self._signal(program.store, number, self._next, "sent", me, row, column)

    @property
    def _next(self) -> int:
        return (self.me + 1) % self.gemm.n_pes

    def _receive(self, program: _Program, row: int, column: int, owner: int) -> Node:
        """What the previous PE has sent of a tile; nothing, if this PE is the first to compute it."""
        nodes, number, previous = program.receive, program.number, (self.me - 1) % self.gemm.n_pes
        begun = self._hand_over(nodes, number, program.released)
        if owner == previous:
            return begun
        self._wait(nodes, number, self.steps("sent", previous, row, column))
        nodes.append(self._node(number, Action.LOAD, target=self.me, nbytes=self._tile_bytes(row, column)))
        return self._hand_over(nodes, number)

    def _tile_bytes(self, row: int, column: int) -> int:
        rows = (
            self.config.block_m if self.gemm.sums else min(self.config.block_m, self.gemm.m - row * self.config.block_m)
        )
        columns = min(self.config.c_columns, self.gemm.n - column * self.config.c_columns)
        return rows * columns * self.gemm.out_dtype.itemsize

    def _send(self, program: _Program, nbytes: int, targets: list[int], following: tuple[int, ...] | None) -> None:
        """Send a tile to each of ``targets`` in pieces, at the intervals that the kernel keeps while it computes the
        unit ``following``."""
        assert self.pacing is not None
        rows, columns = piece_of(self.config)
        piece = rows * columns * self.gemm.out_dtype.itemsize
        interval = self.machine.nvlink.latency / IN_FLIGHT.value
        if following is not None:
            cycles = self.pacing.cycles * (following[3] - following[2]) >> 8
            interval = max(interval, cycles / self.clock, self.pacing.nanoseconds / 1e3)
        left = nbytes
        while left > 0:
            now = min(left, _PIECES * piece)
            left -= now
            for pe in targets:
                step = self._node(program.number, Action.STORE, target=pe, nbytes=now)
                program.store.append(replace(step, interval=interval * now / piece, in_flight=IN_FLIGHT.value))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=ALGORITHMS)
    parser.add_argument("pes", type=int)
    parser.add_argument("shapes", nargs="+", metavar="MxNxK", help="of the GEMM of one PE")
    parser.add_argument("--machine", default="h200")
    args = parser.parse_args()
    machine = Machine.load(args.machine)
    for shape in args.shapes:
        m, n, k = map(int, shape.split("x"))
        time = simulated(Gemm(args.name, args.pes, m, n, k), machine)
        print(f"{args.pes} × {args.name}:{ALGORITHMS[args.name]}:{shape}: {time:.1f} µs simulated", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
